"""The index on Qdrant Edge: the vendor's engine inside this process, one folder a generation.

``<folder>/LOCK``, ``<folder>/CURRENT`` (the current generation's name) and, for every generation,
``<n>-<fingerprint>/engine.json`` (who wrote it, with which fingerprint) beside ``<n>-<fingerprint>/shard/`` (Edge's own).
"""

import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import qdrant_edge as edge

from stackmem.adapters import qdrant_points as points
from stackmem.adapters.folder_lock import FolderLock
from stackmem.exceptions import PermanentError, StackmemError, TransientError
from stackmem.ports import Fingerprint, IndexFilter, IndexHit, IndexPoint, Vector

log = logging.getLogger(__name__)

ENGINE = f"qdrant-edge-py {version('qdrant-edge-py')}"
# Edge writes through memory maps of sparse files: on a full disk it dies of SIGBUS instead of raising (measured, 0.9.0).
RESERVE = 64 * 1024 * 1024  # bytes that must stay free beside what a write brings


# --- one generation --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Shard:
    """An open shard, and how many threads are inside it."""

    engine: edge.EdgeShard
    folder: Path
    dim: int
    users: int = 0


class EdgeIndex:
    """A generation on Edge; after a swap the handles of the old one reach the new one."""

    def __init__(self, shard: _Shard, changed: threading.Condition):
        self._shard: _Shard | None = shard
        self._changed = changed

    def upsert(self, new: Sequence[IndexPoint]) -> None:
        """Write or replace points and flush.

        Raises PermanentError on a wrong dimension, NaN or a bad id (nothing is written then), TransientError where the
        disk is full.
        """
        if not new:
            return
        with self._entered() as shard:
            batch = [_edge_point(point, shard.dim) for point in new]
            _check_space(shard.folder, sum(point.summary.nbytes + point.sources.nbytes for point in new))
            shard.engine.update(edge.UpdateOperation.upsert_points(batch))
            shard.engine.flush()  # Edge does no fsync before

    def delete(self, memory_ids: Sequence[str]) -> None:
        """Remove points and flush; unknown ids are ignored. Raises TransientError where the disk is full."""
        found = points.known_point_ids(memory_ids)
        if not found:
            return
        with self._entered() as shard:
            _check_space(shard.folder, 0)
            shard.engine.update(edge.UpdateOperation.delete_points(list(found)))
            shard.engine.flush()

    def search(self, query: Vector, where: IndexFilter, limit: int) -> list[IndexHit]:
        """Return the best ``limit`` by summary and the best ``limit`` by sources, each with both scores.

        Raises PermanentError on a query of another dimension or with NaN.
        """
        if limit < 1:
            return []
        with self._entered() as shard:
            vector = points.checked_query(query, shard.dim).tolist()
            condition = _edge_filter(where)
            summary, sources = _ask(
                shard.engine,
                _nearest(points.SUMMARY, vector, condition, limit),
                _nearest(points.SOURCES, vector, condition, limit),
            )
            return points.hits(
                summary | _scores_of(shard.engine, points.SUMMARY, vector, sources.keys() - summary.keys()),
                sources | _scores_of(shard.engine, points.SOURCES, vector, summary.keys() - sources.keys()),
            )

    def scan(self, owner: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (memory_id, payload) in order of id. A swap between two pages goes on in the new generation."""
        condition = None if owner is None else edge.Filter(must=[_any_of("owner", [owner])])
        offset = None
        while True:
            with self._entered() as shard:
                page, offset = shard.engine.scroll(
                    edge.ScrollRequest(offset=offset, limit=points.PAGE, filter=condition, with_payload=True)
                )
            for record in page:
                yield points.memory_id_of(record.id), dict(record.payload or {})
            if offset is None:
                return

    @contextmanager
    def _entered(self) -> Iterator[_Shard]:
        """Keep the shard open while inside, and translate what the engine raises."""
        with self._changed:
            shard = self._shard
            if shard is None:
                raise TransientError("The index is closed.")
            shard.users += 1
        try:
            with _translated():
                yield shard
        finally:
            with self._changed:
                shard.users -= 1
                self._changed.notify_all()


def _edge_point(point: IndexPoint, dim: int) -> edge.Point:
    summary, sources = points.checked_point(point, dim)
    vectors: dict[str, Any] = {points.SUMMARY: summary.tolist()}
    if len(sources):  # Edge refuses an empty multi-vector
        vectors[points.SOURCES] = sources.tolist()
    return edge.Point(points.point_id(point.memory_id), vectors, point.payload)


def _edge_filter(where: IndexFilter) -> edge.Filter:
    must: list[Any] = [_any_of(field, values) for field, values in points.matches(where)]
    alternatives: list[Any] = [
        edge.Filter(must=[edge.FieldCondition(field, range=_range(bound, at)) for field, bound, at in conditions])
        for conditions in points.times(where)
    ]
    return edge.Filter(must=must, should=alternatives or None)


def _any_of(field: str, values: list[str]) -> edge.FieldCondition:
    return edge.FieldCondition(field, match=edge.MatchAny(values))


def _range(bound: str, at: str) -> edge.RangeDateTime:
    return edge.RangeDateTime(gte=at) if bound == "gte" else edge.RangeDateTime(lte=at)


def _nearest(name: str, vector: list[float], condition: edge.Filter, limit: int) -> edge.QueryRequest:
    return edge.QueryRequest(limit=limit, query=edge.Query.Nearest(vector, using=name), filter=condition)


def _scores_of(engine: edge.EdgeShard, name: str, vector: list[float], memory_ids: set[str]) -> dict[str, float]:
    """Return the scores of these points; one without this vector has none."""
    if not memory_ids:
        return {}
    wanted: set[Any] = {points.point_id(memory_id) for memory_id in memory_ids}
    return _ask(engine, _nearest(name, vector, edge.Filter(must=[edge.HasIdCondition(wanted)]), len(wanted)))[0]


def _ask(engine: edge.EdgeShard, *requests: edge.QueryRequest) -> list[dict[str, float]]:
    answers = engine.query_batch(edge.QueryBatchRequest(list(requests)))
    return [{points.memory_id_of(hit.id): float(hit.score) for hit in answer} for answer in answers]


# --- errors and room -------------------------------------------------------------------------------------------------


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what the engine raises into our types. It raises bare Exception, so the message is all there is to read."""
    try:
        yield
    except StackmemError:
        raise
    except Exception as exc:
        raise _as_ours(exc) from exc
    except BaseException as exc:
        # A Rust panic; its class cannot be imported: https://pyo3.rs/latest/doc/pyo3/panic/struct.PanicException
        if type(exc).__name__ != "PanicException":
            raise
        raise PermanentError(f"Qdrant Edge failed inside: {exc}.") from exc


def _as_ours(exc: Exception) -> StackmemError:
    message = f"Qdrant Edge: {exc}"
    if isinstance(exc, OSError) or "os error" in str(exc):
        return TransientError(message)
    return PermanentError(message)


def _check_space(folder: Path, wanted: int) -> None:
    if shutil.disk_usage(folder).free < RESERVE + 4 * wanted:  # vectors, the log of writes, payload, room to grow
        raise TransientError(f"The disk under {folder} is nearly full: the index is not written.")


# --- the store -------------------------------------------------------------------------------------------------------


class EdgeStore:
    """Generations of the index in ``folder``; one process owns it, a second one waits ``lock_wait_s``, then Busy."""

    kind = "edge"

    def __init__(self, folder: Path, *, lock_wait_s: float = 30):
        self._folder = folder
        self._lock = FolderLock(folder, lock_wait_s)
        self._doing = threading.RLock()  # open, begin, swap and close: one at a time
        self._changed = threading.Condition()  # guards every _Shard.users and every EdgeIndex._shard
        self._current: EdgeIndex | None = None
        self._begun: EdgeIndex | None = None
        self._fingerprint: Fingerprint | None = None  # of the current one
        self._following: weakref.WeakSet[EdgeIndex] = weakref.WeakSet()  # handles that reach the current one

    def open(self, fingerprint: Fingerprint) -> EdgeIndex | None:
        """Return the current generation, or None (with the reason in the log) where it must be built again.

        Raises Busy where another process owns the folder, TransientError where it cannot be written.
        """
        with self._doing:
            self._lock.acquire()
            if self._current is not None:
                return self._current if self._fingerprint == fingerprint else None
            try:
                name = self._current_name()
                self._remove_all_but(name)
                if name is not None:
                    self._become(EdgeIndex(_load(self._folder / name, fingerprint), self._changed), fingerprint)
            except (StackmemError, OSError, ValueError) as exc:
                log.warning("The index in %s must be built again: %s", self._folder, exc)
            return self._current

    def begin(self, fingerprint: Fingerprint) -> EdgeIndex:
        """Return a new, empty generation; an orphan is removed. Raises Busy, or TransientError on a full disk."""
        with self._doing:
            self._lock.acquire()
            self._abandon()
            with _translated():
                self._remove_all_but(self._current_name())
                _check_space(self._folder, 0)
                name = points.generation_name(points.next_number(self._names()), fingerprint)
                self._begun = EdgeIndex(_create(self._folder / name, fingerprint), self._changed)
            self._begun_fingerprint = fingerprint
            return self._begun

    def swap(self) -> EdgeIndex:
        """Make the generation begun last the current one, durably; handles of the old one reach it from now on.

        Waits for the calls inside the old one. Raises PermanentError where none was begun, TransientError on a full
        disk (then the old one stays current).
        """
        with self._doing:
            if self._begun is None:
                raise PermanentError("No generation was begun.")
            index, self._begun = self._begun, None
            with index._entered() as shard:
                ...
            return index

    def close(self) -> None:
        """Wait for the calls under way, close every handle and give up the lock; the store can be opened again."""
        with self._doing:
            self._abandon()
            self._lead(self._following, None)
            self._current = None
            self._lock.release()
