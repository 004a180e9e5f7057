"""Where database and index differ, and that mending makes them agree."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.drift import differs, drift_of, mend, sentence
from stackmem.exceptions import TransientError
from stackmem.forgetting import forget
from stackmem.index_handle import IndexHandle
from stackmem.making import changed
from stackmem.models import Job, Lease, Memory, MemoryVector, PointDeletion
from stackmem.ports import Hint
from tests.fakes import MemoryIndexStore
from tests.unit.world import World, again, points_and_vectors

CAT, PC, DOG = "ユーザーの猫の名前はモモだ。", "ユーザーは富士通のPCを買った。", "ユーザーの犬の名前はポチだ。"


@pytest.fixture(params=["memory", "edge"])
def world(request: pytest.FixtureRequest, database: Any, embedder: UseEmbedder, tmp_path: Path) -> Iterator[World]:
    """Four indexed memories, one of another owner."""
    store = EdgeStore(tmp_path / "index", lock_wait_s=0) if request.param == "edge" else MemoryIndexStore()
    world = World(embedder, OfflineChat(), store=store)
    for summary in (CAT, PC, DOG):
        world.memory(summary)
    world.memory(CAT, owner="mari")
    world.indexed()
    world.indexed("mari")
    yield world
    store.close()


def change(memory: Memory, **columns: Any) -> None:
    Memory.update(**columns).where(Memory.id == memory.id).execute()


def damage(world: World) -> dict[str, str]:
    """Make one difference of each kind; return the memories' ids."""
    missing, extra, stale, wrong = Memory.select().order_by(Memory.id)
    assert world.index.current is not None
    world.index.current.delete([missing.id])
    MemoryVector.delete().where(MemoryVector.memory == extra.id).execute()
    Memory.delete().where(Memory.id == extra.id).execute()
    change(stale, version=stale.version + 1)
    change(wrong, status="superseded")
    return {"missing": missing.id, "extra": extra.id, "stale": stale.id, "wrong": wrong.id}


def payloads(world: World) -> dict[str, Any]:
    assert world.index.current is not None
    return dict(world.index.current.scan())


def test_an_index_as_it_should_be_has_no_drift(world: World) -> None:
    found = drift_of(world.index)
    assert not differs(found.counts())
    assert found.counts() == {"missing": 0, "extra": 0, "stale": 0, "wrong": 0, "points": 4}
    assert sentence(found.counts(), mended=False) == "Database and index agree: 4 points."


def test_every_kind_of_difference_is_found_and_mended(world: World) -> None:
    ids, steps = damage(world), list[tuple[int, int]]()
    found = drift_of(world.index, lambda done, total: steps.append((done, total)))
    assert {name: getattr(found, name) for name in ids} == {name: [memory_id] for name, memory_id in ids.items()}
    assert (found.points, steps) == (3, [(3, 3)])
    assert "1 missing, 1 extra, 1 stale, 1 wrong; mend it" in sentence(found.counts(), mended=False)
    assert sentence(found.counts(), mended=True).endswith("mended.")
    owners = mend(world.index, found)
    assert set(owners) <= {"home", "mari"}
    for owner in owners:
        world.indexed(owner)
    assert not differs(drift_of(world.index).counts())
    assert {memory_id: payload["status"] for memory_id, payload in payloads(world).items()} == {
        row.id: row.status for row in Memory.select()
    }


def test_what_waits_to_be_indexed_or_removed_is_no_drift(world: World) -> None:
    new = world.memory("新しい話")
    old, gone, *_ = Memory.select().where(Memory.owner == "home").order_by(Memory.id)
    change(old, **changed(status="superseded"))
    forget("home", [gone.id], world.clock.now())
    PointDeletion.insert(memory_id=gone.id, owner="home").on_conflict_ignore().execute()
    assert again(new).outdated
    assert not differs(drift_of(world.index).counts())


