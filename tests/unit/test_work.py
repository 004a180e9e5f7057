"""The background's use cases: whatever hint comes, or is lost, all ends in the same state."""

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stackmem import jobs, work
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.exceptions import TransientError
from stackmem.index_handle import IndexHandle
from stackmem.models import Job, Lease, Memory, Owner, PointDeletion, Session, Turn, Window, proxy
from stackmem.ports import Hint
from stackmem.reindexing import reindex
from stackmem.work import Work, is_compared, is_indexed
from tests.fakes import MemoryIndexStore
from tests.scripted import error
from tests.unit.conftest import ScriptedModel
from tests.unit.world import (
    World,
    again,
    decisions,
    everything,
    keep,
    points_and_vectors,
    segments,
    skip,
    states,
    summaries,
)

PC, CHEAP = "昨日富士通のPCを12万円で買ったよ", "ごめん、富士通のPCは12万円じゃなくて13万円だった"


def waiting(world: World) -> list[Hint]:
    now = world.clock.now()
    return list(world.work.waiting(now, now - work.STALE))


def ended(world: World, *texts: str, name: str = "s", owner: str = "home") -> Session:
    for text in texts:
        world.turn(text, session=name, owner=owner)
    row = world.session(name, owner)
    Session.update(ended_at=world.clock.now()).where(Session.id == row.id).execute()
    return again(row)  # type: ignore[no-any-return]


# --- what waits ------------------------------------------------------------------------------------------------------


def test_nothing_waits_in_an_empty_store(world: World) -> None:
    assert waiting(world) == []
    assert world.work.sweep() == 0
    assert is_indexed()
    assert is_compared()


def test_work_goes_from_turns_to_memories_to_the_index_to_comparison(world: World, model: ScriptedModel) -> None:
    world.memory("PCは12万円だった。", entities=["PC"])
    world.indexed()
    session = ended(world, "PCは13万円だったよ")
    model.script = [segments(keep([1], "PCは13万円だった。", entities=["PC"])), decisions(("N1", "supersedes", "K1"))]
    assert waiting(world) == [Hint("remember", session.id)]
    world.work.run(Hint("remember", session.id))
    assert world.queue.taken() == waiting(world) == [Hint("index", "home")]
    assert not is_indexed()
    world.work.run(Hint("index", "home"))
    assert world.queue.taken() == waiting(world) == [Hint("compare", "home")]
    assert not is_compared()
    world.work.run(Hint("compare", "home"))
    assert world.queue.taken() == waiting(world) == [Hint("index", "home")]
    world.work.run(Hint("index", "home"))
    assert world.queue.taken() == waiting(world) == []
    assert summaries() == ["PCは13万円だった。"]
    assert sorted(world.points().values()) == ["active", "superseded"]


def test_a_hint_is_lost_after_sixty_seconds_and_not_before(world: World) -> None:
    session = ended(world, "話")
    PointDeletion.create(memory_id="mem_" + "0" * 26, owner="home")
    first = waiting(world)
    assert first == [Hint("remember", session.id), Hint("index", "home")]
    world.clock.advance(seconds=59)
    assert waiting(world) == []
    world.clock.advance(seconds=1)
    assert waiting(world) == first


def test_a_comparison_waits_for_the_index_and_for_its_delay(world: World) -> None:
    memory = world.memory("猫がいる。", compared=False)
    assert waiting(world) == [Hint("index", "home")]
    world.indexed()
    Owner.update(retry_at=world.clock.now()).execute()
    world.clock.advance(seconds=-1)
    assert waiting(world) == []
    world.clock.advance(seconds=1)
    assert waiting(world) == [Hint("compare", "home")]
    assert not again(memory).outdated


def test_jobs_wait_until_they_are_done(world: World) -> None:
    now = world.clock.now()
    jobs = [
        Job.create(kind="reindex", created_at=now, state=state) for state in ("waiting", "running", "done", "failed")
    ]
    assert waiting(world) == [Hint("reindex", jobs[0].id), Hint("reindex", jobs[1].id)]
    assert waiting(world) == []


# --- the sweep and the start -----------------------------------------------------------------------------------------


