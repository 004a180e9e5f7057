"""Qwen3-Embedding on the CPU: queries instructed, documents not, last token, cut (MRL), then normalised.

The official usage is that of the model card of Qwen/Qwen3-Embedding-0.6B.
"""

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from stackmem.adapters.qwen3_files import DEFAULT_MODEL, read_card, weights_folder
from stackmem.exceptions import PermanentError
from stackmem.ports import Fingerprint, Vector

log = logging.getLogger(__name__)

TASK = "Given a question, retrieve memories of earlier conversations that answer it"  # in English, whatever is spoken
TOKENS = 512  # of one text; FlagEmbedding's limit as well
AT_ONCE = 128  # tokens of one forward pass: more are no faster on a CPU, and a live query waits for one pass at most
NARROWEST = 32  # dimensions, https://huggingface.co/Qwen/Qwen3-Embedding-0.6B


class Qwen3Embedder:
    """One model in memory; see docs/decisions/0020-qwen3-on-the-cpu.md for what each precision costs."""

    floor = 0.0  # no floor has been measured

    def __init__(
        self, model: str = "", dim: int | None = None, precision: str = "fp32", threads: int = 0, task: str = TASK
    ):
        """Read the model's small files; the weights are read by ``load``.

        Raises PermanentError where it is no such model or has fewer dimensions; TransientError where the hub is down.
        """
        self._model = model or DEFAULT_MODEL
        self._card = read_card(self._model)
        self._precision, self._task = precision, task
        self._threads = threads or max(1, (os.cpu_count() or 1) // 2)
        width = self._card.width
        if dim is not None and not NARROWEST <= dim <= width:
            raise PermanentError(f"{self._model} gives vectors of {NARROWEST} to {width} dimensions, not {dim}.")
        self.fingerprint = Fingerprint(f"qwen3-{self._card.name}", dim or width, task, precision)
        self._module: Any = None
        self._loading, self._turns = threading.Lock(), QueriesFirst()

    def ready(self) -> bool:
        """Tell whether the weights are loaded."""
        return self._module is not None

    def load(self) -> None:
        """Load the weights now (seconds; the first time they may be fetched). Raises TransientError, PermanentError."""
        with self._loading:
            if self._module is None:
                import torch

                from stackmem.adapters import qwen3_model

                torch.set_num_threads(self._threads)
                self._module = qwen3_model.load(weights_folder(self._model), self._precision)

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim), float32."""
        from stackmem.adapters.qwen3_model import QUERY_FORMAT

        return self._embed([QUERY_FORMAT.format(self._task, text) for text in texts], query=True)

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim), float32."""
        return self._embed(texts, query=False)

    def _embed(self, texts: Sequence[str], *, query: bool) -> Vector:
        vectors = np.zeros((len(texts), self.fingerprint.dim), dtype=np.float32)
        if texts:
            self.load()
            tokens = [self._card.tokens(text, TOKENS) for text in texts]
            for places in batches([len(ids) for ids in tokens]):
                with self._turns.taken(query=query):
                    vectors[places] = self._forward([tokens[place] for place in places])
        return vectors

    def _forward(self, batch: Sequence[list[int]]) -> Vector:
        import torch

        lengths = [len(ids) for ids in batch]
        # Padded on the right, whatever side the tokenizer pads: what comes later cannot reach a causal model's earlier
        # tokens, so no mask is needed and the state at the last real token is that of the text alone.
        ids = torch.tensor([row + [0] * (max(lengths) - len(row)) for row in batch])
        with torch.inference_mode():
            states = self._module(input_ids=ids, use_cache=False).last_hidden_state
            last = states[torch.arange(len(batch)), torch.tensor(lengths) - 1].float()
            cut = torch.nn.functional.normalize(last[:, : self.fingerprint.dim], dim=-1)
        return np.asarray(cut.numpy(), dtype=np.float32)


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the places of texts that go through the model together: of like length, AT_ONCE tokens or one text."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: (lengths[place], place)):
        if batch and lengths[place] * (len(batch) + 1) > AT_ONCE:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


class QueriesFirst:
    """One forward pass at a time (two would fight over the cores); somebody who waits for an answer goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy, self._queries = False, 0

    @contextmanager
    def taken(self, *, query: bool) -> Iterator[None]:
        """Wait for the turn and hold it for the block."""
        with self._changed:
            self._queries += query
            self._changed.wait_for(lambda: not self._busy and (query or not self._queries))
            self._queries -= query
            self._busy = True
        try:
            yield
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
