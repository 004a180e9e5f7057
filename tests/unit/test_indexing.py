"""Embedding, storing, upserting, marking; and the index made again from the rows."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.exceptions import PermanentError, TransientError
from stackmem.index_handle import IndexHandle
from stackmem.indexing import (
    CHARACTERS,
    WINDOWS,
    index_owner,
    payload,
    source_windows,
    summary_text,
)
from stackmem.making import add_sources, changed, supersede
from stackmem.models import Memory, MemoryVector, Owner, PointDeletion, Turn
from stackmem.ports import Fingerprint, IndexPoint, Vector
from stackmem.reindexing import reindex
from stackmem.stored_points import payload_of, rows_after, stored_points
from tests.fakes import MemoryIndexStore
from tests.unit.world import World, again, at, points_and_vectors, sources_of

CAT, PC = "ユーザーの猫の名前はモモだ。", "ユーザーは富士通のPCを13万円で買った。"


class Counting:
    """The real embedder, counting what it is given."""

    floor, tie_margin = 0.18, 0.02

    def __init__(self, real: UseEmbedder, fingerprint: Fingerprint | None = None):
        self.real, self.fingerprint, self.texts = real, fingerprint or real.fingerprint, list[str]()

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        self.texts += texts
        return self.real.embed_documents(texts)

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        return self.real.embed_queries(texts)

    def ready(self) -> bool:
        return True

    def load(self) -> None:
        pass


@pytest.fixture
def counting(embedder: UseEmbedder) -> Counting:
    return Counting(embedder)


@pytest.fixture
def world(database: Any, counting: Counting, clock: Any) -> World:
    return World(counting, OfflineChat(), clock=clock)


BATCH = 4  # instead of 64, in the tests that fill more than one


@pytest.fixture
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackmem.indexing.BATCH", BATCH)
    monkeypatch.setattr("stackmem.reindexing.ROWS", BATCH)


def change(memory: Memory, **columns: Any) -> None:
    Memory.update(**changed(**columns)).where(Memory.id == memory.id).execute()


# --- texts -----------------------------------------------------------------------------------------------------------


def test_the_summary_vector_is_of_topic_and_summary(world: World) -> None:
    memory = world.memory(CAT, topic="猫")
    assert summary_text(memory) == f"猫\n{CAT}"
    memory.summary = "あ" * 5000
    assert len(summary_text(memory)) == CHARACTERS


@pytest.mark.parametrize(("count", "windows"), [(1, 1), (2, 1), (3, 2), (17, 16), (18, 9), (40, 13), (200, 16)])
def test_source_windows_slide_over_two_turns_sixteen_at_most(count: int, windows: int) -> None:
    turns = [Turn(user=f"u{number}", reply=f"r{number}") for number in range(count)]
    texts = source_windows(turns)
    assert len(texts) == windows <= WINDOWS
    assert texts[0].startswith("u0\nr0")
    assert len(texts[0].splitlines()) == min(count, 2) * 2


def test_windows_without_words_are_left_out() -> None:
    assert source_windows([Turn(user="", reply="")]) == []
    assert source_windows([]) == []
    assert source_windows([Turn(user="", reply="やあ")]) == ["やあ"]
    assert len(source_windows([Turn(user="あ" * 5000, reply="")])[0]) == CHARACTERS


def test_the_payload_is_what_the_index_filters_by(world: World) -> None:
    memory = world.memory(
        PC, entities=["富士通"], memory_type="decision", occurred_at="2026-07-01", said=at("02 10:00")
    )
    assert payload(memory) == {
        "owner": "home",
        "status": "active",
        "memory_type": "decision",
        "entity_keys": ["富士通"],
        "occurred_at": "2026-06-30T15:00:00+00:00",
        "occurred_from": "2026-06-30T15:00:00+00:00",
        "occurred_to": "2026-07-01T14:59:59+00:00",
        "said_at": "2026-07-02T01:00:00+00:00",
        "version": 1,
    }


# --- indexing --------------------------------------------------------------------------------------------------------


def test_an_indexed_memory_has_one_point_and_stored_vectors(world: World, counting: Counting) -> None:
    memory = world.memory(CAT, "猫を飼いはじめた", "名前はモモだよ", "三歳なんだ")
    assert world.indexed() == 1
    assert world.points() == {memory.id: "active"}
    rows = list(MemoryVector.select().order_by(MemoryVector.ordinal))
    assert [(row.memory_id, row.fingerprint, row.ordinal) for row in rows] == [
        (memory.id, "use-512", n) for n in range(3)
    ]
    assert counting.texts[1] == "猫を飼いはじめた\nそうなんだ\n名前はモモだよ\nそうなんだ"
    summary, sources, _ = points_and_vectors(world)[memory.id]
    assert summary == bytes(rows[0].vector)
    assert sources == bytes(rows[1].vector) + bytes(rows[2].vector)
    assert not again(memory).outdated


def test_indexing_again_embeds_and_writes_nothing(world: World, counting: Counting) -> None:
    world.memory(CAT)
    world.indexed()
    counting.texts.clear()
    assert world.indexed() == 0
    assert counting.texts == []


def test_a_change_of_status_reuses_the_vectors(world: World, counting: Counting) -> None:
    old, new = world.memory(CAT), world.memory(PC)
    world.indexed()
    counting.texts.clear()
    supersede(old, new.id)
    assert world.indexed() == 1
    assert counting.texts == []
    assert world.points()[old.id] == "superseded"


def test_a_changed_text_is_embedded_again_and_it_alone(world: World, counting: Counting) -> None:
    memory = world.memory(CAT)
    world.indexed()
    before, _, _ = points_and_vectors(world)[memory.id]
    counting.texts.clear()
    change(memory, summary=PC)
    world.indexed()
    assert counting.texts == [f"{CAT[:8]}\n{PC}"]
    assert points_and_vectors(world)[memory.id][0] != before
    assert MemoryVector.select().count() == 2


def test_a_source_that_came_or_went_is_followed(world: World, counting: Counting) -> None:
    memory = world.memory(CAT, "一", "二", "三")
    world.indexed()
    assert MemoryVector.select().count() == 3
    add_sources(memory.id, [world.turn("四")])
    change(memory)
    world.indexed()
    assert MemoryVector.select().count() == 4
    Turn.delete().where(Turn.id.in_(sources_of(memory)[1:])).execute()
    change(memory)
    world.indexed()
    assert MemoryVector.select().count() == 2
    assert len(points_and_vectors(world)[memory.id][1]) == 512 * 4


def test_another_embedder_makes_vectors_of_its_own_beside_the_old(world: World, embedder: UseEmbedder) -> None:
    world.memory(CAT)
    world.indexed()
    other = Counting(embedder, Fingerprint("other", 512, "find"))
    handle = IndexHandle(MemoryIndexStore(), other)
    assert reindex(handle) == 1
    assert len(other.texts) == 2
    assert {row.fingerprint for row in MemoryVector.select()} == {"use-512", str(other.fingerprint)}


@pytest.mark.usefixtures("_small_batches")
def test_many_memories_are_indexed_in_batches_with_progress(world: World) -> None:
    for number in range(BATCH + 3):
        world.memory(f"話{number}")
    steps: list[tuple[int, int]] = []
    index_owner(world.index, "home", lambda done, total: steps.append((done, total)))
    assert steps == [(BATCH, BATCH + 3), (BATCH + 3, BATCH + 3)]
    assert len(world.points()) == BATCH + 3


def test_owners_are_indexed_apart(world: World) -> None:
    world.memory(CAT)
    world.memory(PC, owner="mari")
    assert world.indexed() == 1
    assert len(world.points()) == 1
    assert Memory.select().where(Memory.outdated).count() == 1


def test_an_owner_is_no_longer_enqueued_when_indexed(world: World) -> None:
    world.memory(CAT)
    Owner.update(index_enqueued_at=world.clock.now()).execute()
    world.indexed()
    assert Owner.get_by_id("home").index_enqueued_at is None


def test_a_forgotten_memory_is_not_written(world: World) -> None:
    memory = world.memory(CAT, status="forgotten")
    world.indexed()
    assert world.points() == {}
    assert not again(memory).outdated


def test_points_that_must_leave_leave(world: World) -> None:
    memory, other = world.memory(CAT), world.memory(PC)
    world.indexed()
    PointDeletion.create(memory_id=memory.id, owner="home")
    PointDeletion.create(memory_id="mem_" + "0" * 26, owner="mari")
    world.indexed()
    assert list(world.points()) == [other.id]
    assert [row.owner for row in PointDeletion.select()] == ["mari"]


def test_a_point_that_left_and_came_back_is_there(world: World) -> None:
    memory = world.memory(CAT)
    world.indexed()
    PointDeletion.create(memory_id=memory.id, owner="home")
    change(memory)
    world.indexed()
    assert list(world.points()) == [memory.id]


class Watched:
    """An index that does something when it is written to."""

    def __init__(self, real: Any, during: Callable[[], None]):
        self.real, self.during = real, during

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        self.during()
        self.real.upsert(points)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def test_what_changes_while_it_is_being_indexed_stays_outdated_and_follows(world: World) -> None:
    memory = world.memory(CAT)
    seen: list[str] = []

    def during() -> None:
        seen.append(again(memory).summary)
        if len(seen) == 1:
            change(memory, status="superseded", summary=PC)

    world.index.current = Watched(world.index.current, during)  # type: ignore[assignment]
    assert world.indexed() == 2
    assert seen == [CAT, PC]
    assert world.points() == {memory.id: "superseded"}
    assert not again(memory).outdated


def test_an_index_that_fails_leaves_all_outdated_and_the_vectors_stored(world: World, counting: Counting) -> None:
    memory = world.memory(CAT)

    def during() -> None:
        raise TransientError("The disk is full.")

    real = world.index.current
    world.index.current = Watched(real, during)  # type: ignore[assignment]
    with pytest.raises(TransientError):
        world.indexed()
    assert again(memory).outdated
    world.index.current = real
    counting.texts.clear()
    assert world.indexed() == 1
    assert counting.texts == []


def test_without_an_index_nothing_is_done(world: World, embedder: UseEmbedder) -> None:
    memory = world.memory(CAT)
    handle = IndexHandle(None, embedder)
    assert (index_owner(handle, "home"), handle.kind) == (0, "none")
    assert again(memory).outdated
    with pytest.raises(PermanentError, match="Only the process that owns the index"):
        reindex(handle)
    handle.close()


# --- neighbours ------------------------------------------------------------------------------------------------------


def test_the_nearest_older_memories_are_noted_for_compare(world: World) -> None:
    other = world.memory("ユーザーは富士通のPCを12万円で買った。")
    far, mari = world.memory(CAT), world.memory(PC, owner="mari")
    retired = world.memory("ユーザーは富士通のPCを11万円で買った。", status="superseded")
    new = world.memory(PC)
    later = world.memory("ユーザーは富士通のPCを14万円で買った。")
    world.indexed()
    world.indexed("mari")
    assert set(again(new).neighbours) == {other.id, retired.id}
    assert {far.id, mari.id, later.id, new.id}.isdisjoint(again(new).neighbours)
    assert set(again(later).neighbours) == {other.id, retired.id, new.id}


@pytest.mark.usefixtures("_small_batches")
def test_of_many_memories_the_older_windows_are_indexed_first(world: World) -> None:
    old = world.memory("ユーザーは富士通のPCを12万円で買った。", said=at("22 10:00"))
    for number in range(BATCH):
        world.memory(f"話{number}", said=at("02 10:00"))
    new = world.memory(PC, said=at("01 10:00"))  # said first, told last: its id comes before the others'
    assert new.id < old.id
    world.indexed()
    assert again(new).neighbours == [old.id]


def test_what_is_not_compared_notes_no_neighbours(world: World) -> None:
    world.memory(PC)
    retired, imported = world.memory(PC, status="superseded"), world.memory(PC)
    Memory.update(window=None).where(Memory.id == imported.id).execute()
    world.indexed()
    assert again(retired).neighbours == again(imported).neighbours == []


# --- rebuilding ------------------------------------------------------------------------------------------------------


def test_a_rebuilt_index_is_the_same_as_the_ingested_one(world: World, counting: Counting) -> None:
    old, new = world.memory(CAT, "一", "二", "三"), world.memory(PC)
    world.memory("忘れた", status="forgotten")
    world.indexed()
    supersede(old, new.id)
    world.indexed()
    before = points_and_vectors(world)
    counting.texts.clear()
    assert reindex(world.index) == 2
    assert points_and_vectors(world) == before
    assert counting.texts == []


def test_the_embedded_index_is_rebuilt_to_the_same_points(world: World, counting: Counting, tmp_path: Path) -> None:
    memories = [world.memory(CAT, "一", "二", "三"), world.memory(PC)]
    store = EdgeStore(tmp_path / "index", lock_wait_s=0)
    handle = IndexHandle(store, counting)
    assert handle.current is None
    assert (reindex(handle), handle.kind) == (2, "edge")
    assert handle.current is not None
    ingested = list(handle.current.scan())
    assert index_owner(handle, "home") == 2
    assert list(handle.current.scan()) == ingested == sorted((m.id, payload(m)) for m in memories)
    reindex(handle)
    assert list(handle.current.scan()) == ingested
    handle.close()
    assert handle.current is None


@pytest.mark.usefixtures("_small_batches")
def test_a_rebuild_tells_its_progress(world: World) -> None:
    for number in range(BATCH + 1):
        world.memory(f"話{number}")
    steps: list[tuple[int, int]] = []
    assert reindex(world.index, lambda done, total: steps.append((done, total))) == BATCH + 1
    assert steps == [(BATCH, BATCH + 1), (BATCH + 1, BATCH + 1)]


def test_a_rebuild_embeds_what_is_outdated_or_has_lost_its_vector(world: World, counting: Counting) -> None:
    kept, changed_since, lost = world.memory(CAT, "一"), world.memory(PC, "二"), world.memory("三", "a", "b", "c")
    world.indexed()
    before = points_and_vectors(world)
    change(changed_since, topic="別の話")
    MemoryVector.delete().where(MemoryVector.memory == lost.id, MemoryVector.ordinal < 2).execute()
    counting.texts.clear()
    assert reindex(world.index) == 3
    assert counting.texts == [summary_text(again(changed_since)), summary_text(lost), "a\nそうなんだ\nb\nそうなんだ"]
    after = points_and_vectors(world)
    assert (after[kept.id], after[lost.id]) == (before[kept.id], before[lost.id])
    assert after[changed_since.id][2]["version"] == again(changed_since).version


def test_vectors_of_texts_that_are_made_otherwise_now_are_made_again(
    world: World, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = world.memory(CAT, "一", "二", "三")
    world.indexed()
    counting.texts.clear()
    monkeypatch.setattr("stackmem.indexing.WINDOW", 1)  # as in another version of stackmem
    reindex(world.index)
    assert counting.texts == ["一\nそうなんだ", "二\nそうなんだ", "三\nそうなんだ"]
    assert len(points_and_vectors(world)[memory.id][1]) == 512 * 4 * 3


def test_the_rows_read_at_once_give_the_same_payload_as_the_model(world: World) -> None:
    world.memory(CAT, entities=["モモ", "猫"], occurred_at="2026-07-01", memory_type="preference")
    world.memory(PC, occurred_from="2020-01-01", occurred_to="2020-12-31", owner="mari", status="superseded")
    rows = rows_after("", 10)
    assert [payload_of(row) for row in rows] == [payload(again(Memory(id=row.id))) for row in rows]


def test_a_memory_that_has_lost_one_of_its_vectors_is_not_among_the_stored_points(world: World) -> None:
    whole, torn, headless, short = (world.memory(CAT, "一", "二", "三") for _ in range(4))
    world.indexed()
    MemoryVector.update(vector=b"\0" * 4).where(MemoryVector.memory == short.id, MemoryVector.ordinal == 2).execute()
    for memory, ordinal in ((torn, 1), (headless, 0)):
        MemoryVector.delete().where(MemoryVector.memory == memory.id, MemoryVector.ordinal == ordinal).execute()
    points = stored_points(rows_after("", 10), world.embedder.fingerprint)
    assert list(points) == [whole.id]
    assert points[whole.id].sources.shape == (2, world.embedder.fingerprint.dim)
    assert np.linalg.norm(points[whole.id].sources, axis=1) == pytest.approx([1, 1])
    assert stored_points([], world.embedder.fingerprint) == {}


def test_a_rebuild_that_fails_leaves_the_old_generation(world: World, counting: Counting) -> None:
    memory = world.memory(CAT)
    world.indexed()
    MemoryVector.delete().execute()
    world.memory(PC)

    def down(texts: Sequence[str]) -> Vector:
        raise TransientError("The embedder is down.")

    counting.embed_documents = down  # type: ignore[method-assign]
    with pytest.raises(TransientError):
        reindex(world.index)
    assert list(world.points()) == [memory.id]


def test_search_goes_on_with_the_old_generation_during_a_rebuild(world: World) -> None:
    memory = world.memory(CAT)
    world.indexed()
    during: list[dict[str, str]] = []
    reindex(world.index, lambda done, total: during.append(world.points()))
    assert during == [{memory.id: "active"}]


def test_what_changes_during_a_rebuild_follows_after_the_swap(world: World) -> None:
    memory = world.memory(CAT)
    world.indexed()
    reindex(world.index, lambda done, total: change(memory, status="superseded"))
    assert world.points() == {memory.id: "active"}
    world.indexed()
    assert world.points() == {memory.id: "superseded"}


def test_stored_vectors_are_unit_float32_little_endian(world: World) -> None:
    world.memory(CAT)
    world.indexed()
    for row in MemoryVector.select():
        vector = np.frombuffer(bytes(row.vector), dtype="<f4")
        assert vector.shape == (512,)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-4)
