"""The words a memory came from: re-read from the rows, cut to what a prompt can hold."""

import json
from typing import Any

import pytest

from stackmem import sources
from stackmem.exceptions import InvalidInput
from stackmem.models import Memory, Turn
from stackmem.ports import IndexFilter
from stackmem.recall import ToolResult
from stackmem.text import estimate_tokens
from tests.unit.world import ZONE, World, at

UNKNOWN = "mem_" + "0" * 26


def read(world: World, **given: Any) -> ToolResult:
    return world.recall.call("home", None, "read_memory_source", given)


def words(shown: dict[str, Any]) -> list[str]:
    return [turn["user"] for turn in shown["sources"]]


def tokens(shown: list[dict[str, Any]]) -> int:
    return sum(
        estimate_tokens(turn["user"]) + estimate_tokens(turn["robot"])
        for memory in shown
        for turn in memory.get("sources", [])
    )


# --- read_memory_source ----------------------------------------------------------------------------------------------


def test_the_original_turns_are_shown_with_their_dates(world: World) -> None:
    memory = world.memory("ユーザーはPCを買った。", "PCを買った", "13万円だった", said=at("01 20:15"))
    result = read(world, memory_ids=[memory.id])
    (shown,) = result.content["memories"]
    assert shown["sources"][0] == {
        "turn_id": sources.source_turn_ids([memory.id])[memory.id][0],
        "at": "2026-07-01T20:15:00+09:00",
        "user": "PCを買った",
        "robot": "そうなんだ",
    }
    assert words(shown) == ["PCを買った", "13万円だった"]
    assert result.hits == [
        {
            "memory_id": memory.id,
            "retrieval_score": None,
            "source_checked": True,
            "source_turn_ids": sources.source_turn_ids([memory.id])[memory.id],
        }
    ]


@pytest.mark.parametrize(("around", "expected"), [(0, "3"), (None, "3"), (1, "234"), (2, "12345"), (5, "1234567")])
def test_neighbours_are_shown_on_each_side(world: World, around: int | None, expected: str) -> None:
    turns = [world.turn(str(number)) for number in range(1, 8)]
    world.turn("9", session="t")
    memory = world.memory_of(turns[2:3], "三つ目の話")
    result = read(world, memory_ids=[memory.id], around=around)
    assert "".join(words(result.content["memories"][0])) == expected
    assert result.hits[0]["source_turn_ids"] == [turns[2].id]


def test_around_is_cut_to_five(world: World) -> None:
    turns = [world.turn(str(number)) for number in range(20)]
    memory = world.memory_of(turns[10:11], "話")
    assert len(read(world, memory_ids=[memory.id], around=20).content["memories"][0]["sources"]) == 11


def test_a_memory_without_sources_left_is_read_as_such(world: World) -> None:
    memory = world.memory("話")
    Turn.delete().execute()
    for around in (0, 2):
        result = read(world, memory_ids=[memory.id], around=around)
        assert result.content == {"memories": [{"memory_id": memory.id, "sources": []}], "count": 1}


def test_an_unknown_id_is_answered_with_a_sentence_beside_the_known_ones(world: World) -> None:
    memory = world.memory("話")
    result = read(world, memory_ids=["x'; DROP TABLE turn", UNKNOWN, memory.id])
    first, second, third = result.content["memories"]
    assert first["error"] == second["error"] == "There is no memory under this id."
    assert words(third) == ["話"]
    assert (result.content["count"], len(result.hits)) == (1, 1)


def test_another_owners_memory_is_unknown(world: World) -> None:
    memory = world.memory("秘密", owner="mari")
    result = read(world, memory_ids=[memory.id])
    assert result.content["count"] == 0
    assert "秘密" not in json.dumps(result.content, ensure_ascii=False)


