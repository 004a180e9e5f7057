"""Corrections from the first words to the search: what is true now is found, what was is in the history."""

import json
from typing import Any

import pytest

from stackmem.listing import history
from stackmem.models import Memory, Session
from tests.scripted import Answer
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World, again, at, decisions, everything, keep, segments, sources_of, summaries

PC12, PC13, PC14 = (f"ユーザーは富士通のPCを{n}万円で買った。" for n in (12, 13, 14))


def told(world: World, model: ScriptedModel, words: str, summary: str, decision: Any = None, **more: Any) -> Memory:
    """Have something said in a session of its own and remembered; the comparison, if one is asked for, decides so."""
    name = f"s{Session.select().count()}"
    known = {row.id for row in Memory.select(Memory.id)}
    world.turn(words, session=name)
    Session.update(ended_at=world.clock.now()).where(Session.name == name).execute()

    def script(request: Any) -> Answer:
        asked = json.loads(request["messages"][1]["content"])
        if "turns" in asked:
            return segments(keep([1], summary, entities=more.get("entities", ["富士通", "PC"])))
        old = {memory["summary"]: memory["id"] for memory in asked["known"]}
        return decisions(("N1", decision[0], old[decision[1]])) if decision else decisions(("N1", "new", None))

    model.script = script
    world.settle()
    world.clock.advance(days=1)
    (row,) = Memory.select().where(Memory.id.not_in(known))
    return again(row)  # type: ignore[no-any-return]


def found(world: World, query: str = "富士通のPCの値段", owner: str = "home") -> list[str]:
    """Return the summaries that the robot's tool finds."""
    content = world.recall.search_memory(owner, None, {"query": query}).content
    return [candidate["summary"] for candidate in content["candidates"]]


def test_a_slip_put_right_in_the_same_look_is_one_memory_with_the_last_value(
    world: World, model: ScriptedModel
) -> None:
    world.turn("富士通のPCを12万円で買った")
    world.turn("ごめん、13万円だった")
    Session.update(ended_at=world.clock.now()).execute()
    model.script = [segments(keep([1, 2], PC13))]
    world.settle()
    assert (summaries(), found(world)) == ([PC13], [PC13])
    assert "12万円" in str(world.recall.search_memory("home", None, {"query": "PC", "exact": True}).content)


def test_a_slip_put_right_in_a_later_look_of_the_same_session_is_superseded(world: World, model: ScriptedModel) -> None:
    world.turn("富士通のPCを12万円で買った")
    world.turns(5)
    model.script = [
        segments(keep([1], PC12, entities=["富士通"]), keep([2, 3, 4, 5, 6], "話。")),
        segments(keep([6], PC13, entities=["富士通"])),
        decisions(("N1", "supersedes", "K1")),
    ]
    world.settle()
    assert summaries() == [PC12]
    world.turn("さっきのPC、13万円だった")
    Session.update(ended_at=world.clock.now()).execute()
    world.settle()
    (new,) = Memory.select().where(Memory.status == "active")
    assert (new.summary, sources_of(new)) == (PC13, [7])
    assert [row.summary for row in history(new)] == [PC12]
    assert found(world) == [PC13]


def test_a_value_corrected_twice_shows_both_earlier_ones_the_newest_first(world: World, model: ScriptedModel) -> None:
    first = told(world, model, "富士通のPCを12万円で買った", PC12)
    second = told(world, model, "PCは13万円だった", PC13, ("supersedes", PC12))
    third = told(world, model, "いや、14万円だった", PC14, ("supersedes", PC13))
    assert (summaries(), found(world)) == ([PC14], [PC14])
    assert [row.id for row in history(third)] == [second.id, first.id]
    assert [row.id for row in history(again(second))] == [first.id]
    assert history(again(first)) == []


