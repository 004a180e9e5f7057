"""What OpenAIEmbedder asks of a server of embeddings, and what it makes of whatever comes back."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from stackmem.adapters.openai_embedder import CHARACTERS, SHORTEST, TEXTS, OpenAIEmbedder
from stackmem.exceptions import PermanentError, SettingsError, StackmemError, TransientError
from stackmem.ports import Fingerprint
from tests.scripted import Answer, Script, ScriptedServer, drip, error, hang, raw, reset

KEY = "sk-very-secret"
DIM = 3


@contextmanager
def embedding(script: Script, dim: int = DIM, **options: Any) -> Iterator[tuple[OpenAIEmbedder, ScriptedServer]]:
    """Give an embedder and the scripted server that it talks to."""
    with ScriptedServer(script) as server:
        embedder = OpenAIEmbedder(server.base_url, KEY, "qwen3", dim, **options)
        try:
            yield embedder, server
        finally:
            embedder.close()


def vectors(*rows: Any, **more: Any) -> Answer:
    """Answer with these vectors, in this order."""
    return raw({"data": [{"index": place, "embedding": row} for place, row in enumerate(rows)], **more})


def lengths(request: Any) -> Answer:
    """Answer every text with a vector that leads to it: (its length, 1, 0)."""
    assert request["encoding_format"] == "base64"
    rows = (np.array([len(text), 1, 0], "<f4").tobytes() for text in request["input"])
    return vectors(*(base64.b64encode(row).decode() for row in rows))


def unit(*numbers: float) -> Any:
    return pytest.approx(np.array(numbers) / np.linalg.norm(numbers), abs=1e-6)


def error_of(answer: Answer, dim: int = DIM, **options: Any) -> StackmemError:
    """Return the error that one answer of a server becomes, a second one being no better."""
    with embedding([answer, answer], dim, **options) as (embedder, _), pytest.raises(StackmemError) as caught:
        embedder.embed_documents(["a", "b"])
    sentence = str(caught.value)
    assert KEY not in sentence
    assert sentence.endswith(".")
    return caught.value


# --- asking ----------------------------------------------------------------------------------------------------------


def test_documents_are_sent_as_they_stand_and_queries_in_their_format() -> None:
    query_format = "Instruct: find {it}\nQuery:{}"
    with embedding(lengths, query_format=query_format) as (embedder, server):
        embedder.embed_documents(["猫の名前はミケ", "{}"])
        embedder.embed_queries(["猫は{}？"])
    first, second = (request.json for request in server.requests)
    assert first == {"input": ["猫の名前はミケ", "{}"], "model": "qwen3", "encoding_format": "base64"}
    assert second["input"] == ["Instruct: find {it}\nQuery:猫は{}？"]
    assert server.requests[0].path == "/v1/embeddings"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert embedder.fingerprint == Fingerprint("openai-qwen3", DIM, query_format)


def test_many_texts_go_in_batches_and_come_back_in_their_order_as_unit_vectors() -> None:
    texts = ["x" * number for number in range(1, TEXTS + 10)] + ["y" * CHARACTERS, "z"]
    with embedding(lengths) as (embedder, server):
        found = embedder.embed_documents(texts)
    assert (found.shape, found.dtype) == ((len(texts), DIM), np.float32)
    assert (
        np.argsort(found[:, 0] / found[:, 1], kind="stable").tolist()
        == np.argsort([*map(len, texts)], kind="stable").tolist()
    )
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-6)
    sent = [request.json["input"] for request in server.requests]
    assert [text for batch in sent for text in batch] == texts
    assert all(len(batch) <= TEXTS and (len(batch) == 1 or sum(map(len, batch)) <= CHARACTERS) for batch in sent)


def test_no_texts_are_no_request() -> None:
    with embedding([]) as (embedder, server):
        assert embedder.embed_documents([]).shape == (0, DIM)
        assert embedder.embed_queries([]).shape == (0, DIM)
    assert server.requests == []


def test_it_is_ready_at_once_and_loading_connects_to_nothing() -> None:
    with embedding([]) as (embedder, server):
        embedder.load()
        assert embedder.ready()
    assert server.connections == 0


# --- reading ---------------------------------------------------------------------------------------------------------


def test_vectors_are_put_into_the_order_of_their_index() -> None:
    data = [{"index": 1, "embedding": [0, 2, 0]}, {"index": 0, "embedding": [3, 0, 4]}]
    with embedding([raw({"data": data})]) as (embedder, _):
        found = embedder.embed_documents(["a", "b"])
    assert found[0] == unit(3, 0, 4)
    assert found[1] == unit(0, 2, 0)


def test_without_any_index_the_order_is_as_it_stands() -> None:
    data = [{"embedding": [0, 2, 0]}, {"embedding": [3, 0, 4]}]
    with embedding([raw({"data": data})]) as (embedder, _):
        assert embedder.embed_documents(["a", "b"])[1] == unit(3, 0, 4)


def test_a_vector_of_zeros_stays_one() -> None:
    with embedding([vectors([0, 0, 0])]) as (embedder, _):
        assert embedder.embed_documents([""]).tolist() == [[0, 0, 0]]


HALF = base64.b64encode(b"\0" * 5).decode()
TWO = {"embedding": [1, 0, 0]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (vectors([1, 0, 0]), "1 vectors came for 2 texts"),
        (vectors(), "0 vectors came for 2 texts"),
        (vectors([1, 0, 0], [1, 0]), "not of one length"),
        (vectors([], []), "not of one length"),
        (raw(b'{"data": [{"index": 0, "embedding": [NaN, 0, 0]}, {"index": 1, "embedding": [1, 0, 0]}]}'), "NaN"),
        (vectors([1e300, 0, 0], [1, 0, 0]), "infinity"),
        (vectors([None, 0, 0], [1, 0, 0]), "not a list of numbers"),
        (vectors(["1", 0, 0], [1, 0, 0]), "not a list of numbers"),
        (vectors([10**400, 0, 0], [1, 0, 0]), "not a list of numbers"),
        (vectors(HALF, HALF), "not a list of numbers"),
        (vectors("no base64!", HALF), "not a list of numbers"),
        (vectors(None, None), "not a list of numbers"),
        (raw({"data": [{"index": 0, **TWO}, {"index": 0, **TWO}]}), "to which texts"),
        (raw({"data": [{"index": 0, **TWO}, {"index": 2, **TWO}]}), "to which texts"),
        (raw({"data": [{"index": "0", **TWO}, {"index": 1, **TWO}]}), "to which texts"),
        (raw({"data": [[1, 0, 0], [1, 0, 0]]}), "no vectors came"),
        (raw({"data": None}), "no vectors came"),
        (raw({"object": "list"}), "no vectors came"),
        (raw(b"[1, 2]"), "no vectors came"),
        (raw(b"so busy"), "not JSON"),
        (raw({"error": {"message": "loading", "code": 503}}), "failed (HTTP 503: loading)"),
    ],
)
def test_an_answer_that_holds_no_usable_vectors_may_be_better_next_time(answer: Answer, said: str) -> None:
    problem = error_of(answer)
    assert isinstance(problem, TransientError)
    assert said in str(problem)
    assert "The embedder at 127.0.0.1" in str(problem)


@pytest.mark.parametrize("width", [2, 4])
def test_another_dimension_is_permanent_and_names_the_setting(width: int) -> None:
    problem = error_of(vectors([1] * width, [1] * width))
    assert isinstance(problem, PermanentError)
    assert f"STACKMEM_EMBEDDING_DIM={width}" in str(problem)


# --- finding out what a server takes ---------------------------------------------------------------------------------


def test_a_server_of_longer_vectors_is_asked_to_cut_them_from_then_on() -> None:
    def cuts(request: Any) -> Answer:
        return vectors(*[[3, 0, 4, 9, 9][: request.get("dimensions", 5)]] * len(request["input"]))

    with embedding(cuts) as (embedder, server):
        assert embedder.embed_documents(["a"])[0] == unit(3, 0, 4)
        embedder.embed_queries(["b"])
    assert [request.json.get("dimensions") for request in server.requests] == [None, DIM, DIM]


def test_a_server_that_cannot_cut_says_so_with_the_length_to_set() -> None:
    def refuses(request: Any) -> Answer:
        matryoshka = "Model does not support matryoshka representation, changing output dimensions"
        return error(400, matryoshka) if "dimensions" in request else vectors([1] * 5)

    with embedding(refuses) as (embedder, _):
        for _ in range(2):
            with pytest.raises(PermanentError, match="STACKMEM_EMBEDDING_DIM=5"):
                embedder.embed_documents(["a"])


def test_a_server_that_knows_no_base64_is_asked_for_decimals_from_then_on() -> None:
    def decimals(request: Any) -> Answer:
        is_known = request["encoding_format"] == "float"
        return vectors([1, 2, 2]) if is_known else error(422, "unknown value for encoding_format")

    with embedding(decimals) as (embedder, server):
        for _ in range(2):
            assert embedder.embed_documents(["a"])[0] == unit(1, 2, 2)
    assert [request.json["encoding_format"] for request in server.requests] == ["base64", "float", "float"]


@pytest.mark.parametrize(
    "refusal",
    [
        error(413, "Input validation error: `inputs` must have less than 512 tokens. Given: 800"),
        error(500, "input (800 tokens) is too large to process. increase the physical batch size"),
        error(400, "This model's maximum context length is 512 tokens."),
    ],
)
def test_texts_a_server_calls_too_long_are_cut_until_it_takes_them(refusal: Answer) -> None:
    def short_sighted(request: Any) -> Answer:
        return refusal if max(map(len, request["input"])) > 300 else lengths(request)

    with embedding(short_sighted) as (embedder, server):
        embedder.embed_documents(["あ" * 1000, "い" * 200])
        embedder.embed_documents(["う" * 1000])
    assert [[*map(len, request.json["input"])] for request in server.requests] == [
        [1000, 200], [500, 200], [250, 200], [250],
    ]  # fmt: skip


def test_a_server_that_calls_everything_too_long_is_given_up() -> None:
    with embedding(lambda _: error(400, "input too long")) as (embedder, server), pytest.raises(PermanentError):
        embedder.embed_documents(["あ" * 1000])
    assert [len(request.json["input"][0]) for request in server.requests] == [1000, 500, 250, 125, SHORTEST]


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (error(500, "out of memory"), TransientError, "failed (HTTP 500: out of memory)"),
        (error(503, "loading"), TransientError, "failed (HTTP 503"),
        (error(429, "slow down", Retry_After="7"), TransientError, "is over its rate"),
        (error(401, "bad key"), PermanentError, "STACKMEM_EMBEDDING_API_KEY"),
        (error(402, "Insufficient Balance"), PermanentError, "STACKMEM_EMBEDDING_API_KEY"),
        (error(404, "model not found"), PermanentError, "STACKMEM_EMBEDDING_MODEL"),
        (
            error(404, "Not Found"),
            PermanentError,
            "has no embeddings at this address: check STACKMEM_EMBEDDING_BASE_URL",
        ),
        (raw(b"<html>hello</html>"), PermanentError, "STACKMEM_EMBEDDING_BASE_URL"),
        (error(400, f"what is this, {KEY}?"), PermanentError, "check STACKMEM_EMBEDDING_MODEL and"),
        (reset(), TransientError, "cannot be reached, or broke off"),
    ],
)
def test_a_refusal_is_one_sentence_that_names_what_to_do(answer: Answer, kind: type, said: str) -> None:
    problem = error_of(answer)
    assert type(problem) is kind
    assert said in str(problem)


def test_a_rates_wait_is_handed_on() -> None:
    assert getattr(error_of(error(429, "slow down", Retry_After="7")), "retry_after_s", None) == 7


@pytest.mark.parametrize("answer", [hang(), drip(b" " * 500, 0.05)])
def test_a_server_that_does_not_answer_in_time_is_given_up(answer: Answer) -> None:
    with embedding([answer], timeout_s=0.2) as (embedder, _), pytest.raises(TransientError, match="in time"):
        embedder.embed_queries(["a"])


def test_nobody_at_the_address_is_transient() -> None:
    with ScriptedServer([]) as server:
        url = server.base_url
    with pytest.raises(TransientError, match="cannot be reached"):
        OpenAIEmbedder(url, "", "m", DIM).embed_documents(["a"])


def test_a_connection_that_broke_is_tried_once_more() -> None:
    with embedding([reset(), vectors([1, 0, 0])]) as (embedder, server):
        assert embedder.embed_queries(["a"])[0] == unit(1, 0, 0)
    assert len(server.requests) == 2


def test_after_a_query_that_waited_in_vain_the_next_fails_at_once_but_documents_still_try() -> None:
    with embedding([hang(), vectors([1, 0, 0])], timeout_s=0.3) as (embedder, server):
        with pytest.raises(TransientError, match="in time"):
            embedder.embed_queries(["a"])
        with pytest.raises(TransientError, match="The embedder did not answer a moment ago"):
            embedder.embed_queries(["a"])
        assert embedder.embed_documents(["a"])[0] == unit(1, 0, 0)
    assert len(server.requests) == 2


@pytest.mark.parametrize("url", ["http://h:0/v1", "http://h/v1?key=1", "http:// h/v1"])
def test_an_address_or_key_no_request_can_carry_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="STACKMEM_EMBEDDING_BASE_URL"):
        OpenAIEmbedder(url, "", "m", DIM)
    with pytest.raises(SettingsError, match="STACKMEM_EMBEDDING_API_KEY"):
        OpenAIEmbedder("http://h/v1", "a b", "m", DIM)
