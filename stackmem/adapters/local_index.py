"""The index in Qdrant's local mode (``QdrantClient(path=…)``): one collection a generation, an alias names the current.

Local mode is not safe for threads (4 threads x 2,000 operations: 3,490 errors and a broken index), so one lock stands
around every call, reads too.
"""

import logging
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackmem.adapters import qdrant_points as points
from stackmem.adapters.folder_lock import FolderLock
from stackmem.adapters.local_collection import (
    check_label,
    connect,
    create,
    current,
    drop,
    ids,
    local_filter,
    local_point,
    make_current,
    names,
    reckoned,
    translated,
    wipe,
)
from stackmem.exceptions import Busy, OtherVectors, PermanentError, StackmemError, TransientError
from stackmem.ports import CommonPart, Fingerprint, IndexFilter, IndexHit, IndexPoint, Vector

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Collection:
    name: str
    fingerprint: Fingerprint


class LocalIndex:
    """A handle to a generation in local mode. After a swap, handles to the old generation reach the new one."""

    def __init__(self, store: "LocalStore", collection: _Collection):
        self._store = store
        self._collection: _Collection | None = collection

    def upsert(self, new: Sequence[IndexPoint]) -> None:
        """Write or replace points; durable on return (one SQLite commit a point).

        Raises PermanentError on a wrong dimension, NaN or a bad id (then nothing is written), TransientError where the
        disk is full.
        """
        if new:
            with self._entered() as (client, name, dim):
                client.upsert(name, [local_point(point, dim) for point in new])

    def delete(self, memory_ids: Sequence[str]) -> None:
        """Remove points; unknown ids are ignored; durable on return. Raises TransientError where the disk is full."""
        found: list[Any] = [str(point) for point in points.known_point_ids(memory_ids)]
        if found:
            with self._entered() as (client, name, _):
                client.delete(name, found)

    def search(self, query: Vector, where: IndexFilter, limit: int, common: CommonPart | None = None) -> list[IndexHit]:
        """Return the best ``limit`` by summary and the best ``limit`` by sources, each with both scores.

        Raises PermanentError on a query of another dimension or with NaN.
        """
        with self._entered() as (client, name, dim):
            vector = points.checked_query(query, dim)
            search = partial(client.query_points, name, query_filter=local_filter(where), limit=limit)
            if limit < 1:
                return []
            asked = points.asked_for(vector, common)
            summary = ids(search(query=asked[points.SUMMARY].tolist(), using=points.SUMMARY, with_payload=False))
            # As a matrix of one row: local mode takes nothing else for a multi-vector.
            sources = ids(search(query=[asked[points.SOURCES].tolist()], using=points.SOURCES, with_payload=False))
            near = client.retrieve(name, list(summary | sources), with_payload=False, with_vectors=True)
            every = [*dict.fromkeys(asked, vector).items(), *(asked.items() if common else ())]
            return points.hits(*[reckoned(near, name, part) for name, part in every])

    def scan(self, owner: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (memory_id, payload) in order of id. A swap between two pages goes on in the new generation."""
        offset: Any = None
        while True:
            with self._entered() as (client, name, _):
                condition = None if owner is None else local_filter(IndexFilter(owner, status=None))
                page, offset = client.scroll(name, scroll_filter=condition, limit=points.PAGE, offset=offset)
            for record in page:
                yield points.memory_id_of(record.id), dict(record.payload or {})
            if offset is None:
                return

    @contextmanager
    def _entered(self) -> Iterator[tuple["QdrantClient", str, int]]:
        """Yield (client, collection, dimension) while nobody else calls the client, and translate what it raises."""
        with self._store.calling:
            if self._collection is None or self._store.client is None:
                raise TransientError("The index is closed.")
            with translated():
                yield self._store.client, self._collection.name, self._collection.fingerprint.dim


class LocalStore:
    """Generations of the index in ``folder``; one process owns it, a second one waits ``lock_wait_s``, then Busy."""

    kind = "local"

    def __init__(self, folder: Path, *, lock_wait_s: float = 30):
        self._folder = folder
        self._lock = FolderLock(folder, lock_wait_s)
        self.calling = threading.RLock()  # around every call of the client, and around every change of a handle
        self.client: QdrantClient | None = None
        self._index: LocalIndex | None = None  # the handle given out last for the current collection
        self._handles: weakref.WeakSet[LocalIndex] = weakref.WeakSet()  # all that reach the current collection
        self._begun: LocalIndex | None = None

    def open(self, fingerprint: Fingerprint) -> LocalIndex | None:
        """Return the current generation, or None (with the reason in the log) where it must be built again.

        Raises Busy where another process owns the folder, TransientError where it cannot be written.
        """
        with self.calling:
            self._lock.acquire()
            try:
                if self._index is None:
                    with translated():
                        self._open_current(fingerprint)
            except Busy:
                raise
            except OtherVectors as exc:
                log.info("The index in %s: %s", self._folder, exc)
            except StackmemError as exc:
                log.warning("The index in %s must be built again: %s", self._folder, exc)
            found = self._index and self._index._collection
            return self._index if found and found.fingerprint == fingerprint else None

    def begin(self, fingerprint: Fingerprint) -> LocalIndex:
        """Return a new, empty generation; an orphan is removed. Raises Busy, or TransientError on a full disk."""
        with self.calling:
            if self._lock.is_gone():
                self._forget_deleted()
            self._lock.acquire()
            with translated():
                self._abandon()
                client = self._connected_or_fresh()
                self._keep_only(client, current(client))
                name = points.generation_name(points.next_number(names(client, self._folder)), fingerprint)
                create(client, name, fingerprint)
            self._begun = LocalIndex(self, _Collection(name, fingerprint))
            return self._begun

    def swap(self) -> LocalIndex:
        """Make the generation begun last the current one, durably; handles of the old one reach it from now on.

        Raises PermanentError where none was begun, TransientError on a full disk (then the old one stays current).
        """
        with self.calling:
            if self._begun is None or self._begun._collection is None or self.client is None:
                raise PermanentError("No generation was begun.")
            index, new = self._begun, self._begun._collection
            with translated():
                make_current(self.client, new.name, self._folder)
            self._begun = None
            self._give_out(index)
            for handle in self._handles:
                handle._collection = new
            with translated():
                self._keep_only(self.client, new.name)
            return index

    def close(self) -> None:
        """Wait for the call under way, close the client and give up the lock; the store can be opened again."""
        with self.calling:
            self._abandon()
            for handle in self._handles:
                handle._collection = None
            self._handles.clear()
            self._index = None
            if self.client is not None:
                self.client.close()
                self.client = None
            self._lock.release()

    def _open_current(self, fingerprint: Fingerprint) -> None:
        self.client = self.client or connect(self._folder)
        name = current(self.client)
        self._keep_only(self.client, name)
        if name is not None:
            check_label(self.client, name, fingerprint)
            self._give_out(LocalIndex(self, _Collection(name, fingerprint)))

    def _connected_or_fresh(self) -> "QdrantClient":
        if self.client is None:
            try:
                with translated():
                    self.client = connect(self._folder)
            except PermanentError:  # damaged, as the log says since open(): it is derived data and is made again now
                wipe(self._folder)
                self.client = connect(self._folder)
        return self.client

    def _forget_deleted(self) -> None:
        """Let go of a client whose folder was deleted under it."""
        self._begun = None
        client, self.client = self.client, None
        if client is not None:
            with suppress(StackmemError), translated():
                client.close()

    def _give_out(self, index: LocalIndex) -> None:
        self._index = index
        self._handles.add(index)

    def _abandon(self) -> None:
        if self._begun is not None and self._begun._collection is not None and self.client is not None:
            drop(self.client, self._begun._collection.name, self._folder)
            self._begun._collection = None
        self._begun = None

    def _keep_only(self, client: "QdrantClient", name: str | None) -> None:
        begun = self._begun._collection.name if self._begun and self._begun._collection else None
        for orphan in names(client, self._folder) - {name, begun}:
            drop(client, orphan, self._folder)
