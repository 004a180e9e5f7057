"""Asking the background model: once, once more with the fault, then give up."""

from datetime import timedelta

import pytest

from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.asking import ask, delay
from stackmem.exceptions import BadAnswer, TransientError
from stackmem.ports import ChatRequest
from tests.scripted import content, error
from tests.unit.conftest import ScriptedModel

REQUEST = ChatRequest([{"role": "user", "content": "数は？"}], "remember", 5.0, json_schema={"type": "object"})


def read(text: str) -> int:
    if not text.isdigit():
        raise BadAnswer("That is no number.")
    return int(text)


def test_a_good_answer_costs_one_call(chat: OpenAIChat, model: ScriptedModel) -> None:
    model.script = [content("7")]
    assert ask(chat, REQUEST, read) == 7
    assert len(model.asked) == 1


def test_a_bad_answer_is_asked_again_once_with_the_fault(chat: OpenAIChat, model: ScriptedModel) -> None:
    model.script = [content("しち" * 5000), content("7")]
    assert ask(chat, REQUEST, read) == 7
    first, bad, fault = model.asked[1]["messages"]
    assert first["content"] == "数は？"
    assert (bad["role"], bad["content"]) == ("assistant", ("しち" * 5000)[:4000])
    assert fault == {"role": "user", "content": "That is no number. Return only the JSON described above."}
    assert model.asked[1].get("response_format") == model.asked[0].get("response_format")


def test_two_bad_answers_are_a_bad_answer(chat: OpenAIChat, model: ScriptedModel) -> None:
    model.script = [content("しち"), content("なな"), content("7")]
    with pytest.raises(BadAnswer, match="That is no number"):
        ask(chat, REQUEST, read)
    assert len(model.asked) == 2


def test_a_model_that_goes_down_in_between_is_no_bad_answer(chat: OpenAIChat, model: ScriptedModel) -> None:
    model.script = [content("しち"), error(500, "down")]
    with pytest.raises(TransientError):
        ask(chat, REQUEST, read)


def test_delays_grow_to_fifteen_minutes() -> None:
    assert [delay(count).total_seconds() for count in range(10)] == [5, 5, 10, 20, 40, 80, 160, 320, 640, 900]
    assert delay(10**6) == timedelta(minutes=15)
