"""The judge's calls a day, counted in the database."""

from typing import Any

import pytest

from evals.allowance import Allowance, Metered, Spent
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.exceptions import ContentRefused, PermanentError, TransientError
from stackmem.ports import ChatRequest
from stackmem.score_models import JudgeDay
from tests.fakes import FixedClock
from tests.scripted import Answer, content, error
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, at

REQUEST = ChatRequest([{"role": "user", "content": "?"}], "judge", 5.0)
REFUSED = error(400, {"error": {"code": "data_inspection_failed", "message": "inappropriate content"}})


@pytest.fixture
def allowance(database: Any, clock: FixedClock) -> Allowance:
    return Allowance(2, clock, ZONE)


@pytest.fixture
def judge(allowance: Allowance, chat: OpenAIChat) -> Metered:
    return Metered(chat, allowance)


def test_the_calls_of_a_day_end_and_begin_again_at_midnight_of_the_zone(
    allowance: Allowance, judge: Metered, model: ScriptedModel, clock: FixedClock
) -> None:
    model.script = lambda request: content("{}")
    clock.set(at("23 23:59"))
    assert [judge.complete(REQUEST).content for _ in range(2)] == ["{}", "{}"]
    with pytest.raises(Spent, match="STACKMEM_JUDGE_CALLS_PER_DAY"):
        judge.complete(REQUEST)
    assert allowance.used() == 2
    clock.advance(minutes=1)
    assert allowance.used() == 0
    assert [part.content for part in judge.stream(REQUEST)] == ["{}"]
    assert {row.day: row.calls for row in JudgeDay.select()} == {"2026-07-23": 2, "2026-07-24": 1}
    assert len(model.asked) == 3


def test_no_calls_a_day_are_none(database: Any, chat: OpenAIChat, model: ScriptedModel, clock: FixedClock) -> None:
    with pytest.raises(Spent):
        Metered(chat, Allowance(0, clock, ZONE)).complete(REQUEST)
    assert model.asked == []


@pytest.mark.parametrize(
    ("answer", "kind"), [(error(503, "down"), TransientError), (error(401, "key"), PermanentError)]
)
def test_a_call_that_was_not_answered_is_not_counted_and_the_judge_is_left_alone_ever_longer(
    answer: Answer, kind: type[Exception], allowance: Allowance, judge: Metered, model: ScriptedModel, clock: FixedClock
) -> None:
    model.script = lambda request: answer
    for wait_s in (5, 10, 20):
        with pytest.raises(kind):
            judge.complete(REQUEST)
        assert allowance.is_down()
        clock.advance(seconds=wait_s - 1)
        assert allowance.is_down()
        clock.advance(seconds=1)
        assert not allowance.is_down()
    assert allowance.used() == 0
    model.script = lambda request: content("{}")
    judge.complete(REQUEST)
    assert not allowance.is_down()
    assert JudgeDay.get().delays == 0


def test_a_refusal_to_read_is_an_answer(allowance: Allowance, judge: Metered, model: ScriptedModel) -> None:
    model.script = [REFUSED]
    with pytest.raises(ContentRefused):
        judge.complete(REQUEST)
    assert (allowance.used(), allowance.is_down()) == (1, False)


def test_a_call_that_a_power_cut_swallowed_is_counted(allowance: Allowance) -> None:
    allowance.take()
    assert allowance.used() == 1
