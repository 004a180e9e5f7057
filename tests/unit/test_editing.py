"""A correction by hand: a new memory on the same turns, the old one in its history, both through any rebuild."""

import json
from typing import Any

import pytest

from stackmem import listing
from stackmem.editing import edit
from stackmem.exceptions import Conflict, InvalidInput, NotFound
from stackmem.models import Memory, MemoryEntity, MemorySource, Session
from stackmem.rebuilding import rebuild_from_turns
from stackmem.reindexing import reindex
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, World, again, decisions, keep, segments, sources_of, summaries


def change(world: World, memory: Memory, owner: str = "home", **changes: Any) -> Memory:
    return edit(owner, memory.id, changes, world.clock.now(), ZONE)


def test_the_corrected_one_supersedes_the_old_and_rests_on_the_same_turns(world: World) -> None:
    old = world.memory("富士通のPCは12万円。", "PCを12万で", "買った", entities=["富士通"])
    world.indexed()
    new = change(world, old, summary="富士通のPCは13万円。", entities=["富士通", "ＰＣ"])
    assert (again(old).status, again(old).superseded_by) == ("superseded", new.id)
    assert (new.status, new.revision, new.origin, new.topic) == ("active", 1, "edited", old.topic)
    assert sources_of(new) == sources_of(old)
    assert new.id[:14] == old.id[:14]  # the time of the first source turn
    assert {row.key for row in MemoryEntity.select().where(MemoryEntity.memory == new.id)} == {"富士通", "pc"}
    world.settle()
    assert world.points() == {old.id: "superseded", new.id: "active"}
    assert listing.history(new) == [again(old)]
    newer = change(world, new, topic="PCの値段")
    assert newer.revision == 2
    assert newer.summary == "富士通のPCは13万円。"
    assert [row.id for row in listing.history(newer)] == [new.id, old.id]


@pytest.mark.parametrize(
    ("changes", "first", "last"),
    [
        ({"occurred_at": "2026-07-01"}, "2026-07-01T00:00:00", "2026-07-01T23:59:59"),
        ({"occurred_from": "2026-07-01", "occurred_to": "2026-07-03"}, "2026-07-01T00:00:00", "2026-07-03T23:59:59"),
        ({"occurred_at": "2026-07-01T10:00:00+09:00"}, "2026-07-01T10:00:00", "2026-07-01T10:00:00"),
    ],
)
def test_a_time_is_corrected(world: World, changes: dict[str, str], first: str, last: str) -> None:
    new = change(world, world.memory("旅行。"), **changes)
    assert new.occurred_from.astimezone(ZONE).isoformat()[:19] == first
    assert new.occurred_to.astimezone(ZONE).isoformat()[:19] == last


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "nothing to change"),
        ({"status": "active"}, '"status" cannot be changed'),
        ({"summary": ""}, "summary must be text of 1 to 2000 characters"),
        ({"summary": "  \n"}, "summary must be text"),
        ({"summary": 5}, "summary must be text"),
        ({"topic": "あ" * 201}, "topic must be text of 1 to 200 characters"),
        ({"entities": "富士通"}, "entities must be a list"),
        ({"entities": ["a", 1]}, "entities must be a list"),
        ({"entities": ["a" * 81]}, "at most 80 characters"),
        ({"memory_type": "fact"}, "memory_type must be one of"),
        ({"occurred_at": "昨日"}, "is not a time in ISO 8601"),
        ({"occurred_at": 5}, "must be text in ISO 8601"),
        ({"occurred_from": "2026-07-03", "occurred_to": "2026-07-01"}, "must not lie after occurred_to"),
        ({"occurred_at": "2026-01-01", "occurred_from": "2026-07-01"}, "must lie between them"),
    ],
)
def test_a_wrong_correction_is_one_sentence_and_changes_nothing(
    world: World, changes: dict[str, Any], sentence: str
) -> None:
    memory = world.memory("猫はミケ。")
    with pytest.raises(InvalidInput, match=sentence):
        change(world, memory, **changes)
    assert summaries() == ["猫はミケ。"]


def test_what_of_a_time_is_not_given_stays(world: World) -> None:
    trip = change(world, world.memory("旅行。"), occurred_from="2026-07-01", occurred_to="2026-07-03")
    longer = change(world, trip, occurred_to="2026-07-05")
    assert longer.occurred_from == trip.occurred_from
    assert longer.occurred_to.astimezone(ZONE).isoformat()[:10] == "2026-07-05"