@pytest.mark.only_sqlite
def test_somebody_else_may_write_between_two_jobs(world: World) -> None:
    for _ in range(3):
        Job.create(kind="reindex", created_at=world.clock.now())
    found = []
    with sqlite3.connect(proxy.obj.database, timeout=0, isolation_level=None) as other:
        for hint in world.work.waiting(world.clock.now(), world.clock.now()):
            other.execute("UPDATE job SET message = 'seen'")
            found.append(hint.id)
    assert len(found) == 3


def test_the_sweep_answers_for_dead_requests_and_ends_idle_sessions(world: World) -> None:
    dead = world.turn("返事がない", "", state="open")
    world.clock.advance(minutes=10, seconds=1)
    assert world.work.sweep() == 1
    assert again(dead).state == "pending"
    assert world.session().ended_at == world.clock.now()
    assert world.queue.taken() == [Hint("remember", dead.session_id)]


def test_two_minutes_of_silence_are_found_by_the_sweep(world: World) -> None:
    world.turn("話")
    assert world.work.sweep() == 0
    world.clock.advance(minutes=2)
    assert world.work.sweep() == 1


def test_a_restart_makes_a_look_due_and_ends_nothing(world: World) -> None:
    turn = world.turn("話")
    world.work.start()
    assert world.queue.taken() == [Hint("remember", turn.session_id)]
    assert (world.session().look_due, world.session().ended_at) == (True, None)


def test_a_restart_repeats_no_look_that_left_only_the_open_topic(world: World) -> None:
    turn = world.turn("話")
    Session.update(looked_to=turn.id).execute()
    world.work.start()
    assert world.queue.taken() == []
    assert not world.session().look_due


def test_a_restart_forgets_what_was_enqueued_before(world: World) -> None:
    now = world.clock.now()
    session = ended(world, "話")
    world.memory("猫がいる。", compared=False)
    job = Job.create(kind="reindex", created_at=now, state="running", enqueued_at=now)
    Session.update(enqueued_at=now).execute()
    Owner.update(index_enqueued_at=now, compare_enqueued_at=now).execute()
    world.work.start()
    assert world.queue.taken() == [Hint("remember", session.id), Hint("index", "home"), Hint("reindex", job.id)]


def with_index(world: World, embedder: UseEmbedder, store: MemoryIndexStore | None) -> Work:
    """The background over an index that could not be opened; None: in a process that does not own it."""
    handle = IndexHandle(store, embedder)
    world.index = handle
    return Work(world.remembering, world.comparing, handle, world.persona, world.clock, world.queue, 10.0)


def test_a_first_start_makes_an_empty_index(world: World, embedder: UseEmbedder) -> None:
    with_index(world, embedder, MemoryIndexStore()).start()
    assert world.points() == {}
    assert world.queue.taken() == []


def test_an_index_that_cannot_be_opened_is_rebuilt_in_the_background(world: World, embedder: UseEmbedder) -> None:
    memory, mari = world.memory("猫がいる。"), world.memory("犬がいる。", owner="mari")
    for owner in ("home", "mari"):
        world.indexed(owner)
    lost = with_index(world, embedder, MemoryIndexStore())
    lost.start()
    assert world.index.current is None
    (hint,) = world.queue.taken()
    lost.run(hint)
    assert set(world.points()) == {memory.id, mari.id}


def test_a_process_without_the_index_leaves_it_alone(world: World, embedder: UseEmbedder) -> None:
    memory = world.memory("猫がいる。")
    job = Job.create(kind="reindex", created_at=world.clock.now())
    other = with_index(world, embedder, None)
    other.start()
    other.run(Hint("index", "home"))
    other.run(Hint("reindex", job.id))
    assert again(memory).outdated
    assert again(job).state == "waiting"


def test_memories_whose_owner_row_is_missing_stop_no_start(world: World, embedder: UseEmbedder) -> None:
    world.memory("猫がいる。")
    Owner.delete().execute()
    with_index(world, embedder, MemoryIndexStore()).start()
    assert world.queue.taken() == []


# --- jobs ------------------------------------------------------------------------------------------------------------


def reindex_job(world: World, **arguments: Any) -> Job:
    return Job.create(kind="reindex", created_at=world.clock.now(), arguments=arguments)  # type: ignore[no-any-return]


