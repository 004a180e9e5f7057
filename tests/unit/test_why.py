"""Why a reply came about, and why a memory was not shown."""

from typing import Any

import pytest

from stackmem.exceptions import NotFound
from stackmem.models import Memory, ToolTrace, Turn
from stackmem.naming import add_alias
from stackmem.why import turn_of, why, why_not
from tests.scripted import Answer, call, error, say
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, World


def searching(**arguments: Any) -> Any:
    """A model that searches with these arguments, then answers."""

    def script(request: Any) -> Answer:
        found = any(message["role"] == "tool" for message in request["messages"])
        return say("13万円だったよ") if found else call("search_memory", {"query": "富士通のPCの値段", **arguments})

    return script


def reason(world: World, turn: Turn, memory: Memory) -> str:
    return " ".join(why_not(world.recall, turn, memory.id, ZONE)["reasons"])


def test_what_was_searched_found_and_shown_is_told(world: World, model: ScriptedModel) -> None:
    memory = world.memory("富士通のPCは13万円。", entities=["富士通", "PC"])
    world.indexed()
    add_alias("home", "富士通", "Fujitsu", world.clock.now())
    model.script = searching(entities=["Fujitsu"], since="2026-01-01")
    turn = world.say("PCいくらだっけ", session="later")
    told = why(turn, ZONE)
    assert told["verdict"] == "The model asked for 1 search(es), and was shown 1 candidate(s)."
    (done,) = told["trace"]["calls"]
    assert done["looked_for"]["query"] == "富士通のPCの値段 Fujitsu"
    assert done["looked_for"]["entity_keys"] == ["fujitsu", "富士通"]
    assert done["looked_for"]["since"] == "2026-01-01T00:00:00+09:00"
    assert [(hit["memory_id"], hit["summary"], hit["status"]) for hit in done["hits"]] == [
        (memory.id, "富士通のPCは13万円。", "active")
    ]
    assert done["result"]["candidates"][0]["memory_id"] == memory.id  # what the model saw
    assert reason(world, turn, memory) == "It was shown."


@pytest.mark.parametrize(
    ("columns", "arguments", "told"),
    [
        ({"status": "superseded"}, {}, "It is superseded"),
        ({}, {"entities": ["ミケ"]}, "The search was for ミケ; its names are 富士通."),
        ({}, {"memory_type": "preference"}, "The search was for preference; it is episode."),
        ({}, {"since": "2030-01-01"}, "The search was for another time."),
        ({}, {"query": " "}, "The search itself failed: query is missing"),
    ],
)
def test_why_a_memory_was_not_shown(
    world: World, model: ScriptedModel, columns: dict[str, Any], arguments: dict[str, Any], told: str
) -> None:
    memory = world.memory("富士通のPCは13万円。", entities=["富士通"])
    Memory.update(**{"origin": "made", **columns}).where(Memory.id == memory.id).execute()
    model.script = searching(**arguments)
    turn = world.say("PCいくらだっけ", session="later")  # nothing is in the index: nothing is found
    assert reason(world, turn, memory).startswith(told)


def test_a_far_or_low_memory_is_told_from_its_place(world: World, model: ScriptedModel) -> None:
    for number in range(9):
        world.memory(f"富士通のPCの値段は{number}万円。", entities=["富士通"])
    far = world.memory("海の色。")
    world.indexed()
    model.script = searching()
    turn = world.say("PCいくらだっけ", session="later")
    shown = {hit["memory_id"] for row in ToolTrace.select() for hit in row.hits}
    low = next(row for row in Memory.select() if row.id not in shown and row.id != far.id)
    assert "5 at most are shown" in reason(world, turn, low)
    assert "below" in reason(world, turn, far) or "not among" in reason(world, turn, far)


def test_what_was_made_later_could_not_be_shown(world: World, model: ScriptedModel) -> None:
    model.script = searching()
    turn = world.say("PCいくらだっけ")
    world.clock.advance(minutes=5)
    memory = world.memory("富士通のPCは13万円。")
    assert reason(world, turn, memory).startswith("It was made after this turn, at 2026-07-23T10:05:00+09:00.")


def test_a_turn_without_a_search_and_one_that_failed_say_so(world: World, model: ScriptedModel) -> None:
    memory = world.memory("猫はミケ。")
    model.script = lambda _: say("こんにちは！")
    turn = world.say("こんにちは")
    assert why(turn, ZONE)["verdict"] == "The model answered without asking for a search."
    assert reason(world, turn, memory) == "Nothing was searched in this turn."
    model.script = lambda _: error(503, "busy")
    assert "did not answer in time" in why(world.say("もしもし"), ZONE)["verdict"]
    assert "imported" in why(world.turn("昔の話", imported=True), ZONE)["verdict"]
    assert "not answered yet" in why(world.turn("まだ", "", state="open"), ZONE)["verdict"]


def test_another_owners_turn_or_memory_is_not_told(world: World, model: ScriptedModel) -> None:
    hers = world.memory("秘密。", owner="mari")
    model.script = lambda _: say("やあ")
    turn = world.say("やあ")
    for number in ("0", "x", "²", "9" * 30, "-1", ""):
        with pytest.raises(NotFound):
            turn_of("home", number)
    with pytest.raises(NotFound):
        turn_of("mari", str(turn.id))
    with pytest.raises(NotFound):
        why_not(world.recall, turn, hers.id, ZONE)
