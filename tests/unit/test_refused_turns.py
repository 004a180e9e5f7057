"""Row 22: a service that will not read one sentence. That turn leaves the context and stays in the database."""

import json
from typing import Any

from stackmem.models import Turn
from tests.scripted import Answer, call, error, say
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World, again

REFUSED = error(
    400, {"error": {"code": "data_inspection_failed", "message": "Input data may contain inappropriate content."}}
)


def squeamish(request: Any) -> Answer:
    """Refuse any request in which the word 毒 stands; its own second reply holds it."""
    words = json.dumps(request["messages"], ensure_ascii=False)
    if "毒" in words:
        return REFUSED
    return say("蛇の毒の話だね" if "蛇" in words else "うん")


def test_words_that_are_refused_get_the_fallback_line_and_leave_the_context(world: World, model: ScriptedModel) -> None:
    model.script = squeamish
    first = world.say("こんにちは")
    bad = world.say("毒きのこの話")
    after = world.say("いい天気だね")
    assert (first.degraded, bad.degraded, after.degraded) == (False, True, False)
    assert after.reply == "うん"
    assert again(bad).user == "毒きのこの話"
    assert [turn.withheld for turn in Turn.select().order_by(Turn.id)] == [False, True, False]
    assert "毒" not in json.dumps(model.asked[-1]["messages"], ensure_ascii=False)
    assert "こんにちは" in json.dumps(model.asked[-1]["messages"], ensure_ascii=False)  # the rest stays


def test_a_reply_of_its_own_that_is_refused_leaves_too(world: World, model: ScriptedModel) -> None:
    model.script = squeamish
    world.say("こんにちは")
    bad = world.say("蛇の話をして")
    after = world.say("ところで元気？")
    assert (again(bad).reply, again(bad).withheld) == ("蛇の毒の話だね", True)
    assert (after.reply, after.degraded, after.model_calls) == ("うん", False, 2)
    asked = len(model.asked)
    assert not world.say("またね").degraded
    assert len(model.asked) == asked + 1  # it was found once and for all


def test_something_older_takes_the_whole_context_with_it(world: World, model: ScriptedModel) -> None:
    for text in ("毒の話", "普通の話", "別の話"):
        world.turn(text, session="s", state="kept")  # said while another service answered
    model.script = squeamish
    assert not world.say("こんにちは").degraded
    assert [turn.withheld for turn in Turn.select().order_by(Turn.id)] == [True, True, True, False]


def test_what_a_tool_found_withholds_no_turn(world: World, model: ScriptedModel) -> None:
    world.memory("毒きのこを食べた。")
    world.indexed()

    def script(request: Any) -> Answer:
        if any(message["role"] == "tool" for message in request["messages"]):
            return squeamish(request)
        return call("search_memory", {"query": "きのこ"})

    model.script = script
    turn = world.say("何のきのこだっけ")
    assert turn.degraded
    assert turn.searched
    assert not Turn.select().where(Turn.withheld).exists()