def test_a_forgotten_memory_that_is_still_in_the_index_is_an_extra_point(world: World) -> None:
    memory = Memory.select().where(Memory.owner == "home").first()
    change(memory, status="forgotten")
    found = drift_of(world.index)
    assert found.extra == [memory.id]
    assert mend(world.index, found) == []
    assert memory.id not in payloads(world)


def test_a_point_whose_memory_is_back_is_not_removed(world: World) -> None:
    memory = Memory.select().first()
    change(memory, status="forgotten")
    found = drift_of(world.index)
    change(memory, status="active")
    mend(world.index, found)
    assert memory.id in payloads(world)


def test_mending_takes_back_the_mark_of_who_wrote_into_another_index(world: World) -> None:
    memory = Memory.select().first()
    change(memory, version=2)
    found = drift_of(world.index)
    change(memory, outdated=True)  # somebody is at it
    mend(world.index, found)
    assert again(memory).version == 3
    assert again(memory).outdated


def test_without_an_index_there_is_nothing_to_compare(embedder: UseEmbedder, database: Any) -> None:
    with pytest.raises(TransientError, match="being rebuilt"):
        drift_of(IndexHandle(None, embedder))


# --- as a job, and at night ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mends", [True, False])
def test_a_check_job_tells_what_it_found_and_mends_where_asked(world: World, mends: bool) -> None:
    damage(world)
    job = Job.create(kind="check", arguments={"mend": mends}, created_at=world.clock.now())
    world.work.run(Hint("reindex", job.id))
    found = again(job).arguments["found"]
    assert (again(job).state, found) == ("done", {"missing": 1, "extra": 1, "stale": 1, "wrong": 1, "points": 3})
    assert differs(drift_of(world.index).counts()) is not mends


def checks() -> int:
    return int(Job.select().where(Job.kind == "check", Job.state == "done").count())


def test_the_index_is_checked_and_mended_once_a_night(world: World, caplog: pytest.LogCaptureFixture) -> None:
    damage(world)
    world.work.check_index()  # never done before
    assert checks() == 1
    assert "The index differs from the database in 3 points: 1 missing" in caplog.text
    assert "mended." in caplog.text
    assert not differs(drift_of(world.index).counts())
    world.clock.advance(hours=16)  # from 10:00 to 2:00 in Tokyo
    world.work.check_index()
    assert checks() == 1
    world.clock.advance(hours=1, minutes=30)
    world.work.check_index()
    assert checks() == 1  # not twenty hours yet
    world.clock.advance(hours=24)
    world.work.check_index()
    world.work.check_index()
    assert checks() == 2


def test_a_machine_that_sleeps_at_night_checks_every_two_days(world: World) -> None:
    world.work.check_index()
    world.clock.advance(hours=47)
    world.work.check_index()
    assert checks() == 1
    world.clock.advance(hours=1)
    world.work.check_index()
    assert checks() == 2


def test_of_two_that_are_told_to_check_one_does(world: World) -> None:
    Lease.create(name="check_index", holder="other", until=world.clock.advance(seconds=60))
    world.work.check_index()
    assert checks() == 0


def test_a_process_without_the_index_checks_nothing(world: World, embedder: UseEmbedder) -> None:
    replace(world.work, index=IndexHandle(None, embedder)).check_index()
    assert Job.select().count() == 0


def test_mended_points_are_the_same_as_before(embedder: UseEmbedder, database: Any) -> None:
    world = World(embedder, OfflineChat())
    world.memory(CAT, "一", "二", "三")
    world.indexed()
    before = points_and_vectors(world)
    assert world.index.current is not None
    world.index.current.delete(list(before))
    mend(world.index, drift_of(world.index))
    world.indexed()
    ((_, (summary, sources, payload)),) = points_and_vectors(world).items()
    ((_, (old_summary, old_sources, old_payload)),) = before.items()
    assert (summary, sources) == (old_summary, old_sources)
    assert payload == old_payload | {"version": old_payload["version"] + 1}