def test_back_to_the_first_value_is_a_new_memory_and_not_the_expired_one(world: World, model: ScriptedModel) -> None:
    first = told(world, model, "富士通のPCは12万円だった", PC12)
    second = told(world, model, "13万円だった", PC13, ("supersedes", PC12))
    third = told(world, model, "やっぱり12万円だった", PC12, ("supersedes", PC13))
    assert [again(row).status for row in (first, second, third)] == ["superseded", "superseded", "active"]
    assert len({first.id, second.id, third.id}) == 3
    assert sources_of(third) == [3]
    assert [row.id for row in history(third)] == [second.id, first.id]
    assert found(world) == [PC12]
    assert world.points() == {first.id: "superseded", second.id: "superseded", third.id: "active"}


def test_a_cancelled_plan_is_no_longer_found_as_a_plan(world: World, model: ScriptedModel) -> None:
    plan, off = "ユーザーは8月3日に京都へ行く。", "ユーザーは8月3日の京都行きを取りやめた。"
    told(world, model, "8月3日に京都へ行く", plan, entities=["京都"])
    told(world, model, "京都はやめた", off, ("supersedes", plan), entities=["京都"])
    assert found(world, "京都旅行の予定") == [off]


def test_a_look_alike_is_left_alone(world: World, model: ScriptedModel) -> None:
    second = "ユーザーは2台目の富士通のPCを8万円で買った。"
    told(world, model, "富士通のPCを12万円で買った", PC12)
    told(world, model, "富士通のPCをもう1台、8万円で買った", second)
    third = told(world, model, "1台目は13万円だった", PC13, ("supersedes", PC12))
    assert sorted(summaries()) == sorted([PC13, second])
    assert sorted(found(world)) == sorted([PC13, second])
    assert [row.summary for row in history(third)] == [PC12]


def test_the_same_fact_three_times_is_one_memory_that_rests_on_all_its_tellings(
    world: World, model: ScriptedModel
) -> None:
    first = told(world, model, "富士通のPCを12万円で買った", PC12)
    for words in ("PC、富士通で12万円だったよ", "だから富士通の12万円のPC"):
        repeated = told(world, model, words, f"{PC12[:-1]}のだ。", ("repeats", PC12))
        assert (repeated.status, repeated.superseded_by) == ("superseded", first.id)
    assert (summaries(), found(world)) == ([PC12], [PC12])
    assert sources_of(first) == [1, 2, 3]
    assert again(first).said_at == at("25 10:00")
    assert again(first).status == "active"


def test_ids_of_anothers_memories_change_nothing(world: World, model: ScriptedModel) -> None:
    """The model may know an id from a talk; only the labels of its own request mean anything."""
    hers = world.memory("真理のPCは12万円だ。", entities=["富士通"], owner="mari")
    old = told(world, model, "富士通のPCを12万円で買った", PC12)
    before = [row for row in everything()[0] if row[0] in (hers.id, old.id)]
    world.turn("13万円だった", session="x")
    Session.update(ended_at=world.clock.now()).where(Session.name == "x").execute()
    wrong = [("N1", "supersedes", hers.id), (hers.id, "supersedes", "K1"), (old.id, "repeats", hers.id)]
    model.script = lambda request: (
        segments(keep([1], PC13, entities=["富士通"]))
        if "turns" in json.loads(request["messages"][1]["content"])
        else decisions(*wrong, ("N1", "supersedes", old.id))
    )
    world.settle()
    assert [row for row in everything()[0] if row[0] in (hers.id, old.id)] == before
    assert summaries() == [PC12, PC13]


@pytest.mark.parametrize("numbers", [[381], [0], [-1], ["mem_x"], [2, 7], [None]])
def test_turns_of_other_talks_are_never_the_source_of_a_memory(
    world: World, model: ScriptedModel, numbers: list[Any]
) -> None:
    """Numbers are those of the look: a row id of another owner's turn is a number like any other."""
    world.turns(8, session="theirs", owner="mari")
    turn = world.turn("富士通のPCを12万円で買った", session="mine")
    Session.update(ended_at=world.clock.now()).where(Session.name == "mine").execute()
    model.script = [segments({**keep([1], "真理の秘密。"), "turn_ids": numbers}), segments(keep([1], PC12))]
    world.remembering.remember(turn.session_id)
    assert [sources_of(memory) for memory in Memory.select()] == [[turn.id]]
    assert (summaries(), summaries("mari")) == ([PC12], [])
