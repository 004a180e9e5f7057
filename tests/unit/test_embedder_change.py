"""Another embedder: the old index answers until a reindex has swapped, and vectors of the two are never mixed."""

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.by_words import find_by_words
from stackmem.embedder_change import Change, change_of, cut, measured, other_dim, sample, wider
from stackmem.exceptions import PermanentError, TransientError
from stackmem.index_handle import IndexHandle
from stackmem.indexing import index_owner, summary_text
from stackmem.making import changed
from stackmem.models import Job, Memory, MemoryVector
from stackmem.ports import Fingerprint, Hint, IndexFilter, Vector
from stackmem.recall import Recall
from stackmem.reindexing import reindex
from stackmem.search_arguments import SearchArguments
from stackmem.work import Work
from tests.fakes import LateEmbedder, MemoryIndex
from tests.unit.world import ZONE, World, again, at, points_and_vectors

CAT, PC = "ユーザーの猫の名前はモモだ。", "ユーザーは富士通のPCを13万円で買った。"
BATCH = 2


class Part:
    """The first numbers of the real vectors, as an embedder of its own that counts what it is given."""

    floor, tie_margin = 0.1, 0.02

    def __init__(self, real: UseEmbedder, dim: int, name: str = "part", *, nested: bool = True):
        self._real, self.fingerprint = real, Fingerprint(name, dim, nested=nested)
        self.texts: list[str] = []
        self.fails_after = 10**9

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        if len(self.texts) + len(texts) > self.fails_after:
            raise TransientError("The embedder is down.")
        self.texts += texts
        return self._made(texts)

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        return self._made(texts)

    def _made(self, texts: Sequence[str]) -> Vector:
        whole = self._real.embed_documents(texts)
        return np.stack([cut(vector, self.fingerprint.dim) for vector in whole])

    def ready(self) -> bool:
        return True

    def load(self) -> None:
        pass


@pytest.fixture
def world(database: Any, embedder: UseEmbedder) -> World:
    """A store that was made with the bundled embedder: two memories, four texts."""
    world = World(embedder, OfflineChat())
    world.memory(CAT)
    world.memory(PC)
    world.indexed()
    return world


Restarted = Callable[..., IndexHandle]


@pytest.fixture
def restarted(world: World, embedder: UseEmbedder) -> Restarted:
    """Start again with another embedder over the same index; ``former``: whether the old one can be had."""

    def restart(new: Any, former: bool = True) -> IndexHandle:
        handle = IndexHandle(world.store, new, lambda: [embedder] if former else [])
        world.index, world.recall = handle, Recall(handle, ZONE)
        world.work = Work(world.remembering, world.comparing, handle, world.persona, world.clock, world.queue, 10.0)
        return handle

    return restart


def found(world: World, query: str, **where: Any) -> list[str]:
    candidates = world.recall.find(SearchArguments(query, IndexFilter("home", **where)))
    return [candidate.memory.summary for candidate in candidates]


@pytest.fixture
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackmem.reindexing.BATCH", BATCH)
    monkeypatch.setattr("stackmem.reindexing.ROWS", BATCH)


# --- while the old embedder can be had -------------------------------------------------------------------------------


def test_the_old_index_answers_and_takes_new_memories_until_a_reindex(
    world: World, restarted: Restarted, embedder: UseEmbedder
) -> None:
    new = Part(embedder, 64)
    handle = restarted(new)
    assert handle.searching is embedder
    assert found(world, "猫の名前")[0] == CAT
    world.memory("ユーザーの妹は京都に住んでいる。")
    assert index_owner(handle, "home") == 1
    assert found(world, "妹が住んでいる町")[0] == "ユーザーの妹は京都に住んでいる。"
    assert new.texts == []
    assert {row.fingerprint for row in MemoryVector.select()} == {"use-512"}

    assert reindex(handle) == 3
    assert (handle.searching, handle.change, handle.reasons()) == (new, None, [])
    assert found(world, "妹が住んでいる町")[0] == "ユーザーの妹は京都に住んでいる。"
    assert len(new.texts) == 6
    assert {len(summary) for summary, _, _ in points_and_vectors(world).values()} == {64 * 4}


