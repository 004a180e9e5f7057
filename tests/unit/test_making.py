"""The rows of one memory."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from stackmem.answers import Segment
from stackmem.making import absorb, entity_columns, make_memory, occurred, supersede
from stackmem.models import Memory, MemoryEntity
from tests.unit.world import ZONE, World, again, at, sources_of

SAID = at("23 10:00")


def kept(**more: Any) -> Segment:
    return Segment(turn_ids=[1], keep=True, **{"topic": "PC", "summary": "ユーザーはPCを買った。", **more})


def test_a_memory_holds_what_the_segment_says_and_when_it_was_said(world: World) -> None:
    turns = [world.turn(text, at=at(day)) for text, day in (("一", "01 10:00"), ("二", "02 10:00"), ("三", "01 12:00"))]
    memory = world.memory_of(turns, "話", entities=["富士通", "ＰＣ", "pc"], memory_type="decision")
    assert (memory.summary, memory.memory_type, memory.status, memory.origin) == ("話", "decision", "active", "made")
    assert (memory.entities, memory.entity_keys) == (["富士通", "ＰＣ"], ["富士通", "pc"])
    assert memory.said_at == at("02 10:00")
    assert memory.occurred_from == memory.occurred_to == memory.occurred_at == at("01 10:00")
    assert sources_of(memory) == [turn.id for turn in turns]
    assert {row.key for row in MemoryEntity.select()} == {"富士通", "pc"}
    assert (memory.outdated, memory.revision, memory.owner) == (True, 0, "home")


def test_making_the_same_memory_again_makes_nothing(world: World) -> None:
    turns = [world.turn("一"), world.turn("二")]
    window = world.window(turns)
    assert make_memory(kept(), turns, window, world.clock.now(), ZONE) == 1
    Memory.update(window=None).execute()  # as after a rebuild
    assert make_memory(kept(summary="言い方が違う"), turns[::-1], window, world.clock.now(), ZONE) == 0
    assert Memory.get().summary == "ユーザーはPCを買った。"


def test_two_memories_of_the_same_turns_get_different_ids(world: World) -> None:
    turns = [world.turn("一")]
    window = world.window(turns)
    for ordinal, summary in enumerate(("犬を飼っている。", "猫を飼っている。", "鳥を飼っている。")):
        assert make_memory(kept(summary=summary), turns, window, world.clock.now(), ZONE, ordinal=ordinal) == 1
    assert Memory.select().count() == 3


def test_a_memory_without_a_topic_takes_it_from_its_summary(world: World) -> None:
    assert world.memory_of([world.turn("一")], "あ" * 100, topic="").topic == "あ" * 40


def test_of_spellings_of_one_name_the_first_stays() -> None:
    assert entity_columns(["富士通", "FUJITSU", "Ｆｕｊｉｔｓｕ", " ", "東京"]) == {
        "entities": ["富士通", "FUJITSU", "東京"],
        "entity_keys": ["富士通", "fujitsu", "東京"],
    }
    assert entity_columns([]) == {"entities": [], "entity_keys": []}


DAY_END = timedelta(days=1) - timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("given_", "when", "start", "end"),
    [
        ({}, SAID, SAID, SAID),
        ({"occurred_at": "昔"}, SAID, SAID, SAID),
        ({"occurred_at": "2026-07-01"}, at("01 00:00"), at("01 00:00"), at("01 00:00") + DAY_END),
        ({"occurred_at": "2026-07-01T20:00"}, at("01 20:00"), at("01 20:00"), at("01 20:00")),
        (
            {"occurred_from": "2026-07-01", "occurred_to": "2026-07-03"},
            at("01 00:00"), at("01 00:00"), at("03 00:00") + DAY_END,
        ),
        (
            {"occurred_from": "2026-07-03", "occurred_to": "2026-07-01"},
            at("01 00:00"), at("01 00:00"), at("03 00:00") + DAY_END,
        ),
        ({"occurred_from": "2026-07-01"}, at("01 00:00"), at("01 00:00"), at("01 00:00") + DAY_END),
        ({"occurred_to": "2026-07-03"}, SAID, SAID, SAID),
        (
            {"occurred_at": "2026-07-02", "occurred_to": "2026-07-03"},
            at("02 00:00"), at("02 00:00"), at("03 00:00") + DAY_END,
        ),
        (
            {"occurred_at": "2026-07-02", "occurred_from": "2026-07-01", "occurred_to": "2026-07-03"},
            at("02 00:00"), at("01 00:00"), at("03 00:00") + DAY_END,
        ),
    ],
)  # fmt: skip
def test_when_it_happened_is_a_moment_a_day_or_a_span(
    given_: dict[str, str], when: datetime, start: datetime, end: datetime
) -> None:
    assert occurred(kept(**given_), SAID, ZONE) == {"occurred_at": when, "occurred_from": start, "occurred_to": end}


def test_a_superseded_memory_stays_with_its_link(world: World) -> None:
    old, new = world.memory("12万円"), world.memory("13万円")
    Memory.update(outdated=False).execute()
    supersede(old, new.id)
    assert (again(old).status, again(old).superseded_by) == ("superseded", new.id)
    assert (again(old).version, again(old).outdated) == (2, True)
    assert not again(new).outdated


def test_what_is_retired_already_keeps_its_first_link(world: World) -> None:
    old, new, other = world.memory("12万円"), world.memory("13万円"), world.memory("14万円")
    supersede(old, new.id)
    supersede(old, other.id)
    assert again(old).superseded_by == new.id


def test_a_repeated_memory_gains_the_turns_and_the_later_time(world: World) -> None:
    kept_, repeated = world.memory("猫がいる", said=at("01 10:00")), world.memory("猫がいる", said=at("05 10:00"))
    turns = sources_of(kept_) + sources_of(repeated)
    absorb(kept_, repeated)
    assert sources_of(kept_) == turns
    assert again(kept_).said_at == at("05 10:00")
    assert (again(kept_).status, again(kept_).version) == ("active", 2)
    assert (again(repeated).status, again(repeated).superseded_by) == ("superseded", kept_.id)
    assert again(kept_).id == kept_.id


def test_absorbing_an_older_saying_does_not_make_it_older(world: World) -> None:
    kept_, repeated = world.memory("猫がいる", said=at("05 10:00")), world.memory("猫がいる", said=at("01 10:00"))
    absorb(kept_, repeated)
    absorb(again(kept_), again(repeated))
    assert again(kept_).said_at == at("05 10:00")
    assert len(sources_of(kept_)) == 2