def test_a_superseded_memory_can_be_read_and_a_forgotten_one_cannot(world: World) -> None:
    old, gone = world.memory("古い話", status="superseded"), world.memory("忘れた話", status="forgotten")
    result = read(world, memory_ids=[old.id, gone.id])
    assert [("sources" in shown) for shown in result.content["memories"]] == [True, False]


def test_one_id_may_come_without_its_list_and_twice(world: World) -> None:
    memory = world.memory("話")
    assert read(world, memory_ids=memory.id).content["count"] == 1
    assert len(read(world, memory_ids=[memory.id] * 3).content["memories"]) == 1


def test_ten_ids_are_read_at_most(world: World) -> None:
    assert len(read(world, memory_ids=[f"mem_{number}" for number in range(50)]).content["memories"]) == 10


@pytest.mark.parametrize(
    "given", [{}, {"memory_ids": None}, {"memory_ids": []}, {"memory_ids": [1]}, {"memory_ids": 3}]
)
def test_wrong_ids_are_answered_with_a_sentence(world: World, given: Any) -> None:
    assert read(world, **given).content["error"] == "memory_ids is a list of ids that search_memory returned."


@pytest.mark.parametrize("around", ["2", -1, 21, 1.5, [1]])
def test_a_wrong_around_is_answered_with_a_sentence(world: World, around: Any) -> None:
    result = read(world, memory_ids=[UNKNOWN], around=around)
    assert result.content["error"] == "around is a whole number from 0 to 5."


def test_read_sources_raises_what_call_answers(world: World) -> None:
    with pytest.raises(InvalidInput):
        sources.read_sources("home", {}, ZONE)


# --- budgets ---------------------------------------------------------------------------------------------------------


def long_memory(world: World, word: str, turns: int = 4) -> Memory:
    filler = "あのね、それでね、" * 100
    return world.memory(f"{word}の話", *[f"{word}{number}{filler}" for number in range(turns)], session=word)


def test_one_long_turn_is_cut_around_what_was_asked_for(world: World) -> None:
    filler = "えっとね、" * 400
    memory = world.memory("ユーザーはPCを買った。", f"{filler}富士通のPCを13万円で買った。{filler}")
    shown = sources.cut_sources([memory], "富士通のPCの値段は13万円", ZONE)[memory.id]
    assert "富士通のPCを13万円で買った" in shown[0]["user"]
    assert tokens([{"sources": shown}]) <= sources.TOKENS


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_sources_of_all_candidates_keep_one_budget(world: World, count: int) -> None:
    memories = [long_memory(world, word) for word in ("富士通", "東芝", "日立")[:count]]
    shown = sources.cut_sources(memories, "富士通3", ZONE)
    assert len(shown) == count
    assert all(turns for turns in shown.values())
    assert tokens([{"sources": turns} for turns in shown.values()]) <= sources.TOKENS


def test_the_best_match_is_shown_with_its_neighbours(world: World) -> None:
    said = [f"話題{number}" + "あ" * 300 for number in range(9)]
    said[4] = "富士通のPCを13万円で買った"
    memory = world.memory("話", *said)
    shown = sources.cut_sources([memory], "富士通のPC", ZONE)[memory.id]
    ids = sources.source_turn_ids([memory.id])[memory.id]
    numbers = [ids.index(turn["turn_id"]) for turn in shown]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert 4 in numbers
    assert 1 < len(numbers) < 9


@pytest.mark.parametrize("place", [0, 8])
def test_a_best_match_at_the_edge_is_shown_with_its_neighbours_too(world: World, place: int) -> None:
    said = [f"話題{number}" + "あ" * 300 for number in range(9)]
    said[place] = "富士通のPCを13万円で買った"
    memory = world.memory("話", *said)
    shown = sources.cut_sources([memory], "富士通のPC", ZONE)[memory.id]
    assert said[place] in [turn["user"] for turn in shown]
    assert len(shown) > 1


def test_short_sources_are_shown_whole(world: World) -> None:
    memory = world.memory("話", "一", "二", "三")
    shown = sources.cut_sources([memory], "二", ZONE)[memory.id]
    assert [turn["user"] for turn in shown] == ["一", "二", "三"]


