"""Qwen3 vectors: those of a direct computation with transformers, whatever the length, the padding and the company."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stackmem.exceptions import PermanentError, TransientError
from stackmem.ports import Fingerprint, Vector
from tests import qwen3
from tests.requiring import QWEN3

qwen3.require_packages()  # before what needs them

import torch  # noqa: E402
from transformers import AutoModel, AutoTokenizer  # noqa: E402

from stackmem.adapters import qwen3_files  # noqa: E402
from stackmem.adapters.qwen3_embedder import AT_ONCE, TASK, TOKENS, QueriesFirst, Qwen3Embedder, batches  # noqa: E402

MIXED = ["猫", *qwen3.TEXTS, "", "京都" * 40, "a", "モモ、ごはんだよ。" * 9]
OFFICIAL_TASK = "Given a web search query, retrieve relevant passages that answer the query"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    return qwen3.make_model(tmp_path_factory.mktemp("models") / "Tiny")


@pytest.fixture(scope="session")
def embedder(folder: Path) -> Qwen3Embedder:
    return Qwen3Embedder(str(folder))


def direct(folder: Path, texts: Sequence[str], dim: int = 64) -> Vector:
    """The official usage: a batch padded and masked by the tokenizer, last token, cut, normalised."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(list(texts), padding=True, truncation=True, max_length=TOKENS, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    left = tokenizer.padding_side == "left"
    ends = [-1] * len(texts) if left else (batch["attention_mask"].sum(1) - 1).tolist()
    last = torch.stack([states[row, end] for row, end in enumerate(ends)])[:, :dim]
    return torch.nn.functional.normalize(last, dim=-1).numpy()  # type: ignore[no-any-return]


def cosines(left: Vector, right: Vector) -> Vector:
    return np.asarray((left * right).sum(axis=1))


# --- equal to the reference ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_vectors_are_those_of_a_direct_computation_for_both_padding_sides(tmp_path: Path, padding_side: str) -> None:
    folder = qwen3.make_model(tmp_path / "Tiny", padding_side=padding_side)
    assert AutoTokenizer.from_pretrained(folder).padding_side == padding_side
    vectors = Qwen3Embedder(str(folder)).embed_documents(MIXED)
    assert (vectors.shape, vectors.dtype) == ((len(MIXED), 64), np.float32)
    np.testing.assert_allclose(vectors, direct(folder, MIXED), atol=1e-5)