def test_a_reindex_job_keeps_its_progress_and_ends_done(world: World) -> None:
    for number in range(3):
        world.memory(f"話{number}。")
    job = reindex_job(world)
    world.work.run(Hint("reindex", job.id))
    job = again(job)
    assert (job.state, job.done, job.total, job.message) == ("done", 3, 3, "")
    assert job.finished_at == world.clock.now()
    assert len(world.points()) == 3
    assert is_indexed()


def test_a_rebuild_that_was_begun_is_taken_up_and_no_other(world: World) -> None:
    now = world.clock.now()
    done = Job.create(kind="reindex", created_at=now, state="done", arguments={"from": "turns"})
    scrub = Job.create(kind="scrub", created_at=now)
    begun = Job.create(kind="reindex", created_at=now, state="running", arguments={"from": None})
    assert jobs.reindex_job("memories", now).id == begun.id
    fresh = jobs.reindex_job("turns", now)
    assert fresh.id not in (done.id, scrub.id, begun.id)
    assert jobs.reindex_job("turns", now).id == fresh.id


def test_progress_is_noted_at_once_then_now_and_then(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "EVERY_S", 3600)
    job = reindex_job(world)
    note = jobs.progress_of(job.id)
    note(1, 9)
    assert (again(job).done, again(job).total) == (1, 9)
    note(2, 9)
    assert again(job).done == 1
    monkeypatch.setattr(jobs, "EVERY_S", 0)
    note(3, 9)
    assert again(job).done == 3


def test_a_job_that_is_done_is_not_done_again(world: World) -> None:
    job = reindex_job(world)
    world.work.run(Hint("reindex", job.id))
    world.clock.advance(seconds=5)
    world.work.run(Hint("reindex", job.id))
    assert again(job).finished_at < world.clock.now()
    world.work.run(Hint("reindex", 10**6))


def test_a_job_that_another_worker_holds_is_left_to_it(world: World) -> None:
    job = reindex_job(world)
    Lease.create(name=f"job:{job.id}", holder="other", until=world.clock.advance(seconds=60))
    world.work.run(Hint("reindex", job.id))
    assert again(job).state == "waiting"


def test_a_job_from_the_turns_makes_the_memories_again(world: World, model: ScriptedModel) -> None:
    ended(world, "PCを買った")
    model.script = lambda _: segments(keep([1], "PCを買った。"))
    world.settle()
    model.script = lambda _: segments(keep([1], "ユーザーはPCを買った。"))
    job = reindex_job(world, **{"from": "turns"})
    world.work.run(Hint("reindex", job.id))
    assert (again(job).state, summaries()) == ("done", ["ユーザーはPCを買った。"])
    assert list(world.points()) == [Memory.get().id]


def test_a_model_that_is_down_leaves_the_job_waiting(world: World, model: ScriptedModel) -> None:
    ended(world, "PCを買った")
    model.script = lambda _: segments(keep([1], "PCを買った。"))
    world.settle()
    model.script = lambda _: error(503, "down")
    job = reindex_job(world, **{"from": "turns"})
    with pytest.raises(TransientError):
        world.work.run(Hint("reindex", job.id))
    assert (again(job).state, again(job).enqueued_at) == ("waiting", world.clock.now())
    assert Lease.select().count() == 0


def test_a_job_that_cannot_be_done_says_why(world: World, model: ScriptedModel) -> None:
    ended(world, "PCを買った")
    model.script = lambda _: segments(keep([1], "PCを買った。"))
    world.settle()
    model.script = lambda _: error(401, "no such key")
    job = reindex_job(world, **{"from": "turns"})
    world.work.run(Hint("reindex", job.id))
    assert again(job).state == "failed"
    assert again(job).message
    assert summaries() == ["PCを買った。"]


# --- a command without a server --------------------------------------------------------------------------------------


def test_drain_does_all_that_waits(offline: World) -> None:
    ended(offline, PC, name="a")
    ended(offline, CHEAP, name="b")
    offline.work.drain(
        lambda: not (Turn.select().where(Turn.state == "pending").exists()) and is_indexed() and is_compared()
    )
    assert set(states()) <= {"kept", "skipped"}
    assert len(offline.points()) == Memory.select().count() > 0