def test_what_has_no_sources_is_not_shown(world: World) -> None:
    memory = world.memory("話")
    Turn.delete().execute()
    assert sources.cut_sources([memory], "話", ZONE) == {}


@pytest.mark.parametrize("around", [0, 5])
def test_reading_many_memories_keeps_the_budget(world: World, around: int) -> None:
    memories = [long_memory(world, word, 3) for word in ("富士通", "東芝", "日立", "三菱", "日産", "松下")]
    result = read(world, memory_ids=[memory.id for memory in memories], around=around)
    shown = result.content["memories"]
    assert all(memory["sources"] for memory in shown)
    assert tokens(shown) <= sources.TOKENS


def test_neighbours_never_crowd_out_the_source_itself(world: World) -> None:
    turns = [world.turn(f"話題{number}" + "あ" * 500) for number in range(11)]
    memory = world.memory_of(turns[5:6], "話")
    shown = read(world, memory_ids=[memory.id], around=5).content["memories"][0]["sources"]
    assert turns[5].id in [turn["turn_id"] for turn in shown]
    assert [turn["turn_id"] for turn in shown] == sorted(turn["turn_id"] for turn in shown)


# --- not yet a memory ------------------------------------------------------------------------------------------------


def waiting(world: World, query: str, **where: Any) -> list[str]:
    found = sources.not_yet_memories("home", world.session("now").id, query, IndexFilter("home", **where), ZONE)
    assert all(candidate["not_yet_a_memory"] and candidate["memory_id"] is None for candidate in found)
    return [candidate["sources"][0]["user"] for candidate in found]


def test_turns_of_other_sessions_that_are_no_memory_yet_are_found_by_words(world: World) -> None:
    world.turn("富士通のPCを買った", session="a")
    world.turn("猫を飼いはじめた", session="a")
    assert waiting(world, "富士通のPC") == ["富士通のPCを買った"]


def test_the_present_session_other_owners_and_settled_turns_are_left_out(world: World) -> None:
    world.turn("富士通のPC、いま", session="now")
    world.turn("富士通のPC、秘密", session="a", owner="mari")
    for state in ("open", "kept", "skipped", "failed"):
        world.turn(f"富士通のPC、{state}", session="a", state=state)
    assert waiting(world, "富士通のPC") == ["富士通のPC、failed"]


def test_without_a_session_all_are_looked_at(world: World) -> None:
    world.turn("富士通のPC", session="now")
    assert len(sources.not_yet_memories("home", None, "富士通のPC", IndexFilter("home"), ZONE)) == 1


def test_the_three_best_are_shown_the_newest_first_among_equals(world: World) -> None:
    for text in ("富士通のPC", "富士通のテレビ", "富士通のPC！", "富士通のPC？"):
        world.turn(text, session="a")
    assert waiting(world, "富士通のPC") == ["富士通のPC？", "富士通のPC！", "富士通のPC"]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"since": at("21 00:00")}, True),
        ({"since": at("21 00:00"), "until": at("22 00:00")}, True),
        ({"until": at("20 00:00")}, False),
        ({"since": at("22 00:00")}, False),
    ],
)
def test_a_date_range_counts_for_them_too(world: World, where: dict[str, Any], found: bool) -> None:
    world.turn("富士通のPC", session="a", at=at("21 12:00"))
    assert bool(waiting(world, "富士通のPC", **where)) is found


def test_a_period_is_shown_as_from_and_to(world: World) -> None:
    day = world.memory("話", occurred_at="2026-07-01")
    moment = world.memory("別の話", said=at("02 10:00"))
    assert sources.shown_period(day, ZONE) == "2026-07-01T00:00:00+09:00/2026-07-01T23:59:59+09:00"
    assert sources.shown_period(moment, ZONE) == "2026-07-02T10:00:00+09:00"
