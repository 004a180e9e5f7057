"""Which turns the judge gets to see, and that it sees what there was when they were answered."""

from datetime import timedelta
from typing import Any

import pytest

from evals.judge.turn import MEMORIES, Case
from evals.live_turns import case_of, due_turns, last_turns
from evals.nearest import existing, nearest
from stackmem.editing import edit
from stackmem.forgetting import forget
from stackmem.models import Memory, Turn
from stackmem.rebuilding import rebuild_from_turns
from stackmem.score_models import Label
from tests.scripted import call, say
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, World, ingest, summaries


def live(world: World, user: str = "富士通のPCはいくらだった？", **more: Any) -> Turn:
    return world.turn(user, **{"model": "qwen", **more})


def case(world: World, turn: Turn) -> Case:
    return case_of(turn, world.embedder, ZONE)


def shown(world: World, turn: Turn) -> list[str]:
    return [memory.summary for memory in case(world, turn).memories]


# --- which -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [
        {"imported": True},
        {"degraded": True},
        {"model": "offline"},
        {"model": None},
        {"settled": True},
        {"state": "open"},
        {"user": ""},
        {"reply": ""},
    ],
)
def test_turns_that_no_model_answered_or_that_a_person_took_away_are_never_judged(
    world: World, columns: dict[str, Any]
) -> None:
    judged = live(world)
    Turn.update(columns).where(Turn.id == live(world).id).execute()
    assert due_turns(world.clock.now(), 9) == [judged.id]
    assert last_turns("home", 9) == [judged.id]


@pytest.mark.parametrize("state", ["pending", "kept", "skipped", "failed"])
def test_every_answered_turn_of_everybody_is_judged_whatever_became_of_it(world: World, state: str) -> None:
    ours, theirs = live(world, state=state), live(world, owner="mari", session="m", state=state)
    assert due_turns(world.clock.now(), 9) == [ours.id, theirs.id]
    assert due_turns(world.clock.now(), 1) == [ours.id]
    assert last_turns("mari", 9) == [theirs.id]


def test_what_has_its_label_is_not_due_and_what_was_answered_badly_is_due_later(world: World) -> None:
    later = world.clock.now() + timedelta(seconds=5)
    rows = {live(world): ("judged", None), live(world): ("unjudgeable", None), live(world): ("waiting", later)}
    for turn, (state, retry_at) in rows.items():
        Label.create(
            turn=turn, owner="home", state=state, retry_at=retry_at, judge="j", prompt_version="v",
            created_at=world.clock.now(),
        )  # fmt: skip
    assert due_turns(world.clock.now(), 9) == []
    world.clock.advance(seconds=5)
    assert due_turns(world.clock.now(), 9) == [3]
    assert last_turns("home", 2) == [2, 3]


# --- the memories that existed then ----------------------------------------------------------------------------------


def test_the_judge_sees_the_nearest_memories_that_existed_then(world: World) -> None:
    for text in ("富士通のPCを13万円で買った。", "猫の名前はモモ。", "来月は京都旅行。"):
        world.memory(text)
    world.memory("真理のPCは富士通。", owner="mari", session="m")
    world.indexed()
    world.indexed("mari")
    world.clock.advance(minutes=1)
    turn = live(world)
    world.clock.advance(minutes=1)
    world.memory("富士通のPCは14万円に値上がりした。")
    world.indexed()
    assert shown(world, turn)[0] == "富士通のPCを13万円で買った。"
    assert set(shown(world, turn)) == {"富士通のPCを13万円で買った。", "猫の名前はモモ。", "来月は京都旅行。"}
    assert case(world, turn).memories[0].at == "2026-07-23"


