"""Qwen3-Embedding on the CPU: queries instructed, documents not, last token, cut (MRL), then normalised.

The official usage is that of the model card of Qwen/Qwen3-Embedding-0.6B.
"""

import copy
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from stackmem.adapters.qwen3_files import DEFAULT_MODEL, QUERY_FORMAT, read_card, weights_folder
from stackmem.exceptions import PermanentError
from stackmem.ports import Fingerprint, Vector

TASK = "Given a question, retrieve memories of earlier conversations that answer it"  # in English, whatever is spoken
TOKENS = 512  # of one text; FlagEmbedding's limit as well
AT_ONCE = 128  # tokens of one forward pass: more are no faster on a CPU, and a live query waits for one pass at most
NARROWEST = 32  # dimensions, https://huggingface.co/Qwen/Qwen3-Embedding-0.6B


class Qwen3Embedder:
    """One model in memory; see docs/decisions/0020-qwen3-on-the-cpu.md for what each precision costs."""

    floor = 0.0  # no floor has been measured
    tie_margin = 0.02

    def __init__(
        self, model: str = "", dim: int | None = None, precision: str = "fp32", threads: int = 0, task: str = TASK
    ):
        """Read the model's small files; the weights are read by ``load``.

        Raises PermanentError where it is no such model or has fewer dimensions; TransientError where the hub is down.
        """
        model = model or DEFAULT_MODEL
        self._card = read_card(model)
        self._weights = _Weights(model, precision, threads or max(1, (os.cpu_count() or 1) // 2))
        dim = self._checked(model, dim or self._card.width)
        self.fingerprint = Fingerprint(f"qwen3-{self._card.name}", dim, task, precision, nested=True)

    def _checked(self, model: str, dim: int) -> int:
        if not NARROWEST <= dim <= self._card.width:
            raise PermanentError(f"{model} gives vectors of {NARROWEST} to {self._card.width} dimensions, not {dim}.")
        return dim

    def sized(self, dim: int) -> "Qwen3Embedder":
        """Return an embedder of other dimensions over the same weights. Raises PermanentError."""
        other = copy.copy(self)
        other.fingerprint = replace(self.fingerprint, dim=self._checked(self._card.name, dim))
        return other

    def ready(self) -> bool:
        """Tell whether the weights are loaded."""
        return self._weights.module is not None

    def load(self) -> None:
        """Load the weights now (seconds; the first time they may be fetched). Raises TransientError, PermanentError."""
        self._weights.load()

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim), float32."""
        task = self.fingerprint.instruction
        return self._embed([QUERY_FORMAT.format(task, text) for text in texts], query=True)

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim), float32."""
        return self._embed(texts, query=False)

    def _embed(self, texts: Sequence[str], *, query: bool) -> Vector:
        vectors = np.zeros((len(texts), self.fingerprint.dim), dtype=np.float32)
        if texts:
            self.load()
            tokens = [self._card.tokens(text, TOKENS) for text in texts]
            for places in batches([len(ids) for ids in tokens]):
                with self._weights.turns.taken(query=query):
                    vectors[places] = self._weights.forward([tokens[place] for place in places], self.fingerprint.dim)
        return vectors


class _Weights:
    """A model's weights, loaded once, whatever dimensions are asked of it."""

    def __init__(self, model: str, precision: str, threads: int):
        self._model, self._precision, self.threads = model, precision, threads
        self.module: Any = None
        self._loading, self.turns = threading.Lock(), QueriesFirst()

    def load(self) -> None:
        with self._loading:
            if self.module is None:
                import torch

                from stackmem.adapters import qwen3_model

                torch.set_num_threads(self.threads)
                self.module = qwen3_model.load(weights_folder(self._model), self._precision)

    def forward(self, batch: Sequence[list[int]], dim: int) -> Vector:
        import torch

        lengths = [len(ids) for ids in batch]
        # Padded on the right, whatever side the tokenizer pads: what comes later cannot reach a causal model's earlier
        # tokens, so no mask is needed and the state at the last real token is that of the text alone.
        ids = torch.tensor([row + [0] * (max(lengths) - len(row)) for row in batch])
        with torch.inference_mode():
            states = self.module(input_ids=ids, use_cache=False).last_hidden_state
            last = states[torch.arange(len(batch)), torch.tensor(lengths) - 1].float()
            cut = torch.nn.functional.normalize(last[:, :dim], dim=-1)
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
