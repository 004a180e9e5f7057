"""The index on a Qdrant server: one collection a generation, an alias names the current one.

Any number of processes may read and write. Whoever swaps drops the old collection, so nobody reads or writes it
unnoticed: a call that finds its collection gone looks once for the current one.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from stackmem.adapters import qdrant_points as points
from stackmem.adapters import server_calls as calls
from stackmem.exceptions import PermanentError, StackmemError, TransientError
from stackmem.ports import CommonPart, Fingerprint, IndexFilter, IndexHit, IndexPoint, Vector

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Collection:
    name: str
    fingerprint: Fingerprint


Call = Callable[["QdrantClient", _Collection], Result]


class ServerIndex:
    """A handle to the current generation, whoever made it; to the one just begun until its swap."""

    def __init__(self, store: "ServerStore", begun: _Collection | None = None):
        self._store, self._begun = store, begun

    def upsert(self, new: Sequence[IndexPoint]) -> None:
        """Write or replace points; on return the server has them in its log.

        Raises PermanentError on a wrong dimension, NaN or a bad id (then nothing is written), TransientError where the
        server is away or its disk is full.
        """
        if new:
            self._called(lambda client, it: calls.upsert(client, it.name, new, it.fingerprint.dim))

    def delete(self, memory_ids: Sequence[str]) -> None:
        """Remove points; unknown ids are ignored. Raises TransientError where the server is away."""
        found: list[Any] = [str(point) for point in points.known_point_ids(memory_ids)]
        if found:
            self._called(lambda client, it: client.delete(it.name, found, wait=True))

    def search(self, query: Vector, where: IndexFilter, limit: int, common: CommonPart | None = None) -> list[IndexHit]:
        """Return the best ``limit`` by summary and the best ``limit`` by sources, each with both scores.

        Raises PermanentError on a query of another dimension or with NaN, TransientError where the server is away.
        """

        def search(client: "QdrantClient", it: _Collection) -> list[IndexHit]:
            vector = points.checked_query(query, it.fingerprint.dim)
            return calls.search(client, it.name, vector, where, limit, common)

        return self._called(search)

    def scan(self, owner: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (memory_id, payload) in order of id. A swap between two pages goes on in the new generation."""
        offset: Any = None

        def next_page(client: "QdrantClient", it: _Collection) -> tuple[list[Any], Any]:
            return calls.page(client, it.name, owner, offset)

        while True:
            page, offset = self._called(next_page)
            for record in page:
                yield points.memory_id_of(record.id), dict(record.payload or {})
            if offset is None:
                return

    def _called(self, call: Call[Result]) -> Result:
        begun = self._begun
        if begun is not None:
            return self._store.called(call, begun)
        it = self._store.current()
        try:
            return self._store.called(call, it)
        except calls.Gone:
            # Another process has swapped, or this one in another thread.
            return self._store.called(call, self._store.current(instead_of=it))


