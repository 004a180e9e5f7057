"""Another embedder than the one that made the vectors: what changing costs, and who answers until it is done."""

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from peewee import fn

from stackmem.models import Memory, MemoryVector
from stackmem.ports import Embedder, Fingerprint, Vector

log = logging.getLogger(__name__)

SAMPLE = 5  # memories whose summaries are embedded to see how long one takes


@dataclass(frozen=True)
class Change:
    """What a change of embedder means for this store.

    ``before`` and ``after`` are fingerprints, ``texts`` how many must be embedded (0: the stored vectors are cut),
    ``seconds`` what that takes (None: not measured yet), ``searched`` whether the old vectors still answer.
    """

    before: str
    after: str
    texts: int
    searched: bool
    seconds: float | None = None

    def sentence(self) -> str:
        """Return what a person must know of it."""
        cost = f"{self.texts} texts must be embedded again" if self.texts else "no text must be embedded again"
        if self.texts and self.seconds is not None:
            cost += f", about {max(1, round(self.seconds))} s"
        meanwhile = (
            f"Run `stackmem reindex`; until it is done, {self.before} answers."
            if self.searched
            else "This is done in the background while the server runs, or by `stackmem reindex`; until it is done, "
            "searches go by words alone."
        )
        return f"The embedder changed from {self.before} to {self.after}: {cost}. {meanwhile}"


def made_by(memory_ids: Sequence[str] | None = None) -> list[str]:
    """Return the fingerprints of all stored vectors, or of these memories', that of the most vectors first."""
    count = fn.COUNT(MemoryVector.fingerprint)
    rows = MemoryVector.select(MemoryVector.fingerprint).group_by(MemoryVector.fingerprint).order_by(count.desc())
    if memory_ids is not None:
        rows = rows.where(MemoryVector.memory.in_(list(memory_ids)))
    return [row.fingerprint for row in rows]


def is_made_by(fingerprint: Fingerprint) -> bool:
    """Tell whether there is any stored vector of this fingerprint."""
    return bool(MemoryVector.select().where(MemoryVector.fingerprint == str(fingerprint)).exists())


def change_of(fingerprint: Fingerprint, before: str, *, searched: bool) -> Change:
    """Return what it means to go from the vectors of ``before`` to those of ``fingerprint``."""
    texts = 0
    if wider(fingerprint, [before]) is None:
        lacking = MemoryVector.memory.in_(lacking_vectors(fingerprint))
        texts = MemoryVector.select().where(MemoryVector.fingerprint == before, lacking).count()
    return Change(before, str(fingerprint), texts, searched)


def lacking_vectors(fingerprint: Fingerprint) -> Any:
    """Return a query of the ids of all memories without any vector of this fingerprint, in order."""
    there = MemoryVector.select(MemoryVector.memory).where(MemoryVector.fingerprint == str(fingerprint))
    rows = Memory.select(Memory.id).where(Memory.status != "forgotten", Memory.id.not_in(there))
    return rows.order_by(Memory.id)


# --- cutting ---------------------------------------------------------------------------------------------------------


def wider(fingerprint: Fingerprint, stored: Sequence[str]) -> str | None:
    """Return which of these fingerprints' vectors can be cut to this one's: the same but for more dimensions."""
    if not fingerprint.nested:
        return None
    dims = {name: dim for name in stored if (dim := other_dim(fingerprint, name)) and dim > fingerprint.dim}
    return min(dims, key=lambda name: dims[name], default=None)


def other_dim(fingerprint: Fingerprint, stored: str) -> int | None:
    """Return the dimension in a stored fingerprint that is the same as this one but for it; None for others."""
    numbers = map(int, re.findall(r"\d+", stored))
    return next((dim for dim in numbers if str(replace(fingerprint, dim=dim)) == stored), None)


def cut(vector: Vector, dim: int) -> Vector:
    """Return the first ``dim`` numbers as a unit vector: what the embedder itself does (MRL)."""
    short = vector[:dim]
    return np.asarray(short / max(float(np.linalg.norm(short)), 1e-12), dtype=np.float32)


# --- what it costs ---------------------------------------------------------------------------------------------------


def sample() -> list[str]:
    """Return some texts of this store, as they are embedded."""
    rows = Memory.select(Memory.topic, Memory.summary).where(Memory.status == "active").limit(SAMPLE)
    return [f"{row.topic}\n{row.summary}" for row in rows]


def measured(change: Change, embedder: Embedder, texts: Sequence[str]) -> Change:
    """Return the change with its seconds, reckoned from embedding these texts now. Raises what the embedder raises."""
    embedder.embed_documents(texts[:1])  # loads it; the first call is slower than those that follow
    started = time.perf_counter()
    embedder.embed_documents(texts)
    return replace(change, seconds=(time.perf_counter() - started) / len(texts) * change.texts)