@pytest.mark.parametrize("dim", [32, 48, 64])
def test_a_vector_is_cut_and_then_normalised(folder: Path, dim: int) -> None:
    vectors = Qwen3Embedder(str(folder), dim).embed_documents(MIXED)
    np.testing.assert_allclose(vectors, direct(folder, MIXED, dim), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_flagembedding_gives_the_same(folder: Path, embedder: Qwen3Embedder) -> None:
    from FlagEmbedding import FlagLLMModel

    flag = FlagLLMModel(
        str(folder),
        devices="cpu",
        use_fp16=False,
        query_instruction_for_retrieval=TASK,
        query_instruction_format="Instruct: {}\nQuery:{}",
    )
    np.testing.assert_allclose(embedder.embed_documents(MIXED), flag.encode_corpus(MIXED), atol=1e-5)
    np.testing.assert_allclose(embedder.embed_queries(MIXED), flag.encode_queries(MIXED), atol=1e-5)


def test_a_query_is_instructed_to_the_letter_and_a_document_is_not(folder: Path, embedder: Qwen3Embedder) -> None:
    instructed = [f"Instruct: {TASK}\nQuery:{text}" for text in MIXED]
    np.testing.assert_allclose(embedder.embed_queries(MIXED), direct(folder, instructed), atol=1e-5)
    np.testing.assert_allclose(embedder.embed_documents(MIXED), direct(folder, MIXED), atol=1e-5)
    assert cosines(embedder.embed_queries(MIXED), embedder.embed_documents(MIXED)).max() < 0.999


def test_a_text_has_the_same_vector_in_any_company(embedder: Qwen3Embedder) -> None:
    alone = np.concatenate([embedder.embed_documents([text]) for text in MIXED])
    np.testing.assert_allclose(embedder.embed_documents(MIXED), alone, atol=1e-5)
    np.testing.assert_allclose(embedder.embed_documents(MIXED[::-1])[::-1], alone, atol=1e-5)


@pytest.mark.qwen3_weights
@pytest.mark.parametrize(("precision", "within"), [("fp32", 1e-3), ("bf16", 0.02), ("int8", 0.05)])
def test_the_real_model_gives_the_published_similarities(precision: str, within: float) -> None:
    if not os.environ.get(QWEN3):
        pytest.skip(f"{QWEN3} is not set to the folder of Qwen3-Embedding-0.6B.")
    real = Qwen3Embedder(os.environ[QWEN3], precision=precision, task=OFFICIAL_TASK)
    queries = real.embed_queries(["What is the capital of China?", "Explain gravity"])
    documents = real.embed_documents(
        [
            "The capital of China is Beijing.",
            "Gravity is a force that attracts two bodies towards each other. It gives weight to physical objects and "
            "is responsible for the movement of planets around the sun.",
        ]
    )
    np.testing.assert_allclose(queries @ documents.T, [[0.7646, 0.1414], [0.1355, 0.6000]], atol=within)


# --- odd input -------------------------------------------------------------------------------------------------------


def test_nothing_gives_nothing_without_loading(folder: Path) -> None:
    embedder = Qwen3Embedder(str(folder), 32)
    assert embedder.embed_documents([]).shape == embedder.embed_queries([]).shape == (0, 32)
    assert not embedder.ready()


def test_empty_and_blank_texts_have_unit_vectors(embedder: Qwen3Embedder) -> None:
    vectors = embedder.embed_documents(["", " ", "\n", "\ufffd"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_very_long_text_is_cut_and_still_ends_with_the_end(folder: Path, embedder: Qwen3Embedder) -> None:
    card = qwen3_files.read_card(str(folder))
    ids = card.tokens("金閣寺と抹茶。" * 50_000, TOKENS)
    assert len(ids) == TOKENS
    assert ids[-1] == card.tokenizer.token_to_id(qwen3.END)
    long = ["抹茶" * 2000, "抹茶" * 20_000]
    vectors = embedder.embed_documents(long)
    np.testing.assert_allclose(vectors, direct(folder, long), atol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


def test_batches_are_of_like_length_and_hold_every_text_once() -> None:
    lengths = [5, 300, 7, 60, 61, 5, 512, 6]
    found = list(batches(lengths))
    assert sorted(place for batch in found for place in batch) == list(range(8))
    assert found == [[0, 5, 7, 2], [3, 4], [1], [6]]
    assert all(len(batch) == 1 or len(batch) * max(lengths[p] for p in batch) <= AT_ONCE for batch in found)


# --- precisions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "least"), [("bf16", 0.999), ("int8", 0.995)])
@pytest.mark.parametrize("head", [False, True])
def test_fewer_bits_point_the_same_way(tmp_path: Path, precision: str, least: float, head: bool) -> None:
    folder = qwen3.make_model(tmp_path / "Tiny", head=head)  # a chat model's names begin with "model."
    full, small = Qwen3Embedder(str(folder)), Qwen3Embedder(str(folder), precision=precision)
    assert cosines(full.embed_documents(MIXED), small.embed_documents(MIXED)).min() > least
    assert cosines(full.embed_queries(MIXED), small.embed_queries(MIXED)).min() > least


def test_int8_bears_a_token_whose_values_dwarf_all_others() -> None:
    from stackmem.adapters.qwen3_model import Int8Linear

    torch.manual_seed(0)
    weight, bias, inputs = torch.randn(48, 64), torch.randn(48), torch.randn(2, 9, 64)
    inputs[:, 0] *= 5000
    wanted = torch.nn.functional.linear(inputs, weight, bias)
    got = Int8Linear(weight, bias)(inputs)
    assert got.shape == wanted.shape
    errors = (got - wanted).norm(dim=-1) / wanted.norm(dim=-1)
    assert errors.max() < 0.03


def test_int8_gives_zero_for_zero() -> None:
    from stackmem.adapters.qwen3_model import Int8Linear

    assert not Int8Linear(torch.zeros(4, 8), None)(torch.zeros(3, 8)).any()


def test_weights_in_several_files_are_found(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = qwen3.make_model(tmp_path / "Tiny")
    whole = Qwen3Embedder(str(folder), precision="int8").embed_documents(MIXED)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    for number, names in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2]), 1):
        save_file({name: tensors[name] for name in names}, folder / f"model-{number:05}-of-00002.safetensors")
    np.testing.assert_array_equal(Qwen3Embedder(str(folder), precision="int8").embed_documents(MIXED), whole)


def test_where_freed_memory_cannot_be_given_back_the_model_loads_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())  # as on macOS
    assert Qwen3Embedder(str(folder), precision="bf16").embed_documents(["猫"]).shape == (1, 64)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_tokenizer_that_appends_no_end_is_refused_at_once(tmp_path: Path) -> None:
    folder = qwen3.make_model(tmp_path / "Tiny", end=False)
    with pytest.raises(PermanentError, match=r"does not append <\|endoftext\|>.*tokenizer.json of Qwen3-Embedding"):
        Qwen3Embedder(str(folder))


@pytest.mark.parametrize("dim", [31, 65, 1024])
def test_dimensions_that_the_model_has_not_are_refused(folder: Path, dim: int) -> None:
    with pytest.raises(PermanentError, match=f"gives vectors of 32 to 64 dimensions, not {dim}"):
        Qwen3Embedder(str(folder), dim)


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_text(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (without("config.json"), "it holds no config.json"),
        (without("tokenizer.json"), "it holds no tokenizer.json"),
        (with_text("config.json", "{}"), "no Qwen3 embedding model: .* cannot be read .'hidden_size'"),
        (with_text("config.json", "{"), "no Qwen3 embedding model"),
        (with_text("tokenizer.json", "{}"), "no Qwen3 embedding model"),
    ],
)
def test_a_folder_that_is_no_model_is_refused_at_once(
    folder: Path, tmp_path: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    shutil.copytree(folder, tmp_path / "Damaged")
    damage(tmp_path / "Damaged")
    with pytest.raises(PermanentError, match=sentence):
        Qwen3Embedder(str(tmp_path / "Damaged"))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize(
    "damage", [without("model.safetensors"), with_text("model.safetensors", "not a tensor in sight")]
)
def test_weights_that_cannot_be_read_are_one_sentence(
    folder: Path, tmp_path: Path, damage: Callable[[Path], None], precision: str
) -> None:
    shutil.copytree(folder, tmp_path / "Damaged")
    damage(tmp_path / "Damaged")
    embedder = Qwen3Embedder(str(tmp_path / "Damaged"), precision=precision)
    with pytest.raises(PermanentError, match=r"Damaged"):
        embedder.load()
    assert not embedder.ready()


def test_a_weight_that_is_missing_or_of_another_shape_is_named(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path / "Damaged")
    tensors = load_file(folder / "model.safetensors")
    for wrong, sentence in ((None, "lacks norm.weight"), (torch.ones(3), r"norm.weight of shape \(3,\)")):
        left = {name: tensor for name, tensor in tensors.items() if name != "norm.weight"}
        save_file(left if wrong is None else left | {"norm.weight": wrong}, tmp_path / "Damaged" / "model.safetensors")
        with pytest.raises(PermanentError, match=sentence):
            Qwen3Embedder(str(tmp_path / "Damaged"), precision="bf16").load()


def test_int8_says_where_it_cannot_be_had(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: False)
    with pytest.raises(PermanentError, match="set STACKMEM_QWEN3_PRECISION=bf16"):
        Qwen3Embedder(str(folder), precision="int8").load()


# --- the hub ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, and no way to the hub itself."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def into_cache(cache: Path, folder: Path, model: str) -> Path:
    """Lay a model into the cache as the hub's client does."""
    repository = cache / f"models--{model.replace('/', '--')}"
    snapshot = repository / "snapshots" / ("0" * 40)
    shutil.copytree(folder, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    return snapshot


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_model_in_the_hubs_cache_needs_no_hub(cache: Path, folder: Path, precision: str) -> None:
    into_cache(cache, folder, "maker/Tiny")
    embedder = Qwen3Embedder("maker/Tiny", precision=precision)
    assert embedder.fingerprint.name == "qwen3-Tiny"
    assert cosines(embedder.embed_documents(MIXED), direct(folder, MIXED)).min() > 0.99


def test_a_model_that_is_nowhere_is_one_sentence_with_the_remedy(cache: Path, folder: Path) -> None:
    with pytest.raises(TransientError, match=r"maker/None is no folder and .* Check STACKMEM_EMBEDDING_MODEL"):
        Qwen3Embedder("maker/None")
    with pytest.raises(TransientError, match=r"Qwen/Qwen3-Embedding-0.6B is no folder"):
        Qwen3Embedder()


@pytest.mark.parametrize("index", [None, {"weight_map": {"norm.weight": "model-00002-of-00002.safetensors"}}])
def test_a_cache_that_was_half_filled_is_fetched_again(cache: Path, folder: Path, index: Any) -> None:
    snapshot = into_cache(cache, folder, "maker/Tiny")
    (snapshot / "model.safetensors").unlink()
    if index:
        (snapshot / qwen3_files.INDEX).write_text(json.dumps(index))
    embedder = Qwen3Embedder("maker/Tiny")
    with pytest.raises(TransientError, match="could not be fetched from the hub"):
        embedder.load()


# --- identity, threads, turns ----------------------------------------------------------------------------------------


def test_the_fingerprint_names_model_dimension_precision_and_instruction(folder: Path) -> None:
    assert Qwen3Embedder(str(folder)).fingerprint == Fingerprint("qwen3-Tiny", 64, TASK, "fp32")
    given = [(None, "fp32", TASK), (32, "fp32", TASK), (None, "int8", TASK), (None, "fp32", "Find it")]
    names = {str(Qwen3Embedder(str(folder), dim, precision, task=task).fingerprint) for dim, precision, task in given}
    assert len(names) == 4
    assert all(name.startswith("qwen3-Tiny-") for name in names)


def test_other_dimensions_come_from_the_same_weights(folder: Path, embedder: Qwen3Embedder) -> None:
    embedder.load()
    narrow = embedder.sized(32)
    assert narrow.ready()
    np.testing.assert_allclose(
        narrow.embed_queries(MIXED), Qwen3Embedder(str(folder), 32).embed_queries(MIXED), atol=1e-6
    )
    assert embedder.embed_queries(MIXED).shape == (len(MIXED), 64)
    with pytest.raises(PermanentError, match="32 to 64 dimensions, not 65"):
        embedder.sized(65)


def test_the_model_is_loaded_once_and_its_threads_are_as_set(folder: Path) -> None:
    embedder, before = Qwen3Embedder(str(folder), threads=2), torch.get_num_threads()
    try:
        loading = [threading.Thread(target=embedder.load) for _ in range(3)]
        for thread in loading:
            thread.start()
        for thread in loading:
            thread.join()
        module, seen = embedder._weights.module, list[int]()
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        assert seen == [2]
        embedder.load()
        assert embedder._weights.module is module
    finally:
        torch.set_num_threads(before)


def test_half_of_the_cores_are_taken_unless_it_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in ((8, 4), (1, 1), (None, 1)):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        assert Qwen3Embedder(str(folder))._weights.threads == threads


def test_several_threads_get_the_vectors_of_their_own_texts(embedder: Qwen3Embedder) -> None:
    wanted, got = embedder.embed_documents(MIXED), dict[int, Vector]()

    def embed(place: int) -> None:
        got[place] = embedder.embed_documents([MIXED[place]] * 3)[2]

    threads = [threading.Thread(target=embed, args=(place,)) for place in range(len(MIXED))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(np.stack([got[place] for place in range(len(MIXED))]), wanted, atol=1e-5)


def test_who_waits_for_an_answer_goes_before_the_background() -> None:
    turns, order, waiting = QueriesFirst(), list[str](), threading.Barrier(3)

    def work(name: str) -> None:
        waiting.wait()
        with turns.taken(query=name == "query"):
            order.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("document", "query")]
    with turns.taken(query=False):
        for thread in threads:
            thread.start()
        waiting.wait()
        while not turns._queries:
            time.sleep(0.001)
        assert order == []
    for thread in threads:
        thread.join()
    assert order == ["query", "document"]


def test_an_error_inside_gives_the_turn_back() -> None:
    turns = QueriesFirst()
    with pytest.raises(ZeroDivisionError), turns.taken(query=True):
        1 / 0  # noqa: B018
    with turns.taken(query=False):
        pass
