"""A turn that is spoken while the model still writes: over HTTP, to the stored row."""

import json
import threading
from typing import Any

import pytest

from stackmem.converse import Said
from stackmem.models import Turn
from tests.scripted import DONE, Answer, call, content, delta, error, say, sse
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World, again

TWO = "おはよう。いい天気だね。"
SENTENCES = ["おはよう。", "いい天気だね。"]
SEARCH = call("search_memory", {"query": "富士通のPCの値段"})
FIRST, REST = '{"reply": "おはよう。い', 'い天気だね。", "emotion": "happy", "action": "nod"}'


class Ear:
    """Hears the sentences of a turn; ``waits`` is set with the first one."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.states: list[str] = []  # the turn's, when each was heard
        self.waits = threading.Event()

    def __call__(self, sentence: str) -> None:
        self.heard.append(sentence)
        self.states.append(Turn.select().order_by(Turn.id.desc()).first().state)
        self.waits.set()


@pytest.fixture
def ear() -> Ear:
    return Ear()


def spoken(world: World, ear: Ear, text: str = "おはよう", **more: Any) -> Turn:
    """Let the user say something to a robot that speaks; what was heard, joined, is what is stored."""
    turn = world.conversation.turn(Said("home", text, "s", **more), ear)
    assert "".join(ear.heard) == again(turn).reply == turn.reply
    return turn


def held(ear: Ear, first: str = FIRST, rest: str = REST) -> Answer:
    """Answer with a stream whose rest is sent after the first sentence was heard."""
    return sse(delta(first), ear.waits, delta(rest), delta(finish_reason="stop"), DONE)


def test_the_first_sentence_is_heard_before_the_server_has_sent_the_rest(
    world: World, model: ScriptedModel, ear: Ear
) -> None:
    model.script = [held(ear)]
    turn = spoken(world, ear)
    assert ear.heard == SENTENCES
    assert ear.states == ["open", "open"]
    assert (turn.reply, turn.emotion, turn.action, turn.degraded, turn.model_calls) == (TWO, "happy", "nod", False, 1)
    assert model.asked[0]["stream"] is True
    assert "response_format" not in model.asked[0]


def test_the_same_turn_is_stored_whether_it_is_spoken_or_not(world: World, model: ScriptedModel, ear: Ear) -> None:
    model.script = lambda _: say(TWO, "happy", "nod")
    columns = ("reply", "emotion", "action", "degraded", "model", "state", "tokens", "model_calls", "searched")
    silent, aloud = world.say("おはよう"), spoken(world, ear)
    assert [getattr(silent, name) for name in columns] == [getattr(aloud, name) for name in columns]
    assert ["stream" in request for request in model.asked] == [False, True]


def test_after_a_search_the_second_answer_is_heard_while_it_comes(world: World, model: ScriptedModel, ear: Ear) -> None:
    model.script = [SEARCH, held(ear)]
    turn = spoken(world, ear, "いくらだった？")
    assert (ear.heard, ear.states, turn.searched, turn.model_calls) == (SENTENCES, ["open", "open"], True, 2)


def test_what_was_said_before_a_call_stays_in_front(world: World, model: ScriptedModel, ear: Ear) -> None:
    piece = {"index": 0, "id": "c1", "function": {"name": "search_memory", "arguments": '{"query": "PC"}'}}
    model.script = [
        sse(delta('{"reply": "調べるね。", "emotion": "happy"}'), delta(tool_calls=[piece]), DONE),
        say("ないみたい。"),
    ]
    assert spoken(world, ear).reply == "調べるね。ないみたい。"


@pytest.mark.parametrize(
    "text", ['{"name": "search_memory", "arguments": {"query": "本。"}}', "待って。うん。<tool_call>{}</tool_call>", ""]
)
def test_what_is_no_reply_is_never_heard(world: World, model: ScriptedModel, ear: Ear, text: str) -> None:
    model.script = lambda request: content(text) if "tools" in request else say("うん。")
    spoken(world, ear)
    assert not {"本。", "search_memory"} & set("".join(ear.heard).split('"'))


@pytest.mark.parametrize(
    "answer",
    [content(TWO), content(json.dumps(json.dumps({"reply": TWO}))), content("はい: " + json.dumps({"reply": TWO}))],
)
def test_other_shapes_are_heard_when_they_are_whole(
    world: World, model: ScriptedModel, ear: Ear, answer: Answer
) -> None:
    model.script = [answer]
    spoken(world, ear)
    assert (ear.heard, ear.states) == (SENTENCES, ["pending", "pending"])


def test_a_server_that_cannot_stream_is_heard_when_the_answer_is_whole(
    world: World, model: ScriptedModel, ear: Ear
) -> None:
    whole = json.dumps({"choices": [{"message": {"content": json.dumps({"reply": TWO})}}]}).encode()
    model.script = [Answer(body=whole)]
    spoken(world, ear)
    assert (ear.heard, ear.states) == (SENTENCES, ["pending", "pending"])


def test_the_offline_model_is_heard_too(offline: World, ear: Ear) -> None:
    assert spoken(offline, ear).model == "offline"
    assert ear.heard


def test_a_reply_without_end_is_cut_where_the_hearing_ends(world: World, model: ScriptedModel, ear: Ear) -> None:
    model.script = [say("「とても長い返事だよ。」" * 100)]
    turn = spoken(world, ear)
    assert len(turn.reply) <= world.persona.reply_characters * 3
    assert set(ear.heard) == {"「とても長い返事だよ。」"}


# --- searching inside the JSON ---------------------------------------------------------------------------------------


def test_in_json_the_first_sentence_is_heard_once_search_is_null(world: World, model: ScriptedModel, ear: Ear) -> None:
    world.thinker.tool_use.mode = "json"
    model.script = [held(ear, '{"search": null, ' + FIRST[1:])]
    assert spoken(world, ear).reply == TWO
    assert ear.states == ["open", "open"]


def test_in_json_nothing_is_heard_of_an_answer_that_searches(world: World, model: ScriptedModel) -> None:
    world.thinker.tool_use.mode = "json"
    searching = {"search": {"query": "PC"}, "reply": "違う。違う。", "emotion": "sad", "action": "none"}
    late = {"reply": "違う。違う。", "search": {"query": "PC"}}
    for first in (searching, late):
        ear = Ear()
        model.asked.clear()
        model.script = [content(json.dumps(first, ensure_ascii=False)), held(ear)]
        assert spoken(world, ear).searched
        assert (ear.heard, ear.states) == (SENTENCES, ["open", "open"])


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "reply"),
    [
        ((), "おはよう。"),
        (({"error": {"message": "out of memory"}},), "おはよう。"),
        (({"error": {"message": "Output data may contain inappropriate content.", "code": 400}},), "おはよう。"),
        ((b"data: [DONE]\n\n",), TWO[:6]),  # the server says that this was all
    ],
)
def test_a_model_that_breaks_off_leaves_what_was_heard(
    world: World, model: ScriptedModel, ear: Ear, end: Any, reply: str
) -> None:
    model.script = [sse(delta(FIRST), ear.waits, *end), say("二度目の返事。")]
    turn = spoken(world, ear)
    assert (turn.reply, turn.degraded, turn.state, len(model.asked)) == (reply, False, "pending", 1)
    assert (turn.emotion, turn.action, turn.withheld) == ("neutral", "none", False)


@pytest.mark.parametrize(
    "problem", [error(401, "no"), sse(delta('{"reply": "おは')), sse(delta("<think>うーん。"), DONE)]
)
def test_a_model_that_fails_before_anything_was_heard_gives_a_fallback_line(
    world: World, model: ScriptedModel, ear: Ear, problem: Answer
) -> None:
    model.script = lambda _: problem
    turn = spoken(world, ear)
    assert turn.degraded
    assert turn.reply in world.persona.fallback
    assert set(ear.states) == {"pending"}


def test_a_retry_hears_the_stored_reply_again(world: World, model: ScriptedModel, ear: Ear) -> None:
    model.script = [say(TWO)]
    first = spoken(world, ear, key="k")
    other = Ear()
    assert spoken(world, other, key="k").id == first.id
    assert (other.heard, len(model.asked)) == (SENTENCES, 1)