def test_a_correction_survives_a_rebuild_that_cuts_the_talk_otherwise(world: World, model: ScriptedModel) -> None:
    for text in ("PCを12万円で買った", "妹は大阪に住んでる"):
        world.turn(text)
    Session.update(ended_at=world.clock.now()).execute()
    model.script = lambda _: segments(keep([1], "PCは12万円。"), keep([2], "妹は大阪。"))
    world.settle()
    change(world, Memory.get(Memory.summary == "PCは12万円。"), summary="PCは13万円。")
    model.script = lambda request: (
        decisions(("N1", "supersedes", "K1"))
        if '"known"' in request["messages"][1]["content"]
        else segments(keep(range(1, len(json.loads(request["messages"][1]["content"])["turns"]) + 1), "全部の話。"))
    )
    rebuild_from_turns(world.remembering)
    world.settle()
    assert "PCは13万円。" in summaries()
    assert "PCは12万円。" not in summaries()


def test_a_correction_made_before_the_comparison_is_compared_in_its_place(world: World, model: ScriptedModel) -> None:
    world.memory("PCは12万円。", entities=["PC"])
    new = world.memory("PCは20万円。", entities=["PC"], compared=False)
    edited = change(world, new, summary="PCは21万円。")
    world.indexed()
    model.script = [decisions(("N1", "supersedes", "K1"))]
    world.comparing.compare("home")
    assert summaries() == ["PCは21万円。"]
    assert again(edited).status == "active"


@pytest.mark.parametrize("which", ["new", "known"])
def test_a_correction_made_while_the_model_compares_counts(
    world: World, model: ScriptedModel, database: Any, which: str
) -> None:
    old = world.memory("PCは12万円。", entities=["PC"])
    new = world.memory("PCは20万円。", entities=["PC"], compared=False)
    world.indexed()
    asked: list[int] = []

    def script(_: Any) -> Any:
        if not asked:
            with database.connection_context():
                change(world, new if which == "new" else old, summary="直した。")
                Memory.update(outdated=False).execute()
        asked.append(1)
        return decisions(("N1", "supersedes", "K1"))

    model.script = script
    world.comparing.compare("home")
    assert summaries() == (["直した。"] if which == "new" else ["PCは20万円。"])


def test_only_an_active_memory_of_ones_own_is_corrected(world: World) -> None:
    old = world.memory("12万円。")
    new = change(world, old, summary="13万円。")
    with pytest.raises(Conflict, match=new.id):
        change(world, old, summary="14万円。")
    with pytest.raises(NotFound, match="There is no memory"):
        change(world, new, owner="mari", summary="盗み見。")
    with pytest.raises(NotFound):
        edit("home", "mem_x", {"summary": "x"}, world.clock.now(), ZONE)


def test_a_memory_without_turns_is_corrected_twice(world: World) -> None:
    memory = world.memory("輸入した。")
    MemorySource.delete().execute()
    one = change(world, memory, summary="一。")
    two = change(world, one, summary="二。")
    assert len({memory.id, one.id, two.id}) == 3


def test_a_correction_survives_every_rebuild(world: World, model: ScriptedModel) -> None:
    """12万円 → 13万円 by the model → 14万円 by hand: a rebuild must not wake the first two."""
    for name, text in (("a", "PCは12万円"), ("b", "PCは13万円だった")):
        world.turn(text, session=name)
        Session.update(ended_at=world.clock.now()).where(Session.name == name).execute()

    def script(request: Any) -> Any:
        words = request["messages"][1]["content"]
        if '"known"' in words:
            return decisions(("N1", "supersedes", "K1"))
        return segments(keep([1], "PCは12万円。" if "12万円" in words else "PCは13万円。", entities=["PC"]))

    model.script = script
    world.settle()
    assert summaries() == ["PCは13万円。"]
    edited = change(world, Memory.get(Memory.status == "active"), summary="PCは14万円。")
    world.settle()
    before = world.points()
    for rebuild in (lambda: rebuild_from_turns(world.remembering), lambda: reindex(world.index)):
        rebuild()
        world.settle()
        assert summaries() == ["PCは14万円。"]
        assert sorted(summaries(status="superseded")) == ["PCは12万円。", "PCは13万円。"]
        assert world.points() == before
        assert len(listing.history(again(edited))) == 2


def test_what_a_person_wrote_wakes_when_its_successor_is_not_made_again(world: World, model: ScriptedModel) -> None:
    edited = change(world, world.memory("PCは12万円。"), summary="PCは13万円。")
    world.turn("PCは15万円だった", session="b")
    Session.update(ended_at=world.clock.now()).where(Session.name == "b").execute()
    model.script = lambda _: segments(keep([1], "PCは15万円。"))
    world.settle()
    Memory.update(status="superseded", superseded_by=Memory.get(Memory.summary == "PCは15万円。").id).where(
        Memory.id == edited.id
    ).execute()
    model.script = lambda _: segments({"turn_ids": [1], "keep": False, "topic": "x", "summary": ""})
    rebuild_from_turns(world.remembering)
    assert summaries() == ["PCは13万円。"]