class ServerStore:
    """Generations of the index on the server at ``url``: collections ``<name>.<n>-<fingerprint>-<hash>``.

    ``name``, in which is no dot, is the alias of the current one, and tells stores on one server apart. No lock is
    taken here: who rebuilds holds a lease in the database.
    """

    kind = "server"

    def __init__(self, url: str, *, api_key: str = "", name: str = "stackmem"):
        self._url, self._api_key, self._alias, self._prefix = url, api_key, name, f"{name}."
        self._lock = threading.RLock()  # around every change of what is kept here
        self._client: QdrantClient | None = None
        self._fingerprint: Fingerprint | None = None  # of the generations that open() or swap() gave out
        self._current: _Collection | None = None  # where the alias led the last time it was looked at
        self._begun: tuple[_Collection, ServerIndex] | None = None
        self._number = 0  # of the generation begun last

    def open(self, fingerprint: Fingerprint) -> ServerIndex | None:
        """Return the current generation, or None where there is none, or another embedder's.

        A server that is away is no reason not to start: its index is returned, and every call says that it is away.
        Raises PermanentError where the key is refused, or something else answers there.
        """
        with self._lock:
            self._client = self._client or calls.connect(self._url, self._api_key)
            try:
                found = self._found(fingerprint)
            except TransientError as exc:
                log.warning("%s", exc)
            else:
                if found is None:
                    return None
                self._current = found
            self._fingerprint = fingerprint
            return ServerIndex(self)

    def begin(self, fingerprint: Fingerprint) -> ServerIndex:
        """Return a new, empty generation; orphans are removed. Raises TransientError where the server is away."""
        with self._lock, calls.translated(self._url):
            self._client = client = self._client or calls.connect(self._url, self._api_key)
            self._abandon()
            there = points.next_number(name.removeprefix(self._prefix) for name in calls.names(client))
            self._number = max(there, self._number + 1)  # a handle to one given up must not reach this one
            self._keep_only(client, calls.current(client, self._alias))
            begun = _Collection(self._name(self._number, fingerprint), fingerprint)
            calls.create(client, begun.name, fingerprint.dim)
            index = ServerIndex(self, begun)
            self._begun = begun, index
            return index

    def swap(self) -> ServerIndex:
        """Make the generation begun last the current one and return it; handles of the old one reach it from now on.

        Raises PermanentError where none was begun, TransientError where the server is away (then the old one stays).
        """
        with self._lock:
            if self._begun is None or self._client is None:
                raise PermanentError("No generation was begun.")
            begun, index = self._begun
            with calls.translated(self._url):
                calls.make_current(self._client, begun.name, self._alias)
            self._current, self._fingerprint, self._begun, index._begun = begun, begun.fingerprint, None, None
            try:
                with calls.translated(self._url):
                    self._keep_only(self._client, begun.name)
            except StackmemError as exc:  # removed at the next rebuild
                log.warning("An old generation of the index is still there: %s", exc)
            return index

    def close(self) -> None:
        """Close the connections; the store can be opened again."""
        with self._lock:
            try:
                with calls.translated(self._url):
                    self._abandon()
            except StackmemError as exc:
                log.warning("A generation of the index that was begun is still there: %s", exc)
            client, self._client, self._current, self._fingerprint = self._client, None, None, None
        if client is not None:
            client.close()

    def current(self, instead_of: _Collection | None = None) -> _Collection:
        """Return the current collection; looked for where it is not known, or was ``instead_of``, which is gone.

        Raises TransientError where there is none, or another embedder's by now.
        """
        with self._lock:
            if self._current is None or self._current == instead_of:
                self._current = None if self._fingerprint is None else self._found(self._fingerprint)
            if self._current is not None:
                return self._current
        if self._client is None:
            raise TransientError("The index is closed.")
        raise TransientError("The index is being rebuilt, or was, with another embedder: then restart this process.")

    def called(self, call: Call[Result], it: _Collection) -> Result:
        """Return what a call gives."""
        client = self._client
        if client is None:
            raise TransientError("The index is closed.")
        with calls.translated(self._url):
            return call(client, it)

    def _found(self, fingerprint: Fingerprint) -> _Collection | None:
        """Return the collection under the alias where it is of this fingerprint."""
        if self._client is None:
            return None
        with calls.translated(self._url):
            name = calls.current(self._client, self._alias)
        number = points.generation_number((name or "").removeprefix(self._prefix))
        if name is None or number is None:
            return None
        return _Collection(name, fingerprint) if name == self._name(number, fingerprint) else None

    def _name(self, number: int, fingerprint: Fingerprint) -> str:
        """Return a collection's name; the hash tells fingerprints apart that look alike without ``/`` and ``:``."""
        digest = hashlib.sha256(str(fingerprint).encode()).hexdigest()[:8]
        return f"{self._prefix}{points.generation_name(number, fingerprint)}-{digest}"

    def _abandon(self) -> None:
        if self._begun is not None and self._client is not None:
            self._client.delete_collection(self._begun[0].name)
        self._begun = None

    def _keep_only(self, client: "QdrantClient", name: str | None) -> None:
        begun = self._begun[0].name if self._begun else None
        for other in calls.names(client) - {name, begun}:
            if other.startswith(self._prefix) and points.generation_number(other.removeprefix(self._prefix)):
                client.delete_collection(other)
