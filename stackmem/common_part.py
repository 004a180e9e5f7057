"""What all memories of an owner have in common, which a search leaves out of its query.

Vectors of talk share a part that says no more than "this is talk". Among thousands of memories, whatever is most like
talk in general would stand before what was asked for. Mu and Viswanath, "All-but-the-Top", 2018,
https://arxiv.org/abs/1702.01417; figures in docs/decisions/0013-recall-measured.md.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from peewee import fn

from stackmem.ids import HASH_AT
from stackmem.models import Memory, MemoryVector
from stackmem.ports import CommonPart, Fingerprint, Vector
from stackmem.ranking import NORMALISE_FROM

SAMPLE = 500  # memories whose vectors are averaged: recall is the same as with all of 10,000


class CommonParts:
    """The common part of every owner, reckoned from the stored vectors and kept until its memories change."""

    def __init__(self, fingerprint: Fingerprint):
        self._fingerprint = str(fingerprint)
        self._known: dict[str, CommonPart | None] = {}

    def of(self, owner: str) -> CommonPart | None:
        """Return the common part, or None where the owner has too few memories to have one."""
        if owner not in self._known:
            self.renew(owner)
        return self._known.get(owner)

    def renew(self, owner: str) -> None:
        """Reckon it again: the owner's memories changed."""
        self._known[owner] = self._reckoned(owner)

    def drop(self) -> None:
        """Forget all: the stored vectors were replaced."""
        self._known.clear()

    def _reckoned(self, owner: str) -> CommonPart | None:
        active = Memory.select(Memory.id).where(Memory.owner == owner, Memory.status == "active")
        chosen = [row.id for row in active.order_by(fn.SUBSTR(Memory.id, HASH_AT), Memory.id).limit(SAMPLE)]
        if len(chosen) < NORMALISE_FROM:  # the mean of few is what they are about
            return None
        rows: Any = MemoryVector.select(MemoryVector.ordinal, MemoryVector.vector).where(
            MemoryVector.memory.in_(chosen), MemoryVector.fingerprint == self._fingerprint
        )
        stored = list(rows.order_by(MemoryVector.memory, MemoryVector.ordinal).tuples())
        summaries = [vector for ordinal, vector in stored if ordinal == 0]
        sources = [vector for ordinal, vector in stored if ordinal > 0]
        return CommonPart(_mean(summaries), _mean(sources)) if summaries and sources else None


def _mean(stored: Sequence[bytes]) -> Vector:
    vectors = np.stack([np.frombuffer(bytes(vector), dtype="<f4") for vector in stored])
    mean: Vector = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean
