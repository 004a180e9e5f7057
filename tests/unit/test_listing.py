"""Memories as people list and search them."""

from typing import Any

import pytest

from stackmem import listing
from stackmem.exceptions import InvalidInput, NotFound
from tests.unit.world import ZONE, World, at

PC, THINKPAD, CAT = "ユーザーは富士通のPCを買った。", "ユーザーはThinkPadのPCを売った。", "ユーザーの猫の名前はモモだ。"


def newest(world: World, limit: int = 50, owner: str = "home", **wanted: Any) -> list[str]:
    found = listing.newest(owner, wanted, limit, ZONE)
    assert found["count"] == len(found["memories"])
    return [memory["summary"] for memory in found["memories"]]


def search(world: World, query: str, limit: int = 5, owner: str = "home", **wanted: Any) -> list[dict[str, Any]]:
    found = listing.search(world.recall, owner, query, wanted, limit, ZONE)
    assert found["count"] == len(found["memories"])
    return found["memories"]  # type: ignore[no-any-return]


def three(world: World) -> None:
    world.memory(PC, entities=["富士通", "PC"], said=at("01 10:00"))
    world.memory(THINKPAD, entities=["ThinkPad", "PC"], said=at("03 10:00"), memory_type="decision")
    world.memory(CAT, entities=["モモ"], said=at("02 10:00"))
    world.memory("秘密の話。", owner="mari", said=at("04 10:00"))
    for owner in ("home", "mari"):
        world.indexed(owner)


def test_the_newest_said_comes_first(world: World) -> None:
    three(world)
    assert newest(world) == [THINKPAD, CAT, PC]
    assert newest(world, limit=2) == [THINKPAD, CAT]
    assert newest(world, owner="mari") == ["秘密の話。"]
    assert newest(world, owner="nobody") == []


def test_a_list_is_narrowed_by_name_and_type(world: World) -> None:
    three(world)
    assert newest(world, entity="ｐｃ") == [THINKPAD, PC]
    assert newest(world, entity="think-pad", memory_type="decision") == [THINKPAD]
    assert newest(world, entity="Dell") == []
    assert newest(world, memory_type="episode") == [CAT, PC]


def test_retired_memories_are_listed_when_wanted(world: World) -> None:
    world.memory(PC, status="superseded")
    world.memory(CAT, status="forgotten")
    assert newest(world) == []
    assert newest(world, status="superseded") == [PC]


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        ("2026-07-20", None, True),
        (None, "2026-07-20", True),
        ("2025-07-01", "2025-07-31", True),
        ("2026-07-20", "2026-07-20", True),
        ("2025-09-01", "2026-07-19", False),  # after what it is about and before it was said
        ("2026-07-21", None, False),
        (None, "2025-05-31", False),
    ],
)
def test_a_date_range_means_the_same_as_in_a_search(
    world: World, since: str | None, until: str | None, found: bool
) -> None:
    trip = "ユーザーは北海道へ旅行した。"
    world.memory(trip, occurred_from="2025-06-01", occurred_to="2025-08-31", said=at("20 23:30"))
    world.indexed()
    assert bool(newest(world, since=since, until=until)) is found
    assert bool(search(world, "北海道への旅行", since=since, until=until)) is found


def test_a_search_gives_the_memorys_fields_and_its_similarity(world: World) -> None:
    three(world)
    first = search(world, "富士通のPCを買った")[0]
    assert (first["summary"], first["source_checked"], first["owner"]) == (PC, False, "home")
    assert 0.5 < first["retrieval_score"] <= 1
    assert first["source_turn_ids"] == [1]


def test_a_search_gives_as_many_as_wanted(world: World) -> None:
    for number in range(8):
        world.memory(f"ユーザーは富士通のPCを{number}台買った。")
    world.indexed()
    assert len(search(world, "富士通のPC", limit=7)) == 7
    assert len(search(world, "富士通のPC", limit=1)) == 1


def test_a_search_is_narrowed_like_the_robots(world: World) -> None:
    three(world)
    assert [memory["summary"] for memory in search(world, "PCを買った", entity="ThinkPad")] == [THINKPAD]
    assert [memory["summary"] for memory in search(world, "PC", memory_type="decision")] == [THINKPAD]
    assert search(world, "PC", since="2026-07-04") == []
    assert search(world, "秘密の話") == []


def test_turns_that_are_no_memories_yet_are_not_listed(world: World) -> None:
    world.turn("富士通のPCを買った")
    assert search(world, "富士通のPC") == []


@pytest.mark.parametrize(
    "wanted", [{"status": "gone"}, {"status": "x"}, {"memory_type": "fact"}, {"since": "昨日"}, {"until": "x"}]
)
def test_a_wrong_filter_is_refused_in_one_sentence(world: World, wanted: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        newest(world, **wanted)
    with pytest.raises(InvalidInput):
        search(world, "PC", **wanted)


def test_an_empty_query_is_refused(world: World) -> None:
    with pytest.raises(InvalidInput):
        search(world, " ")


def test_one_memory_is_given_to_its_owner_alone(world: World) -> None:
    memory, gone = world.memory(PC), world.memory(CAT, status="forgotten")
    assert listing.one("home", memory.id) == memory
    for owner, identity in (("mari", memory.id), ("home", gone.id), ("home", "mem_x" * 50)):
        with pytest.raises(NotFound, match="There is no memory"):
            listing.one(owner, identity)


def test_the_turns_of_a_memory_are_given_oldest_first(world: World) -> None:
    memory = world.memory(PC, "一", "二", "三")
    assert [line["user"] for line in listing.source_lines(memory, ZONE)] == ["一", "二", "三"]
