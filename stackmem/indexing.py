"""Embed memories, keep their vectors in the database, put them into the index."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from stackmem import sources
from stackmem.database import transaction
from stackmem.embedder_change import cut, made_by, wider
from stackmem.index_handle import IndexHandle
from stackmem.models import Memory, MemoryVector, Owner, PointDeletion, Turn
from stackmem.ports import Embedder, Fingerprint, IndexFilter, IndexPoint, Vector, VectorIndex
from stackmem.traffic import live

log = logging.getLogger(__name__)

BATCH = 64  # memories embedded, upserted and marked together
WINDOW = 2  # source turns in one source window (about 5 lines); windows slide by one turn
WINDOWS = 16  # source windows of one memory at most
CHARACTERS = 2000  # of one text that are embedded
NEIGHBOUR_POOL = 50
NEIGHBOURS = 20  # nearest older memories kept for compare
NEAR = 0.35  # similarity from which a memory is a neighbour

Progress = Callable[[int, int], None]


def summary_text(memory: Memory) -> str:
    """Return the text of a memory's summary vector."""
    return f"{memory.topic}\n{memory.summary}"[:CHARACTERS]


def source_windows(turns: Sequence[Turn]) -> list[str]:
    """Return the texts of a memory's source vectors: windows over its source turns, sliding by one turn."""
    lines = ["\n".join(part for part in (turn.user, turn.reply) if part) for turn in turns]
    count = max(1, len(lines) - WINDOW + 1)
    step = max(1, -(-count // WINDOWS))  # many turns: fewer windows, evenly spread
    windows = ["\n".join(lines[i : i + WINDOW])[:CHARACTERS] for i in range(0, count, step)]
    return [window for window in windows if window.strip()]


def payload(memory: Memory) -> dict[str, Any]:
    """Return what the index filters by, besides the vectors."""
    return {
        "owner": memory.owner,
        "status": memory.status,
        "memory_type": memory.memory_type,
        "entity_keys": memory.entity_keys,
        **{
            name: getattr(memory, name).isoformat(timespec="seconds")
            for name in ("occurred_at", "occurred_from", "occurred_to", "said_at")
        },
        "version": memory.version,  # of the row: a point of another one is stale
    }


def index_owner(handle: IndexHandle, owner: str, progress: Progress | None = None) -> int:
    """Bring an owner's memories into the index, batch by batch; return how many points were written.

    Returns 0 at once when nothing is outdated. Raises TransientError when the embedder or the index is down.
    """
    total, done = _outdated(owner).count(), 0
    with handle.lock, handle.alone(f"index:{owner}") as is_alone:
        if handle.current is None or not is_alone:  # who is at it takes what is new as well, or the sweep finds it
            return 0
        # The hint is taken: what changes from now on needs another one.
        Owner.update(index_enqueued_at=None).where(Owner.name == owner).execute()
        gone = _delete_points(handle.current, owner)
        # Older windows first: the neighbours of a memory are looked for among those that are in the index already.
        while batch := list(_outdated(owner).order_by(Memory.window.asc(nulls="first"), Memory.id).limit(BATCH)):
            live.give_way()
            _write(handle.current, handle.searching, batch)
            done += len(batch)
            if progress:
                progress(done, max(total, done))
        if gone or done:
            handle.common.renew(owner)
    return done


def _outdated(owner: str) -> Any:
    return Memory.select().where(Memory.outdated, Memory.owner == owner)


def _write(index: VectorIndex, embedder: Embedder, batch: Sequence[Memory]) -> None:
    """Embed, store the vectors, upsert durably, and only then mark: in this order nothing can be lost."""
    points = points_of(batch, embedder)
    index.upsert([point for point in points if point.payload["status"] != "forgotten"])
    neighbours = {
        point.memory_id: _neighbours(index, memory, point) for memory, point in zip(batch, points, strict=True)
    }
    with transaction():
        for memory in batch:
            # A change made meanwhile raised the version: that one stays outdated.
            Memory.update(outdated=False, neighbours=neighbours[memory.id]).where(
                Memory.id == memory.id, Memory.version == memory.version
            ).execute()


def _neighbours(index: VectorIndex, memory: Memory, point: IndexPoint) -> list[str]:
    """Return the nearest older memories, nearest first, whatever their status: compare reads that when it runs."""
    if memory.window_id is None or memory.status != "active":
        return []
    hits = index.search(point.summary, IndexFilter(memory.owner, status=None), NEIGHBOUR_POOL)
    near = {hit.memory_id: hit.summary_score for hit in hits if hit.summary_score >= NEAR}
    older = Memory.select(Memory.id).where(
        Memory.id.in_(list(near)), Memory.window.is_null() | (Memory.window < memory.window_id)
    )
    ids = sorted((row.id for row in older), key=lambda memory_id: (-round(near[memory_id], 6), memory_id))
    return ids[:NEIGHBOURS]


def _delete_points(index: VectorIndex, owner: str) -> int:
    ids = [row.memory_id for row in PointDeletion.select().where(PointDeletion.owner == owner)]
    if ids:
        index.delete(ids)
        PointDeletion.delete().where(PointDeletion.memory_id.in_(ids)).execute()
    return len(ids)


# --- vectors ---------------------------------------------------------------------------------------------------------


def points_of(memories: Sequence[Memory], embedder: Embedder) -> list[IndexPoint]:
    """Return the points of memories, from stored vectors where they are current; new ones are embedded and stored."""
    texts = _texts(memories)
    stored = _stored_vectors([memory.id for memory in memories], str(embedder.fingerprint))
    missing = [
        (memory_id, ordinal, text)
        for memory_id, parts in texts.items()
        for ordinal, text in enumerate(parts)
        if (memory_id, ordinal, _text_hash(text)) not in stored
    ]
    if missing:
        vectors = _made(missing, embedder)
        _store_vectors(missing, vectors, texts, embedder)
        for (memory_id, ordinal, text), vector in zip(missing, vectors, strict=True):
            stored[memory_id, ordinal, _text_hash(text)] = vector
    return [_point(memory, texts[memory.id], stored, embedder.fingerprint.dim) for memory in memories]


def _made(missing: Sequence[tuple[str, int, str]], embedder: Embedder) -> Vector:
    """Return the vectors of these texts, shape (len(missing), dim): cut from stored wider ones, else embedded."""
    memory_ids = list({memory_id for memory_id, _, _ in missing})
    source = wider(embedder.fingerprint, made_by(memory_ids)) if embedder.fingerprint.nested else None
    stored = _stored_vectors(memory_ids, source) if source else {}
    keys = [(memory_id, ordinal, _text_hash(text)) for memory_id, ordinal, text in missing]
    new = [text for key, (_, _, text) in zip(keys, missing, strict=True) if key not in stored]
    embedded = iter(embedder.embed_documents(new) if new else ())
    dim = embedder.fingerprint.dim
    return np.stack([cut(stored[key], dim) if key in stored else next(embedded) for key in keys])


def _texts(memories: Sequence[Memory]) -> dict[str, list[str]]:
    turns = sources.source_turns([memory.id for memory in memories])
    return {memory.id: [summary_text(memory), *source_windows(turns[memory.id])] for memory in memories}


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _stored_vectors(memory_ids: Sequence[str], fingerprint: str) -> dict[tuple[str, int, str], Vector]:
    rows = MemoryVector.select().where(
        MemoryVector.memory.in_(list(memory_ids)), MemoryVector.fingerprint == fingerprint
    )
    return {(row.memory_id, row.ordinal, row.text_hash): np.frombuffer(bytes(row.vector), dtype="<f4") for row in rows}


def stored_is_current(memory_ids: Sequence[str], fingerprint: Fingerprint) -> bool:
    """Tell whether the stored vectors of these memories, where they have any, are of the texts made of them now."""
    texts = _texts(list(Memory.select().where(Memory.id.in_(list(memory_ids)))))
    made = {
        (memory_id, place, _text_hash(text)) for memory_id, parts in texts.items() for place, text in enumerate(parts)
    }
    stored = _stored_vectors(memory_ids, str(fingerprint)).keys()
    known = {memory_id for memory_id, _, _ in stored}
    return stored == {each for each in made if each[0] in known}


def _store_vectors(
    missing: Iterable[tuple[str, int, str]], vectors: Vector, texts: dict[str, list[str]], embedder: Embedder
) -> None:
    fingerprint = str(embedder.fingerprint)
    rows = [
        {
            "memory": memory_id,
            "fingerprint": fingerprint,
            "ordinal": ordinal,
            "text_hash": _text_hash(text),
            "vector": np.asarray(vector, dtype="<f4").tobytes(),
        }
        for (memory_id, ordinal, text), vector in zip(missing, vectors, strict=True)
    ]
    with transaction():
        # Of what was forgotten while it was embedded nothing is stored: it may be purged already.
        rows_there = Memory.select(Memory.id).where(Memory.id.in_(list(texts)), Memory.status != "forgotten")
        there = {row.id for row in rows_there}
        for row in rows:
            if row["memory"] in there:
                MemoryVector.insert(row).on_conflict(
                    conflict_target=[MemoryVector.memory, MemoryVector.fingerprint, MemoryVector.ordinal],
                    preserve=[MemoryVector.text_hash, MemoryVector.vector],
                ).execute()
        for memory_id, parts in texts.items():
            # Windows that no longer exist (a source was added or left).
            MemoryVector.delete().where(
                MemoryVector.memory == memory_id,
                MemoryVector.fingerprint == fingerprint,
                MemoryVector.ordinal >= len(parts),
            ).execute()


def _point(memory: Memory, parts: Sequence[str], stored: dict[tuple[str, int, str], Vector], dim: int) -> IndexPoint:
    vectors = [stored[memory.id, ordinal, _text_hash(text)] for ordinal, text in enumerate(parts)]
    windows = np.stack(vectors[1:]) if vectors[1:] else np.zeros((0, dim), dtype=np.float32)
    return IndexPoint(memory.id, vectors[0], windows, payload(memory))