def test_a_start_says_what_the_change_costs_and_does_nothing_by_itself(
    world: World, restarted: Restarted, embedder: UseEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    new = Part(embedder, 64)
    handle = restarted(new)
    before = "The embedder changed from use-512 to part-64: 4 texts must be embedded again"
    assert handle.reasons() == [f"{before}. Run `stackmem reindex`; until it is done, use-512 answers."]
    world.queue.taken()
    world.work.start()
    for thread in threading.enumerate():
        if thread.name == "measure":
            thread.join()
    (told,) = handle.reasons()
    assert re.fullmatch(rf"{before}, about \d+ s\. Run `stackmem reindex`; until it is done, use-512 answers\.", told)
    assert told in caplog.text
    assert handle.reasons()[0].startswith(before)
    assert [hint for hint in world.queue.taken() if hint.task in ("index", "reindex")] == []
    assert handle.searching is embedder


def test_a_cost_that_cannot_be_measured_stops_nothing(
    world: World, restarted: Restarted, embedder: UseEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    new = LateEmbedder(Part(embedder, 64), PermanentError("The model has no weights."))
    handle = restarted(new)
    world.work._measure(sample())
    assert "How long that takes could not be measured: The model has no weights." in caplog.text
    assert handle.change is not None
    assert handle.change.seconds is None
    assert found(world, "猫の名前")[0] == CAT


def test_the_cost_is_reckoned_from_a_sample(world: World, embedder: UseEmbedder) -> None:
    change = Change("a-1", "b-2", 1000, searched=True)
    new = Part(embedder, 64)
    assert sample() == [f"{CAT[:8]}\n{CAT}", f"{PC[:8]}\n{PC}"]
    seconds = measured(change, new, sample()).seconds
    assert seconds is not None
    assert seconds > 0
    assert len(new.texts) == 3  # one to load and warm it


@pytest.mark.usefixtures("_small_batches")
def test_search_and_new_memories_go_on_while_all_is_embedded_again(
    world: World, restarted: Restarted, embedder: UseEmbedder
) -> None:
    for number in range(BATCH * 2):
        world.memory(f"話{number}をした。")
    world.indexed()
    handle = restarted(Part(embedder, 64))
    meanwhile, during = "ユーザーの妹は京都に住んでいる。", list[str]()

    def note(done: int, total: int) -> None:
        if done == BATCH:
            world.memory(meanwhile)
        elif done == 2 * BATCH:
            during.extend([found(world, "猫の名前")[0], found(world, "妹が住んでいる町")[0]])
            assert handle.searching is embedder

    assert reindex(handle, note) == 3 + 2 * BATCH
    assert during == [CAT, meanwhile]
    assert handle.searching.fingerprint.name == "part"
    assert [found(world, "猫の名前")[0], found(world, "妹が住んでいる町")[0]] == during


@pytest.mark.usefixtures("_small_batches")
def test_what_was_embedded_before_a_kill_is_not_embedded_again(
    world: World, restarted: Restarted, embedder: UseEmbedder
) -> None:
    for number in range(4):
        world.memory(f"話{number}をした。")
    world.indexed()
    first = Part(embedder, 64)
    first.fails_after = 8
    with pytest.raises(TransientError):
        reindex(restarted(first))
    assert len(first.texts) == 8  # of twelve
    second = Part(embedder, 64)
    handle = restarted(second)
    assert handle.searching is embedder
    assert "4 texts must be embedded again" in handle.reasons()[0]
    reindex(handle)
    assert sorted(first.texts + second.texts) == sorted(set(first.texts) | set(second.texts))
    assert len(second.texts) == 4


def test_what_was_forgotten_leaves_the_old_index_without_embedding_all_again(
    world: World, restarted: Restarted, embedder: UseEmbedder
) -> None:
    new = Part(embedder, 64)
    handle = restarted(new)
    job = Job.create(kind="scrub", created_at=world.clock.now())
    world.work.rebuild(job.id)
    assert Job.get_by_id(job.id).state == "done"
    assert new.texts == []
    assert handle.searching is embedder
    assert handle.change is not None
    assert found(world, "猫の名前")[0] == CAT


# --- where it cannot -------------------------------------------------------------------------------------------------


def test_without_the_old_embedder_words_answer_until_the_background_is_done(
    world: World, restarted: Restarted, embedder: UseEmbedder
) -> None:
    new = Part(embedder, 64)
    handle = restarted(new, former=False)
    assert handle.current is None
    assert "until it is done, searches go by words alone." in handle.reasons()[0]
    assert found(world, "猫の名前") == [CAT]
    result = world.recall.call("home", None, "search_memory", {"query": "富士通のPC"})
    assert [candidate["summary"] for candidate in result.content["candidates"]] == [PC]
    assert result.looked_for is not None
    world.queue.taken()
    world.work.start()
    assert Hint("index", "home") in (hints := world.queue.taken())
    for hint in hints:
        world.work.run(hint)
    assert (handle.searching, handle.reasons()) == (new, [])
    assert len(new.texts) >= 4
    assert found(world, "猫の名前")[0] == CAT


def test_a_rebuild_in_the_background_goes_on_after_a_restart(
    world: World, restarted: Restarted, embedder: UseEmbedder
) -> None:
    first = Part(embedder, 64)
    reindex(restarted(first, former=False))
    world.store._current = None  # type: ignore[attr-defined]  # killed before the swap
    handle = restarted(Part(embedder, 64), former=False)
    assert handle.change is None  # it was asked for before: it is done as for any index that is lost


def test_words_are_looked_for_within_the_same_filter(world: World) -> None:
    world.memory("ユーザーの猫の名前はタマだ。", owner="mari")
    old = world.memory("ユーザーの猫の名前はミケだ。", said=at("01 10:00"), entities=["ミケ"], memory_type="decision")
    gone = world.memory("ユーザーの猫の名前はクロだ。", status="superseded")
    world.memory("ユーザーの猫の名前はシロだ。", status="forgotten")

    def names(**where: Any) -> set[str]:
        return {ranked.memory_id for ranked in find_by_words("猫の名前", IndexFilter("home", **where), 10)}

    cat = Memory.get(Memory.summary == CAT).id
    assert names() == {cat, old.id}
    assert names(status=None) == {cat, old.id, gone.id}
    assert names(entity_keys=["ミケ"]) == names(memory_type="decision") == names(until=at("02 10:00")) == {old.id}
    assert names(since=at("02 10:00")) == {cat}
    assert [ranked.retrieval_score for ranked in find_by_words("猫の名前", IndexFilter("home"), 1)] == [0.0]
    assert find_by_words("宇宙船", IndexFilter("home"), 10) == []


# --- cutting ---------------------------------------------------------------------------------------------------------


def test_fewer_dimensions_are_cut_from_the_stored_vectors(
    world: World, restarted: Restarted, embedder: UseEmbedder
) -> None:
    wide = Part(embedder, 256)
    reindex(restarted(wide))
    narrow = Part(embedder, 32)
    handle = IndexHandle(world.store, narrow, lambda: [wide])
    world.index, world.recall = handle, Recall(handle, ZONE)
    assert handle.reasons() == [
        "The embedder changed from part-256 to part-32: no text must be embedded again. Run `stackmem reindex`; "
        "until it is done, part-256 answers."
    ]
    reindex(handle)
    assert narrow.texts == []
    wanted = {text: narrow.embed_queries([f"{text[:8]}\n{text}"])[0] for text in (CAT, PC)}
    for memory in Memory.select():
        made = np.frombuffer(points_and_vectors(world)[memory.id][0], dtype="<f4")
        np.testing.assert_allclose(made, wanted[memory.summary], atol=1e-6)


def test_more_dimensions_or_another_model_are_embedded_again(world: World, embedder: UseEmbedder) -> None:
    nested = Fingerprint("q-0.6B", 128, "find", "int8", nested=True)
    wide, wider_yet, narrow = (str(Fingerprint("q-0.6B", dim, "find", "int8")) for dim in (256, 1024, 64))
    others = ["use-512", str(Fingerprint("q-0.6B", 256, "find", "fp32")), str(Fingerprint("q-0.6B", 256, "", "int8"))]
    assert wider(nested, [*others, wider_yet, wide, narrow]) == wide
    assert wider(nested, [*others, narrow]) is None
    assert wider(Fingerprint("q-0.6B", 128, "find", "int8"), [wide]) is None
    assert (other_dim(nested, narrow), other_dim(nested, others[1])) == (64, None)
    assert change_of(Fingerprint("use", 1024, nested=True), "use-512", searched=True).texts == 4
    assert change_of(Fingerprint("use", 128, nested=True), "use-512", searched=True).texts == 0


def test_what_has_no_wider_vector_is_embedded_and_the_rest_is_cut(
    world: World, restarted: Restarted, embedder: UseEmbedder
) -> None:
    reindex(restarted(Part(embedder, 256)))
    MemoryVector.delete().where(MemoryVector.fingerprint == "part-256", MemoryVector.ordinal > 0).execute()
    narrow = Part(embedder, 32)
    reindex(IndexHandle(world.store, narrow))
    assert len(narrow.texts) == 2


def test_a_vector_of_zeros_stays_one() -> None:
    assert not cut(np.zeros(8, dtype=np.float32), 4).any()


# --- the swap --------------------------------------------------------------------------------------------------------


def test_a_search_that_met_the_swap_is_done_again_with_the_new_embedder(
    world: World, restarted: Restarted, embedder: UseEmbedder
) -> None:
    handle = restarted(Part(embedder, 64))
    used: list[str] = []

    def search() -> str:
        used.append(handle.searching.fingerprint.name)
        if len(used) == 1:
            reindex(handle)
            raise PermanentError("The query has shape (512,), this index takes (64,).")
        return used[-1]

    assert handle.settled(search) == "part"
    assert used == ["use", "part"]


def test_an_error_of_a_search_that_met_no_swap_is_told(world: World) -> None:
    def search() -> str:
        raise PermanentError("Qdrant Edge: something.")

    with pytest.raises(PermanentError, match="something"):
        world.index.settled(search)


def test_a_swap_that_fails_leaves_everything_as_it_was(
    world: World, restarted: Restarted, embedder: UseEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = restarted(Part(embedder, 64))

    def full() -> MemoryIndex:
        raise TransientError("The disk is full.")

    monkeypatch.setattr(world.store, "swap", full)
    with pytest.raises(TransientError):
        reindex(handle)
    assert handle.searching is embedder
    assert found(world, "猫の名前")[0] == CAT


def test_vectors_that_nobody_kept_up_while_another_embedder_was_set_are_not_trusted(
    world: World, restarted: Restarted, embedder: UseEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stackmem.reindexing.SAMPLE", 0)  # the texts of none are looked at
    reindex(restarted(Part(embedder, 64)))
    memory = Memory.select().order_by(Memory.id).first()
    Memory.update(**changed(summary="ユーザーの犬の名前はポチだ。")).where(Memory.id == memory.id).execute()
    world.indexed()  # with the new embedder alone
    handle = restarted(embedder, former=False)
    assert handle.current is None
    reindex(handle)
    (expected,) = embedder.embed_documents([summary_text(again(memory))])
    assert points_and_vectors(world)[memory.id][0] == expected.tobytes()
