"""The current generation of the index, with the embedder that made its vectors; both are exchanged at once."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from stackmem.clock import SystemClock
from stackmem.common_part import CommonParts
from stackmem.database import lease
from stackmem.embedder_change import Change, change_of, is_made_by, made_by
from stackmem.exceptions import PermanentError
from stackmem.loading import Loading
from stackmem.ports import Embedder, IndexStore, VectorIndex

Found = TypeVar("Found")


class IndexHandle:
    """The current generation of the index, exchanged when a new one is ready. None: none could be opened yet.

    Where its vectors are of another embedder than the one that is set, it is searched and written with that one, if it
    is among ``formers``, until a reindex swaps both. ``formers`` is asked only then, for embedders that may have made
    the stored vectors.
    """

    def __init__(
        self,
        store: IndexStore | None,
        embedder: Embedder,
        formers: Callable[[], Iterable[Embedder]] = tuple,
    ):
        self.store, self.embedder = store, embedder
        self._is_closed = False
        self.lock = threading.RLock()  # one writer at a time; readers need none
        self._current: VectorIndex | None = store.open(embedder.fingerprint) if store else None
        self.former: Embedder | None = None  # whose vectors the current generation holds, where not embedder's
        self.change: Change | None = None
        self.exchanges = 0  # odd while one is under way
        if store and self._current is None:
            self._open_former(store, formers())
            before = [name for name in made_by() if name != str(embedder.fingerprint)]
            if before and (self.former or not is_made_by(embedder.fingerprint)):
                name = str(self.former.fingerprint) if self.former else before[0]
                self.change = change_of(embedder.fingerprint, name, searched=self.former is not None)
        self.loading, self.common = Loading(self.searching), CommonParts(self.searching.fingerprint)

    def _open_former(self, store: IndexStore, formers: Iterable[Embedder]) -> None:
        for former in formers:
            if (index := store.open(former.fingerprint)) is not None:
                self._current, self.former = index, former
                return

    @property
    def current(self) -> VectorIndex | None:
        """The current generation; on a server another process may have built it meanwhile."""
        if self._current is None and self.store and self.kind == "server" and not self._is_closed:
            self._current = self.store.open(self.searching.fingerprint)
        return self._current

    @current.setter
    def current(self, index: VectorIndex | None) -> None:
        self._current = index

    def is_missing(self) -> bool:
        """Tell whether there is no index; on a server somebody may have deleted it. Raises PermanentError."""
        if self.store and self.kind == "server" and self.store.open(self.searching.fingerprint) is None:
            self._current = None
        return self.current is None

    @contextmanager
    def alone(self, work: str) -> Iterator[bool]:
        """Yield whether no other process does this work on an index that all share; nobody can on an embedded one."""
        if self.kind != "server":
            yield True
            return
        with lease(work, SystemClock()) as held:
            yield held is not None

    @property
    def searching(self) -> Embedder:
        """The embedder whose vectors the current generation holds."""
        return self.former or self.embedder

    @property
    def kind(self) -> str:
        """Return the kind of index: edge, local, server, or none in a process that does not own it."""
        return self.store.kind if self.store else "none"

    def exchange(self, store: IndexStore, embedder: Embedder) -> None:
        """Make the generation begun last the current one, whose vectors are ``embedder``'s.

        Who searches meanwhile may hold a vector of the former embedder: see ``settled``.
        """
        self.exchanges += 1
        try:
            self.current = store.swap()
            if embedder is self.embedder:
                self.former, self.change = None, None
                self.loading = Loading(embedder)
            self.common = CommonParts(embedder.fingerprint)
        finally:
            self.exchanges += 1

    def settled(self, search: Callable[[], Found]) -> Found:
        """Return what ``search`` gives with one generation and its embedder: it is done again after an exchange."""
        while True:
            before = self.exchanges
            try:
                found = search()
            except (PermanentError, ValueError):  # of another dimension
                if before == self.exchanges:
                    raise
            else:
                if before == self.exchanges and not before % 2:
                    return found

    def reasons(self) -> list[str]:
        """Return why searches wait, fail or find less than they could, one sentence each."""
        change = self.change.sentence() if self.change else ""
        return [reason for reason in (self.loading.reason(), change) if reason]

    def close(self) -> None:
        """Close the store and give up its lock."""
        self._current, self._is_closed = None, True
        if self.store:
            self.store.close()
