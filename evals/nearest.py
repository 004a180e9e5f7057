"""The memories nearest to some words, of those that existed at a time; from the stored vectors, without the index.

So any process can look, whoever owns the index, and what was made later does not push out what was there then.
"""

from datetime import datetime
from typing import Any

import numpy as np
from peewee import JOIN

from stackmem.exceptions import TransientError
from stackmem.models import Memory, MemoryVector, Window
from stackmem.ports import Embedder

_REMADE = ("made", "kept")  # a rebuild makes them again, but their window keeps its time


class NotEmbedded(TransientError):
    """Some memories have no vectors of this embedder yet: turns are judged when they have, see `stackmem reindex`."""


def existing(owner: str, then: datetime) -> set[str]:
    """Return the ids of the owner's memories that could be found at ``then``; what is forgotten since is left out.

    What a newer one had replaced by then is left out; what was replaced later is in, as it stands now.
    """
    rows: Any = (
        Memory.select(
            Memory.id, Memory.origin, Memory.created_at, Memory.superseded_by, Window.created_at.alias("seen")
        )
        .join(Window, JOIN.LEFT_OUTER)
        .where(Memory.owner == owner, Memory.status != "forgotten")
        .namedtuples()
    )
    made = {row.id: row.seen if row.seen and row.origin in _REMADE else row.created_at for row in rows}
    replaced_by = {row.id: row.superseded_by for row in rows}
    there = {identity for identity, since in made.items() if since <= then}
    return {identity for identity in there if replaced_by[identity] not in there}


def nearest(owner: str, words: str, then: datetime, embedder: Embedder, limit: int) -> list[Memory]:
    """Return the ``limit`` memories that existed then and are nearest by summary or source words, nearest first.

    Raises NotEmbedded while one of them has no vector: a judge that is not shown it would say that there was none.
    """
    there = existing(owner, then)
    if not there:
        return []
    query, best = embedder.embed_queries([words])[0], dict[str, float]()
    vectors = (
        MemoryVector.select(MemoryVector.memory, MemoryVector.vector)
        .join(Memory)
        .where(Memory.owner == owner, MemoryVector.fingerprint == str(embedder.fingerprint))
    )
    for identity, vector in vectors.tuples().iterator():
        if identity in there:
            similarity = float(np.dot(query, np.frombuffer(bytes(vector), dtype="<f4")))
            best[identity] = max(similarity, best.get(identity, -1.0))
    if len(best) < len(there):
        raise NotEmbedded
    ids = sorted(best, key=lambda identity: (-round(best[identity], 6), identity))[:limit]
    rows = {row.id: row for row in Memory.select().where(Memory.id.in_(ids))}
    return [rows[identity] for identity in ids if identity in rows]