def test_drain_waits_for_what_is_not_due_yet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps: list[float] = []
    monkeypatch.setattr("stackmem.work.time.sleep", sleeps.append)
    looks = iter([False, False, True])
    world.work.drain(lambda: next(looks))
    assert sleeps == [work.POLL] * 2


def test_drain_stops_as_soon_as_it_may(offline: World) -> None:
    for name in ("a", "b"):
        ended(offline, PC, name=name)
    offline.work.drain(lambda: Window.select().exists())
    assert Window.select().count() == 1
    offline.work.drain(lambda: True)
    assert Window.select().count() == 1


# --- any order, any duplicate ----------------------------------------------------------------------------------------

TALKS = {
    ("home", "a"): [PC, "いい買い物だったと思う", "うちの猫の名前はモモだよ"],
    ("home", "b"): [CHEAP, "うん", "好きな食べ物は寿司だよ"],
    ("mari", "c"): [PC, "好きな食べ物はカレーだよ"],
}
HINTS = [*[Hint("remember", number) for number in (1, 2, 3)]]
HINTS += [Hint(task, owner) for task in ("index", "compare") for owner in ("home", "mari")]  # type: ignore[arg-type]
DELIVERIES = st.lists(st.sampled_from([*HINTS, "sweep", "start"]), max_size=25)


def outcome(world: World) -> tuple[Any, ...]:
    """What was made of the talk, whatever the numbers of rows made on the way."""
    memories = sorted((m.id, m.owner, m.summary, m.status, m.superseded_by, m.said_at) for m in Memory.select())
    return memories, states(), world.points(), everything()[1]


@pytest.fixture
def delivered(new_database: Callable[[], Any], embedder: UseEmbedder) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Tell the talks to a new store, deliver these hints, let it settle; return the outcome."""

    def deliver(deliveries: list[Any]) -> tuple[Any, ...]:
        database = new_database()
        with database.connection_context():
            world = World(embedder, OfflineChat())
            for (owner, name), texts in TALKS.items():
                ended(world, *texts, name=name, owner=owner)
                world.clock.advance(minutes=1)
            for hint in deliveries:
                if isinstance(hint, str):
                    getattr(world.work, hint)()
                else:
                    world.work.run(hint)
            world.settle()
            assert world.work.sweep() == 0
            ingested = points_and_vectors(world)
            reindex(world.index)
            assert points_and_vectors(world) == ingested
            return outcome(world)

    return deliver


ORDERLY = [*HINTS, *HINTS[3:]]


@pytest.fixture
def orderly(delivered: Callable[[list[Any]], tuple[Any, ...]]) -> tuple[Any, ...]:
    """The outcome where every hint comes once, in order."""
    return delivered(ORDERLY)


@given(DELIVERIES)
@example(HINTS[::-1] * 2)
@example(
    [Hint("remember", 2), Hint("remember", 3), Hint("index", "home"), Hint("compare", "home"), Hint("remember", 1)]
)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_order_and_duplication_of_hints_gives_one_memory_and_one_point(
    delivered: Callable[[list[Any]], tuple[Any, ...]], orderly: tuple[Any, ...], deliveries: list[Any]
) -> None:
    memories, turns, points, sources = delivered(deliveries)
    assert len(memories) >= 4
    assert set(turns) <= {"kept", "skipped"}
    assert {row[0]: row[3] for row in memories} == points
    assert (memories, turns, points, sources) == orderly


def test_deliveries_in_order_once_or_thrice_give_the_same(delivered: Callable[[list[Any]], tuple[Any, ...]]) -> None:
    once = delivered([])
    assert delivered(ORDERLY) == once
    assert delivered([hint for hint in ORDERLY for _ in range(3)]) == once
    assert delivered(ORDERLY * 2) == once
    assert any(row[3] == "superseded" for row in once[0]), json.dumps(once[0], default=str, ensure_ascii=False)


def test_a_skipped_session_leaves_nothing_waiting(world: World, model: ScriptedModel) -> None:
    ended(world, "おはよう")
    model.script = [segments(skip(1))]
    world.settle()
    assert waiting(world) == []
    assert states() == ["skipped"]
