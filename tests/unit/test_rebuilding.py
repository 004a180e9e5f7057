"""The memories made again from the turns; what a person decided stays."""

import json
from typing import Any

import pytest

from stackmem.exceptions import BadAnswer, TransientError
from stackmem.models import Memory, MemorySource, PointDeletion, Session, Turn, Window
from stackmem.rebuilding import rebuild_from_turns
from tests.scripted import Answer, content, error
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World, again, everything, ingest, keep, segments, skip, sources_of, states, summaries


def test_with_the_same_model_the_same_memories_come_again(offline: World) -> None:
    ingest(offline)
    before = everything()
    points = offline.points()
    assert len(before[0]) >= 4
    assert Window.select().count() >= 4
    assert rebuild_from_turns(offline.remembering) == Window.select().count()
    offline.settle()
    assert everything() == before
    assert offline.points() == points
    assert rebuild_from_turns(offline.remembering) == Window.select().count()
    offline.settle()
    assert everything() == before


def closed(world: World, *texts: str, name: str = "s", owner: str = "home") -> list[Turn]:
    turns = [world.turn(text, session=name, owner=owner) for text in texts]
    Session.update(ended_at=world.clock.now()).where(Session.id == turns[0].session_id).execute()
    return turns


def kept_whole(request: Any) -> Answer:
    turns = json.loads(request["messages"][1]["content"])["turns"]
    return segments(keep([turn["turn_id"] for turn in turns], turns[0]["user"] + "。"))


def test_another_model_may_make_other_memories_and_the_old_points_leave(world: World, model: ScriptedModel) -> None:
    closed(world, "PCを買った", "猫がいる")
    model.script = lambda _: segments(keep([1], "PCを買った。"), keep([2], "猫がいる。"))
    world.settle()
    old = set(world.points())
    model.script = lambda _: segments(skip(1), keep([2], "猫がいる！"))
    rebuild_from_turns(world.remembering)
    assert states() == ["skipped", "kept"]
    assert summaries() == ["猫がいる！"]
    world.settle()
    assert set(world.points()) == {Memory.get().id}
    assert set(world.points()) < old
    assert not PointDeletion.select().exists()


def test_the_open_topic_goes_over_from_window_to_window(world: World, model: ScriptedModel) -> None:
    world.turns(6)
    model.script = lambda _: segments(keep([1, 2], "一つ。"), keep([3, 4, 5, 6], "二つ。"))
    world.settle()
    world.turns(2)
    Session.update(ended_at=world.clock.now()).execute()
    model.script = lambda _: segments(keep([1, 2, 3, 4, 5, 6], "二つ、終わり。"))
    world.settle()
    model.asked.clear()

    def wider(request: Any) -> Answer:
        turns = json.loads(request["messages"][1]["content"])["turns"]
        if len(model.asked) == 1:
            return segments(keep([1], "一つ。"), keep([2, 3, 4, 5, 6], "二つ。"))
        return segments(keep([turn["turn_id"] for turn in turns], "二つ、終わり。"))

    model.script = wider
    rebuild_from_turns(world.remembering)
    assert [len(prompt["turns"]) for prompt in model.prompts] == [6, 7]
    assert [prompt["turns"][0]["user"] for prompt in model.prompts] == ["話1", "話2"]
    assert [len(window.turn_ids) for window in Window.select().order_by(Window.id)] == [6, 7]
    assert set(states()) == {"kept"}


def test_a_topic_still_open_at_the_end_stays_pending_and_a_look_is_due(world: World, model: ScriptedModel) -> None:
    turns = world.turns(6)
    model.script = lambda _: segments(keep([1, 2], "一つ。"), keep([3, 4, 5, 6], "二つ。"))
    world.settle()
    model.script = lambda _: segments(keep([1], "一つ。"), keep([2, 3, 4, 5, 6], "二つ。"))
    rebuild_from_turns(world.remembering)
    assert states() == ["kept"] + ["pending"] * 5
    assert world.session().look_due
    assert world.session().looked_to == turns[-1].id


@pytest.mark.parametrize("origin", ["edited", "merged", "imported"])
def test_what_a_person_decided_stays_as_they_left_it(world: World, model: ScriptedModel, origin: str) -> None:
    closed(world, "PCを買った", "猫がいる")
    model.script = lambda _: segments(keep([1], "PCを買った。"), keep([2], "猫がいる。"))
    world.settle()
    made = Memory.get(Memory.summary == "猫がいる。")
    person = world.memory("人が直した。", session="b")
    Memory.update(origin=origin, window=None).where(Memory.id == person.id).execute()
    Memory.update(status="superseded", superseded_by=person.id).where(Memory.id == made.id).execute()
    world.settle()
    before = again(person).summary, sources_of(person)
    model.script = lambda request: (
        segments(keep([1], "PCを買った。"), keep([2], "猫がいる。")) if len(request["messages"]) > 1 else content("")
    )
    Window.delete().where(Window.session == world.session("b")).execute()
    rebuild_from_turns(world.remembering)
    assert (again(person).summary, sources_of(person)) == before
    assert again(person).status == "active"
    assert (again(made).status, again(made).superseded_by) == ("superseded", person.id)


