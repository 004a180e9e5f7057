"""The index on Qdrant Edge: the vendor's engine inside this process, one folder a generation.

``<folder>/LOCK``, ``<folder>/CURRENT`` (the current generation's name) and, for every generation,
``<n>-<fingerprint>/engine.json`` (who wrote it, of which fingerprint) beside ``<n>-<fingerprint>/shard/`` (Edge's own).
"""

import logging
import shutil
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stackmem.adapters import qdrant_points as points
from stackmem.adapters.edge_shard import Shard, translated, write_durably
from stackmem.adapters.folder_lock import FolderLock
from stackmem.exceptions import OtherVectors, PermanentError, StackmemError, TransientError
from stackmem.ports import CommonPart, Fingerprint, IndexFilter, IndexHit, IndexPoint, Vector

log = logging.getLogger(__name__)


class EdgeIndex:
    """A handle to a generation on Edge. After a swap, handles to the old generation reach the new one."""

    def __init__(self, shard: Shard, changed: threading.Condition):
        self._shard: Shard | None = shard
        self._changed = changed

    def upsert(self, new: Sequence[IndexPoint]) -> None:
        """Write or replace points; durable on return.

        Raises PermanentError on a wrong dimension, NaN or a bad id (then nothing is written), TransientError where the
        disk is nearly full.
        """
        if new:
            with self._entered() as shard:
                shard.upsert(new)

    def delete(self, memory_ids: Sequence[str]) -> None:
        """Remove points; unknown ids are ignored; durable on return. Raises TransientError where the disk is full."""
        if memory_ids:
            with self._entered() as shard:
                shard.delete(memory_ids)

    def search(self, query: Vector, where: IndexFilter, limit: int, common: CommonPart | None = None) -> list[IndexHit]:
        """Return the best ``limit`` by summary and the best ``limit`` by sources, each with both scores.

        Raises PermanentError on a query of another dimension or with NaN.
        """
        with self._entered() as shard:
            return shard.search(query, where, limit, common)

    def scan(self, owner: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (memory_id, payload) in order of id. A swap between two pages goes on in the new generation."""
        offset = None
        while True:
            with self._entered() as shard:
                page, offset = shard.page(owner, offset)
            for record in page:
                yield points.memory_id_of(record.id), dict(record.payload or {})
            if offset is None:
                return

    @contextmanager
    def _entered(self) -> Iterator[Shard]:
        """Keep the shard open while somebody is inside."""
        with self._changed:
            shard = self._shard
            if shard is None:
                raise TransientError("The index is closed.")
            shard.users += 1
        try:
            with translated():
                yield shard
        finally:
            with self._changed:
                shard.users -= 1
                self._changed.notify_all()


class EdgeStore:
    """Generations of the index in ``folder``; one process owns it, a second one waits ``lock_wait_s``, then Busy."""

    kind = "edge"

    def __init__(self, folder: Path, *, lock_wait_s: float = 30):
        self._folder = folder
        self._lock = FolderLock(folder, lock_wait_s)
        self._doing = threading.RLock()  # open, begin, swap and close: one at a time
        self._changed = threading.Condition()  # guards every Shard.users and every EdgeIndex._shard
        self._current: Shard | None = None
        self._index: EdgeIndex | None = None  # the handle given out last for the current shard
        self._handles: weakref.WeakSet[EdgeIndex] = weakref.WeakSet()  # all that reach the current shard
        self._begun: tuple[Shard, EdgeIndex] | None = None

    def open(self, fingerprint: Fingerprint) -> EdgeIndex | None:
        """Return the current generation, or None (with the reason in the log) where it must be built again.

        Raises Busy where another process owns the folder, TransientError where it cannot be written.
        """
        with self._doing:
            self._lock.acquire()
            if self._current is not None:
                return self._index if self._current.fingerprint == fingerprint else None
            try:
                with translated():
                    self._open_current(fingerprint)
            except OtherVectors as exc:
                log.info("The index in %s: %s", self._folder, exc)
            except StackmemError as exc:
                log.warning("The index in %s must be built again: %s", self._folder, exc)
            return self._index

    def begin(self, fingerprint: Fingerprint) -> EdgeIndex:
        """Return a new, empty generation, durable at its swap; an orphan is removed.

        Raises Busy, or TransientError on a full disk.
        """
        with self._doing:
            self._lock.acquire()
            self._abandon()
            with translated():
                self._keep_only(self._current_name())
                name = points.generation_name(points.next_number(self._names()), fingerprint)
                shard = Shard.create(self._folder / name, fingerprint)
            index = EdgeIndex(shard, self._changed)
            self._begun = shard, index
            return index

    def swap(self) -> EdgeIndex:
        """Make the generation begun last the current one, durably; handles of the old one reach it from now on.

        Waits for the calls inside the old one. Raises PermanentError where none was begun, TransientError on a full
        disk (then the old one stays current).
        """
        with self._doing:
            if self._begun is None:
                raise PermanentError("No generation was begun.")
            shard, index = self._begun
            with translated():
                shard.engine.flush()
                shard.begun = False
                write_durably(self._folder / "CURRENT", shard.folder.name)
            old, self._current, self._begun = self._current, shard, None
            self._give_out(index)
            if old is not None:
                self._leave(old, self._handles, shard)
            self._keep_only(shard.folder.name)
            return index

    def close(self) -> None:
        """Wait for the calls under way, close every handle and give up the lock; the store can be opened again."""
        with self._doing:
            self._abandon()
            old, self._current, self._index = self._current, None, None
            if old is not None:
                self._leave(old, self._handles, None)
            self._handles.clear()
            self._lock.release()

    def _open_current(self, fingerprint: Fingerprint) -> None:
        name = self._current_name()
        self._keep_only(name)
        if name is not None:
            self._current = Shard.load(self._folder / name, fingerprint)
            self._give_out(EdgeIndex(self._current, self._changed))

    def _give_out(self, index: EdgeIndex) -> None:
        self._index = index
        self._handles.add(index)

    def _leave(self, old: Shard, handles: Iterable[EdgeIndex], new: Shard | None) -> None:
        """Lead these handles to the new shard (None: closed); close the old one when nobody is inside."""
        with self._changed:
            for handle in handles:
                handle._shard = new
            self._changed.wait_for(lambda: not old.users)
        try:
            with translated():
                old.engine.close()
        except StackmemError as exc:  # everything in it was flushed, and nobody reads it any more
            log.warning("The index in %s did not close: %s", old.folder, exc)

    def _abandon(self) -> None:
        if self._begun is not None:
            (shard, index), self._begun = self._begun, None
            self._leave(shard, [index], None)
            shutil.rmtree(shard.folder, ignore_errors=True)

    def _current_name(self) -> str | None:
        try:
            name = (self._folder / "CURRENT").read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return None
        if name in self._names():
            return name
        log.warning("%s names no generation: %.80r", self._folder / "CURRENT", name)
        return None

    def _names(self) -> list[str]:
        return [path.name for path in self._folder.iterdir() if points.generation_number(path.name) and _is_ours(path)]

    def _keep_only(self, name: str | None) -> None:
        begun = self._begun[0].folder.name if self._begun else None
        for orphan in set(self._names()) - {name, begun}:
            shutil.rmtree(self._folder / orphan, ignore_errors=True)


def _is_ours(path: Path) -> bool:
    """Tell whether a folder holds nothing but a generation's parts: what a person put there is never deleted."""
    return path.is_dir() and {part.name for part in path.iterdir()} <= {"engine.json", "engine.json.tmp", "shard"}
