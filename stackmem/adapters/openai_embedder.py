"""Vectors from an OpenAI-compatible ``/v1/embeddings``: `stackmem embed-server`, llama.cpp, Ollama, vLLM, TEI, OpenAI.

A request: https://platform.openai.com/docs/api-reference/embeddings/create
"""

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stackmem.adapters.openai_answer import read_object
from stackmem.adapters.openai_client import Connection
from stackmem.adapters.openai_errors import Complaints, Refused
from stackmem.adapters.openai_timed import in_time, read_body
from stackmem.adapters.openai_vectors import read_vectors, unit_rows
from stackmem.circuit import Breaker
from stackmem.exceptions import PermanentError, TransientError
from stackmem.ports import Fingerprint, Vector

PLACE = "{}"  # where the query goes in the format
TEXTS, CHARACTERS = 32, 4000  # of one request: on a CPU, Qwen3 at full precision needs 20 s for that many characters
DOCUMENTS_WAIT = 10  # times as long as a query may a request of documents take
SHORTEST = 64  # characters to which texts are cut that a server calls too long
SLOW_S = 1.0  # a query that failed after this long kept somebody waiting

_BODY_LIMIT = 32_000_000  # bytes; 32 vectors of 4,096 numbers in decimals are 3 million
_ENCODING = re.compile(r"encoding_?format|base64", re.I)
_TOO_LONG = re.compile(
    r"too (?:long|large|many tokens)|max\w*.{0,40}(?:length|tokens|context|input|position)"
    r"|context.{0,10}(?:length|size)|must have less than \d+ tokens|longer than|exceed",
    re.I,
)


class OpenAIEmbedder:
    """An ``Embedder``. Safe to call from several threads; what a server turned out to accept is remembered.

    A query is put into ``query_format`` where its ``{}`` stands; documents are sent as they are. A query may take
    ``timeout_s`` seconds, some documents ten times as long. Raises SettingsError where address or key are unusable.
    """

    floor = 0.0  # unknown: every model has its own
    tie_margin = 0.02

    def __init__(
        self, base_url: str, api_key: str, model: str, dim: int, *, query_format: str = "", timeout_s: float = 3.0
    ):
        self.fingerprint = Fingerprint(f"openai-{model}", dim, query_format)
        self._model, self._query_format, self._timeout_s = model, query_format or PLACE, timeout_s
        self._complaints = Complaints(
            "STACKMEM_EMBEDDING", base_url.strip(), api_key.strip(), "embedder", "embeddings", "BASE_URL"
        )
        self._connection = Connection(self._complaints)
        self._breaker = Breaker("embedder", slow_s=min(SLOW_S, timeout_s / 2))
        self._options: dict[str, Any] = {"encoding_format": "base64"}  # a quarter of the bytes of decimals
        self._width = dim  # of the vectors that came last
        self._longest: int | None = None  # characters that the server takes, where it said that it has a limit

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim), float32. Raises TransientError or PermanentError.

        After a query that waited in vain, the next ones fail at once for some seconds.
        """
        queries = [self._query_format.replace(PLACE, text) for text in texts]
        with self._breaker.watched():
            return self._embed(queries, self._timeout_s)

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim), float32. Raises TransientError or PermanentError."""
        return self._embed(texts, self._timeout_s * DOCUMENTS_WAIT)

    def ready(self) -> bool:
        """Tell that nothing is to be loaded here."""
        return True

    def load(self) -> None:
        """Import the client (0.7 s), so that the first query need not."""
        self._connection.client()

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._connection.close()

    def _embed(self, texts: Sequence[str], timeout_s: float) -> Vector:
        vectors = [np.zeros((0, self.fingerprint.dim), np.float32)]
        vectors += [self._one_request(batch, timeout_s) for batch in _batches(texts)]
        return np.concatenate(vectors)

    def _one_request(self, texts: Sequence[str], timeout_s: float) -> Vector:
        """Ask until there are vectors, or a problem that asking otherwise does not help against."""
        deadline, is_second_try = time.monotonic() + timeout_s, False
        while True:
            sent = [text[: self._longest] for text in texts]
            options = self._options
            try:
                vectors = read_vectors(self._in_time(sent, options, deadline), len(sent))
            except Refused as refused:
                self._change_after(refused, options, sent)
            except TransientError:
                # A connection that the server closed meanwhile is found out by using it.
                if is_second_try or deadline - time.monotonic() < timeout_s / 2:
                    raise
                is_second_try = True
            else:
                if self._fits(vectors.shape[1], options):
                    return unit_rows(vectors)

    def _fits(self, width: int, options: dict[str, Any]) -> bool:
        """Tell whether vectors of this width are what is wanted; False: the server is now asked to cut them."""
        self._width = width
        if width > self.fingerprint.dim and "dimensions" not in options:
            self._options = options | {"dimensions": self.fingerprint.dim}
            return False
        if width != self.fingerprint.dim:
            raise self._wrong_dimension()
        return True

    def _wrong_dimension(self) -> PermanentError:
        return PermanentError(
            f"The embedder's vectors have {self._width} dimensions, not {self.fingerprint.dim}: set "
            f"STACKMEM_EMBEDDING_DIM={self._width}, then run `stackmem reindex`."
        )

    def _change_after(self, refused: Refused, options: dict[str, Any], texts: Sequence[str]) -> None:
        """Change how the server is asked; raise the error where nothing is left to change."""
        longest = max(map(len, texts))
        if "dimensions" in options and 400 <= refused.status < 500 and re.search("dimension|matryoshka", refused.codes):
            raise self._wrong_dimension()
        if refused.status >= 400 and options["encoding_format"] == "base64" and _ENCODING.search(refused.codes):
            self._options = options | {"encoding_format": "float"}
        elif refused.status in (400, 413, 422, 500) and longest > SHORTEST and _TOO_LONG.search(refused.codes):
            self._longest = max(longest // 2, SHORTEST)
        else:
            raise self._complaints.refused(refused)

    def _in_time(self, texts: list[str], options: dict[str, Any], deadline: float) -> dict[str, Any]:
        return in_time(lambda: self._post(texts, options, deadline), deadline, self._complaints, "embedder")

    def _post(self, texts: list[str], options: dict[str, Any], deadline: float) -> dict[str, Any]:
        with self._connection.translated():
            embeddings: Any = self._connection.client().embeddings.with_streaming_response
            left = max(deadline - time.monotonic(), 0.001)
            with embeddings.create(input=texts, model=self._model, timeout=left, **options) as response:
                return read_object(read_body(response, deadline, self._complaints, _BODY_LIMIT))


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in their order, in batches of limited number and length; a long text is one of its own."""
    batch: list[str] = []
    for text in texts:
        if batch and (len(batch) == TEXTS or sum(map(len, batch)) + len(text) > CHARACTERS):
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch
