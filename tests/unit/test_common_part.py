"""What all memories have in common is left out of a query, and nothing else changes by it."""

from pathlib import Path

import numpy as np
import pytest

from stackmem import common_part
from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.local_index import LocalStore
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.forgetting import forget
from stackmem.index_handle import IndexHandle
from stackmem.models import Memory, MemoryVector, Turn
from stackmem.ports import CommonPart, IndexFilter
from stackmem.recall import Recall
from stackmem.reindexing import reindex
from stackmem.search_arguments import SearchArguments
from tests.unit.world import ZONE, World

WHO = ("友達", "妹", "母", "同僚", "先輩")
TALK = (
    "どうやって作るのかなと話した",
    "どれくらい持っているのかと聞いた",
    "何がいいか分からないと話した",
    "そういうのが好きだと言っていた",
    "よく分からないけれど楽しそうだと話した",
    "どこにあるのか知らないと話した",
)
COMMUTE = "ユーザーの通勤は片道1時間45分かかる。"
QUESTION = "わたしの職場まで行くのに、かたみちどれくらいかかるって言ったっけ"


def talk_in_general(world: World, owner: str = "home") -> None:
    for who in WHO:
        for said in TALK:
            world.memory(f"ユーザーは{who}と、{said}。", owner=owner)


def common(world: World, owner: str = "home") -> CommonPart | None:
    return world.index.common.of(owner)


def test_talk_in_general_does_not_stand_before_what_was_asked_for(world: World) -> None:
    talk_in_general(world)
    world.memory(COMMUTE)
    world.indexed()
    found = world.recall.search_memory("home", None, {"query": QUESTION})
    assert found.content["candidates"][0]["summary"] == COMMUTE
    first, *others = (hit["retrieval_score"] for hit in found.hits)
    assert first < max(others)  # by plain similarity it would not be the first


@pytest.mark.parametrize("kind", [EdgeStore, LocalStore])
def test_every_index_gives_the_same_order(world: World, embedder: UseEmbedder, tmp_path: Path, kind: type) -> None:
    talk_in_general(world)
    world.memory(COMMUTE)
    world.indexed()
    asked = SearchArguments(QUESTION, IndexFilter("home"))
    handle = IndexHandle(kind(tmp_path, lock_wait_s=0), embedder)
    reindex(handle)
    found = [
        [(each.memory.id, each.retrieval_score, round(each.rank_score, 4)) for each in recall.find(asked)]
        for recall in (world.recall, Recall(handle, ZONE))
    ]
    handle.close()
    assert [each[0] for each in found[0]] == [each[0] for each in found[1]]
    for mine, other in zip(*found, strict=True):
        assert mine[1:] == pytest.approx(other[1:], abs=1e-3)


def test_it_is_the_mean_of_the_stored_vectors_of_what_is_active(world: World) -> None:
    talk_in_general(world)
    world.memory(COMMUTE, status="superseded")
    world.indexed()
    rows = MemoryVector.select().join(Memory).where(Memory.status == "active")
    stored = [(row.ordinal, np.frombuffer(bytes(row.vector), dtype="<f4")) for row in rows]
    part = common(world)
    assert part is not None
    for mean, vectors in (
        (part.summary, [vector for ordinal, vector in stored if ordinal == 0]),
        (part.sources, [vector for ordinal, vector in stored if ordinal > 0]),
    ):
        assert mean == pytest.approx(np.mean(vectors, axis=0), abs=1e-6)


def test_few_memories_have_none_and_each_owner_has_its_own(world: World) -> None:
    talk_in_general(world)
    for number in range(19):
        world.memory(f"ユーザーは{number}番目の店で働いた。", owner="mari")
    for owner in ("home", "mari"):
        world.indexed(owner)
    assert common(world) is not None
    assert common(world, "mari") is None
    assert common(world, "nobody") is None
    world.memory(COMMUTE, owner="mari")
    world.indexed("mari")
    mine, other = common(world), common(world, "mari")
    assert mine is not None
    assert other is not None
    assert not np.allclose(mine.summary, other.summary)


def test_memories_without_source_words_have_none(world: World) -> None:
    for number in range(20):
        world.memory(f"ユーザーは{number}番目の店で働いた。")
    Turn.delete().execute()
    world.indexed()
    assert MemoryVector.select().count() == 20
    assert common(world) is None


def test_what_was_forgotten_is_no_part_of_it(world: World) -> None:
    for number in range(20):
        world.memory(f"ユーザーは{number}番目の店で働いた。")
    world.indexed()
    assert common(world) is not None
    forget("home", [Memory.select().first().id], world.clock.now(), at_once=True)
    world.indexed()
    assert common(world) is None


def test_a_rebuilt_index_has_the_same(world: World) -> None:
    talk_in_general(world)
    world.indexed()
    before = common(world)
    reindex(world.index)
    after = common(world)
    assert before is not None
    assert after is not None
    assert after is not before
    assert np.array_equal(before.summary, after.summary)
    assert np.array_equal(before.sources, after.sources)


def test_of_many_memories_a_sample_is_enough(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    talk_in_general(world)
    world.indexed()
    whole = common(world)
    monkeypatch.setattr(common_part, "SAMPLE", 20)
    world.index.common.renew("home")
    sampled = common(world)
    assert whole is not None
    assert sampled is not None
    assert not np.array_equal(whole.summary, sampled.summary)
    cosine = whole.summary @ sampled.summary / np.linalg.norm(whole.summary) / np.linalg.norm(sampled.summary)
    assert cosine > 0.95
