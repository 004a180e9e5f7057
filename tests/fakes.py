"""Hand-written stand-ins for the outside; the contract suite holds them to the same claims as the real things."""

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from stackmem.exceptions import PermanentError, StackmemError, TransientError
from stackmem.ports import CommonPart, Embedder, Fingerprint, IndexFilter, IndexHit, IndexPoint, Vector


class FixedClock:
    """A clock that moves only when told to."""

    def __init__(self, now: datetime = datetime(2026, 7, 23, 1, 0, tzinfo=UTC)):
        self._now = now.astimezone(UTC)

    def now(self) -> datetime:
        """Return the time it was set to, in UTC."""
        return self._now

    def advance(self, **duration: float) -> datetime:
        """Move on by ``timedelta(**duration)`` and return the new time."""
        self._now += timedelta(**duration)
        return self._now

    def set(self, now: datetime) -> None:
        """Move to another time, earlier ones too."""
        self._now = now.astimezone(UTC)


class LateEmbedder:
    """A real embedder that is not loaded before ``loaded`` is set, and does not load at all while ``fault`` is."""

    def __init__(self, inner: Embedder, fault: StackmemError | None = None):
        self.fingerprint, self.floor, self.tie_margin = inner.fingerprint, inner.floor, inner.tie_margin
        self._inner, self.fault = inner, fault
        self.loaded = threading.Event()
        self.loads = 0

    def ready(self) -> bool:
        """Tell whether it may be used."""
        return self.loaded.is_set()

    def load(self) -> None:
        """Wait until it may be used, or fail."""
        self.loads += 1
        if self.fault:
            raise self.fault
        self.loaded.wait()

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return the real vectors, once it is loaded."""
        self.load()
        return self._inner.embed_queries(texts)

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return the real vectors, once it is loaded."""
        self.load()
        return self._inner.embed_documents(texts)


class _Generation:
    def __init__(self, fingerprint: Fingerprint):
        self.fingerprint = fingerprint
        self.points: dict[str, IndexPoint] = {}


class MemoryIndex:
    """A handle to a generation held in a dict; exact search with numpy."""

    def __init__(self, generation: _Generation, lock: threading.RLock):
        self.generation: _Generation | None = generation
        self._lock = lock

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Write or replace points; all or none."""
        with self._lock:
            generation = self._open()
            for point in points:
                _check(point.summary, (generation.fingerprint.dim,))
                if len(point.sources):
                    _check(point.sources, (len(point.sources), generation.fingerprint.dim))
                if not (point.memory_id.startswith("mem_") and len(point.memory_id) == 30):
                    raise PermanentError(f"Not a memory id: {point.memory_id!r}.")
            generation.points |= {point.memory_id: point for point in points}

    def delete(self, memory_ids: Sequence[str]) -> None:
        """Remove points; unknown ids are ignored."""
        with self._lock:
            generation = self._open()
            for memory_id in memory_ids:
                generation.points.pop(memory_id, None)

    def search(self, query: Vector, where: IndexFilter, limit: int, common: CommonPart | None = None) -> list[IndexHit]:
        """Return the best by summary and the best by sources, each with both scores."""
        with self._lock:
            generation = self._open()
            _check(query, (generation.fingerprint.dim,))
            found = [
                _hit(point, query, common) for point in generation.points.values() if _counts(point.payload, where)
            ]
        summary, source = ("summary_score", "source_score") if common is None else ("summary_apart", "source_apart")
        by_summary = sorted(found, key=lambda hit: -getattr(hit, summary))[: max(limit, 0)]
        with_sources = [hit for hit in found if hit.source_score is not None]
        by_sources = sorted(with_sources, key=lambda hit: -getattr(hit, source))[: max(limit, 0)]
        return list(dict.fromkeys(by_summary + by_sources))

    def scan(self, owner: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (memory_id, payload) in order of id."""
        with self._lock:
            found = sorted(self._open().points.items())
        for memory_id, point in found:
            if owner is None or point.payload.get("owner") == owner:
                yield memory_id, dict(point.payload)

    def _open(self) -> _Generation:
        if self.generation is None:
            raise TransientError("The index is closed.")
        return self.generation


class MemoryIndexStore:
    """An IndexStore in memory. What was made current survives ``close`` and a new ``open`` of the same store."""

    kind = "memory"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._current: _Generation | None = None
        self._handles: list[MemoryIndex] = []
        self._begun: MemoryIndex | None = None

    def open(self, fingerprint: Fingerprint) -> MemoryIndex | None:
        """Return the current generation where it has this fingerprint."""
        with self._lock:
            if self._current is None or self._current.fingerprint != fingerprint:
                return None
            self._handles.append(MemoryIndex(self._current, self._lock))
            return self._handles[-1]

    def begin(self, fingerprint: Fingerprint) -> MemoryIndex:
        """Return a new, empty generation; one begun before is closed."""
        with self._lock:
            self._abandon()
            self._begun = MemoryIndex(_Generation(fingerprint), self._lock)
            return self._begun

    def swap(self) -> MemoryIndex:
        """Make the generation begun last the current one; handles of the old one reach it from now on."""
        with self._lock:
            if self._begun is None:
                raise PermanentError("No generation was begun.")
            index, self._begun = self._begun, None
            self._handles.append(index)
            self._current = index.generation
            for handle in self._handles:
                handle.generation = self._current
            return index

    def close(self) -> None:
        """Close every handle."""
        with self._lock:
            self._abandon()
            for handle in self._handles:
                handle.generation = None
            self._handles = []

    def _abandon(self) -> None:
        if self._begun is not None:
            self._begun.generation = None
            self._begun = None


def _check(vector: Vector, shape: tuple[int, ...]) -> None:
    if np.shape(vector) != shape or not np.isfinite(vector).all():
        raise PermanentError(f"Wanted {shape} finite numbers, got {np.shape(vector)}.")


def _cosine(left: Vector, right: Vector) -> float:
    norm = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(np.dot(left, right)) / norm if norm else 0.0


def _nearest(query: Vector, sources: Vector) -> float | None:
    return max((_cosine(query, source) for source in sources), default=None)


def _hit(point: IndexPoint, query: Vector, common: CommonPart | None) -> IndexHit:
    plain = _cosine(query, point.summary), _nearest(query, point.sources)
    if common is None:
        return IndexHit(point.memory_id, *plain)
    apart = _cosine(query - common.summary, point.summary), _nearest(query - common.sources, point.sources)
    return IndexHit(point.memory_id, *plain, *apart)


def _counts(payload: dict[str, Any], where: IndexFilter) -> bool:
    return (
        payload.get("owner") == where.owner
        and where.status in (None, payload.get("status"))
        and where.memory_type in (None, payload.get("memory_type"))
        and (not where.entity_keys or bool(set(where.entity_keys) & set(payload.get("entity_keys") or ())))
        and _in_time(payload, where)
    )


def _in_time(payload: dict[str, Any], where: IndexFilter) -> bool:
    if where.since is None and where.until is None:
        return True
    for bound in (where.since, where.until):
        if bound is not None and bound.tzinfo is None:
            raise PermanentError(f"A time without a zone cannot be searched for: {bound}.")
    return _overlaps(payload, "occurred_from", "occurred_to", where) or _overlaps(payload, "said_at", "said_at", where)


def _overlaps(payload: dict[str, Any], first: str, last: str, where: IndexFilter) -> bool:
    if where.until is not None and not (payload.get(first) and datetime.fromisoformat(payload[first]) <= where.until):
        return False
    return where.since is None or bool(payload.get(last) and datetime.fromisoformat(payload[last]) >= where.since)