def test_a_link_whose_memory_was_not_made_again_is_dropped(world: World, model: ScriptedModel) -> None:
    closed(world, "PCを買った")
    model.script = lambda _: segments(keep([1], "PCを買った。"))
    world.settle()
    person = world.memory("人が直した。", session="b")
    Memory.update(origin="edited", window=None).where(Memory.id == person.id).execute()
    Window.delete().where(Window.session == world.session("b")).execute()
    Memory.update(status="superseded", superseded_by=person.id).where(Memory.origin == "made").execute()
    model.script = lambda _: segments(skip(1))
    rebuild_from_turns(world.remembering)
    assert summaries() == ["人が直した。"]
    assert summaries(status="superseded") == []


def test_a_forgotten_memory_is_not_made_again_and_its_neighbour_is(world: World, model: ScriptedModel) -> None:
    closed(world, "秘密の話と猫の話")
    model.script = lambda _: segments(keep([1], "秘密の話。"), keep([1], "猫の話。"))
    world.settle()
    Memory.update(status="forgotten").where(Memory.summary == "秘密の話。").execute()
    rebuild_from_turns(world.remembering)
    assert summaries() == ["猫の話。"]
    assert summaries(status="forgotten") == ["秘密の話。"]


def test_an_edited_memory_is_not_joined_by_its_old_text(world: World, model: ScriptedModel) -> None:
    (turn,) = closed(world, "PCは12万円")
    model.script = kept_whole
    world.settle()
    made = Memory.get()
    columns = {"id": "mem_" + "0" * 26, "summary": "PCは13万円。", "origin": "edited", "revision": 1}
    edited = Memory.create(**{**made.__data__, **columns})
    MemorySource.create(memory=edited, turn=turn)
    Memory.update(status="superseded", superseded_by=edited.id).where(Memory.id == made.id).execute()
    rebuild_from_turns(world.remembering)
    assert summaries() == ["PCは13万円。"]
    assert again(made).superseded_by == edited.id


@pytest.mark.parametrize(("answer", "problem"), [(error(503, "down"), TransientError), (content("はい"), BadAnswer)])
def test_a_failure_in_the_middle_changes_nothing(
    world: World, model: ScriptedModel, answer: Answer, problem: type[Exception]
) -> None:
    closed(world, "一", name="a")
    closed(world, "二", name="b")
    model.script = kept_whole
    world.settle()
    before = everything()
    model.script = lambda request: answer if "二" in request["messages"][1]["content"] else segments(keep([1], "別。"))
    with pytest.raises(problem):
        rebuild_from_turns(world.remembering)
    assert everything() == before


def test_failed_turns_are_left_out_and_progress_is_told(world: World, model: ScriptedModel) -> None:
    turns = closed(world, "一", name="a") + closed(world, "二", name="b")
    model.script = kept_whole
    world.settle()
    Turn.update(state="failed").where(Turn.id == turns[0].id).execute()
    model.asked.clear()
    steps: list[tuple[int, int]] = []
    assert rebuild_from_turns(world.remembering, lambda done, total: steps.append((done, total))) == 2
    assert steps == [(1, 2), (2, 2)]
    assert len(model.asked) == 1
    assert states() == ["failed", "kept"]


def test_what_is_remembered_during_a_rebuild_is_not_lost(world: World, model: ScriptedModel, database: Any) -> None:
    closed(world, "一", name="a")
    model.script = kept_whole
    world.settle()
    late = closed(world, "あとから", name="b")

    def script(request: Any) -> Answer:
        if len(model.asked) == 1:
            with database.connection_context():
                world.remembering.remember(late[0].session_id)
        return kept_whole(request)

    model.asked.clear()
    model.script = script
    rebuild_from_turns(world.remembering)
    assert sorted(summaries()) == ["あとから。", "一。"]
    assert states() == ["kept", "kept"]
    for memory in Memory.select():
        assert sources_of(memory)


def test_an_owner_without_windows_keeps_nothing_to_do(world: World) -> None:
    world.turn("まだ")
    assert rebuild_from_turns(world.remembering) == 0
    assert states() == ["pending"]