def test_twenty_memories_are_shown_and_what_was_returned_is_always_among_them(world: World) -> None:
    for number in range(MEMORIES + 5):
        world.memory(f"富士通のPCの{number}台目を買った。")
    far = world.memory("猫の名前はモモ。")
    world.indexed()
    assert len(shown(world, live(world))) == MEMORIES
    turn = live(world, memory_ids=[far.id], searched=True)
    assert len(shown(world, turn)) == MEMORIES
    assert shown(world, turn)[-1] == "猫の名前はモモ。"
    assert case(world, turn).returned == {far.id}


def test_without_memories_nothing_is_embedded(world: World) -> None:
    class Never:
        pass

    assert nearest("home", "何か", world.clock.now(), Never(), 20) == []  # type: ignore[arg-type]


def test_what_was_replaced_later_was_there_then_and_what_had_been_replaced_was_not(world: World) -> None:
    oldest, old = world.memory("PCは11万円。"), world.memory("PCは12万円。")
    turn_before = live(world)
    world.clock.advance(minutes=1)
    new = world.memory("PCは13万円。")
    for before, after in ((oldest, old), (old, new)):
        Memory.update(status="superseded", superseded_by=after.id).where(Memory.id == before.id).execute()
    world.indexed()
    assert shown(world, turn_before) == ["PCは12万円。"]
    assert shown(world, live(world)) == ["PCは13万円。"]


def test_a_correction_by_hand_was_not_there_before_it_was_made(world: World) -> None:
    old = world.memory("PCは12万円。")
    world.clock.advance(minutes=1)
    before = live(world)
    world.clock.advance(minutes=1)
    edit("home", old.id, {"summary": "PCは13万円。"}, world.clock.now(), ZONE)
    world.indexed()
    assert shown(world, before) == ["PCは12万円。"]
    assert shown(world, live(world)) == ["PCは13万円。"]


def test_a_rebuild_from_the_turns_does_not_change_what_existed_then(offline: World) -> None:
    ingest(offline)
    turn = live(offline)
    before = set(shown(offline, turn))
    assert before == set(summaries())
    offline.clock.advance(days=30)
    rebuild_from_turns(offline.remembering)
    offline.settle()
    assert set(shown(offline, turn)) == before


def test_what_was_forgotten_since_is_shown_to_no_judge(world: World) -> None:
    gone = world.memory("合言葉は紫キャベツ。")
    world.memory("猫の名前はモモ。")
    world.indexed()
    turn = live(world, memory_ids=[gone.id], searched=True)
    forget("home", [gone.id], world.clock.now())
    assert shown(world, turn) == ["猫の名前はモモ。"]
    assert case(world, turn).returned == frozenset()
    assert gone.id not in existing("home", world.clock.now())


def test_words_that_were_no_memory_yet_count_as_returned(world: World, model: ScriptedModel) -> None:
    waiting = world.turn("富士通のPCを13万円で買ったよ", session="other")
    model.script = [call("search_memory", {"query": "富士通のPC"}), say("13万円だったね")]
    turn = world.say("富士通のPCはいくらだった？")
    seen = case(world, turn)
    assert seen.searched
    assert seen.returned == {f"turn_{waiting.id}"}
    assert [(memory.id, memory.summary) for memory in seen.memories] == [
        (f"turn_{waiting.id}", "富士通のPCを13万円で買ったよ\nそうなんだ")
    ]


# --- the session before it -------------------------------------------------------------------------------------------


def test_the_judge_sees_what_was_said_before_in_the_same_session(world: World) -> None:
    world.turn("別の話", session="other")
    for text in ("ただいま", "お昼はカレーだった"):
        live(world, text)
    turn = live(world, "さっき何食べたって言った？")
    live(world, "あとの話")
    assert case(world, turn).context == [("ただいま", "そうなんだ"), ("お昼はカレーだった", "そうなんだ")]


def test_of_a_long_session_the_newest_turns_are_shown(world: World) -> None:
    for number in range(30):
        live(world, f"{number}" + "長い話" * 60)
    context = case(world, live(world)).context
    assert 0 < len(context) < 30
    assert context[-1][0].startswith("29")
