"""Two processes over one database and one Qdrant server (a stand-in on the wire): nothing is lost between them."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.server_index import ServerStore
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.clock import SystemClock
from stackmem.drift import differs, drift_of
from stackmem.exceptions import TransientError
from stackmem.index_handle import IndexHandle
from stackmem.indexing import index_owner
from stackmem.models import Job, Lease, Memory
from stackmem.ports import IndexFilter
from stackmem.reindexing import reindex
from stackmem.work import Work
from tests.qdrant_standin import QdrantStandin
from tests.unit.world import World, again

CAT, PC, DOG = "ユーザーの猫の名前はモモだ。", "ユーザーは富士通のPCを買った。", "ユーザーの犬の名前はポチだ。"


@pytest.fixture
def standin() -> Iterator[QdrantStandin]:
    with QdrantStandin() as standin:
        yield standin


@pytest.fixture
def world(database: Any, embedder: UseEmbedder, standin: QdrantStandin) -> Iterator[World]:
    """A store with one indexed memory."""
    store = ServerStore(standin.url)
    world = World(embedder, OfflineChat(), store=store)
    world.memory(CAT)
    world.indexed()
    yield world
    store.close()


@pytest.fixture
def other(world: World, embedder: UseEmbedder, standin: QdrantStandin) -> Iterator[IndexHandle]:
    """The index as another process has it."""
    handle = IndexHandle(ServerStore(standin.url), embedder)
    yield handle
    handle.close()


def points(handle: IndexHandle) -> set[str]:
    assert handle.current is not None
    return {memory_id for memory_id, _ in handle.current.scan()}


def test_a_memory_indexed_by_one_process_is_found_by_the_other(
    world: World, other: IndexHandle, embedder: UseEmbedder
) -> None:
    memory = world.memory(PC)
    assert index_owner(other, "home") == 1
    assert not again(memory).outdated
    assert world.index.current is not None
    hits = world.index.current.search(embedder.embed_queries(["パソコン"])[0], IndexFilter("home"), 5)
    assert memory.id in {hit.memory_id for hit in hits}


def test_what_another_process_indexed_during_a_rebuild_is_in_the_new_generation(
    world: World, other: IndexHandle
) -> None:
    late: list[Memory] = []

    def meanwhile(done: int, total: int) -> None:
        if not late:  # the rows were read, the swap is to come
            late.append(world.memory(PC))
            assert index_owner(other, "home") == 1
            assert not again(late[0]).outdated

    reindex(world.index, meanwhile)
    assert again(late[0]).outdated  # taken back: it had gone into the old generation
    index_owner(other, "home")
    assert points(world.index) == points(other) == {row.id for row in Memory.select()}
    assert not differs(drift_of(other).counts())


def test_one_process_rebuilds_at_a_time(world: World, other: IndexHandle) -> None:
    def meanwhile(done: int, total: int) -> None:
        with pytest.raises(TransientError, match="Another process is rebuilding"):
            reindex(other)

    assert reindex(world.index, meanwhile) == 1
    assert reindex(other) == 1
    assert Lease.select().count() == 0


def test_an_owners_memories_are_indexed_by_one_process_at_a_time(world: World, other: IndexHandle) -> None:
    world.memory(PC)
    until = SystemClock().now() + timedelta(seconds=60)
    Lease.create(name="index:home", holder="another", until=until)
    assert index_owner(other, "home") == 0
    Lease.delete().execute()
    assert index_owner(other, "home") == 1


def test_an_index_that_another_process_begins_is_found_without_a_restart(
    database: Any, embedder: UseEmbedder, standin: QdrantStandin
) -> None:
    first, second = (IndexHandle(ServerStore(standin.url), embedder) for _ in range(2))
    assert second.current is None
    reindex(first)
    assert second.current is not None
    for handle in (first, second):
        handle.close()
        assert handle.current is None


def test_an_index_deleted_on_the_server_is_built_again(world: World, standin: QdrantStandin) -> None:
    before = points(world.index)
    for collection in standin.client.get_collections().collections:
        standin.client.delete_collection(collection.name)
    with pytest.raises(TransientError, match="is being rebuilt"):
        points(world.index)
    world.work.index_memories("home")
    assert points(world.index) == before
    for collection in standin.client.get_collections().collections:
        standin.client.delete_collection(collection.name)
    world.work.check_index()
    assert Job.get(Job.kind == "check").state == "done"
    assert points(world.index) == before


def test_a_start_beside_one_that_begins_the_index_goes_on(
    database: Any, embedder: UseEmbedder, standin: QdrantStandin, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    Memory.delete().execute()
    handle = IndexHandle(ServerStore(standin.url, name="empty"), embedder)
    until = SystemClock().now() + timedelta(seconds=60)
    Lease.create(name="reindex", holder="another", until=until)
    Work(world.remembering, world.comparing, handle, world.persona, world.clock, world.queue, 10.0).start()
    assert "Another process is rebuilding the index." in caplog.text
    handle.close()
