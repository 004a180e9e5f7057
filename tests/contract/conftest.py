"""One fixture runs the same claims over the fake and every embedded engine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ulid import ULID

from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.local_index import LocalStore
from stackmem.ports import Fingerprint, IndexFilter, IndexPoint, IndexStore, VectorIndex
from tests.fakes import MemoryIndexStore

DIM = 4
FINGERPRINT = Fingerprint("test/model", DIM)
X, Y, Z = np.eye(DIM, dtype=np.float32)[:3]
HOME = IndexFilter("home")
STORES: dict[str, Callable[..., IndexStore]] = {"edge": EdgeStore, "local": LocalStore}


@dataclass
class Backend:
    """A kind of store on one folder; ``again`` makes another store that sees what the first one kept."""

    kind: str
    folder: Path
    again: Callable[..., IndexStore]


def memory_id(number: int) -> str:
    """Return the number-th memory id; their order is the numbers'."""
    return f"mem_{ULID.from_bytes(((1 << 100) + number).to_bytes(16, 'big'))}"


def point(number: int, summary: Any = (1, 0, 0, 0), sources: Any = (), **payload: Any) -> IndexPoint:
    """Return an active episode of `home`, said and happened on 2026-07-23, unless the payload says otherwise."""
    when = "2026-07-23T01:00:00+00:00"
    usual = {"owner": "home", "status": "active", "memory_type": "episode", "entity_keys": [], "said_at": when}
    usual |= dict.fromkeys(("occurred_at", "occurred_from", "occurred_to"), when)
    vectors = np.asarray(sources, np.float32).reshape(len(sources), -1) if len(sources) else np.empty((0, DIM))
    return IndexPoint(memory_id(number), np.asarray(summary, np.float32), vectors.astype(np.float32), usual | payload)


def fresh(store: IndexStore, fingerprint: Fingerprint = FINGERPRINT) -> VectorIndex:
    """Return an empty generation made current."""
    store.begin(fingerprint)
    return store.swap()


def found(index: VectorIndex, where: IndexFilter = HOME, limit: int = 10) -> set[int]:
    """Return the numbers of the points that match, whatever their scores."""
    hits = index.search(X, where, limit)
    assert len({hit.memory_id for hit in hits}) == len(hits)
    numbers = {memory_id(number): number for number in range(100)}
    return {numbers[hit.memory_id] for hit in hits}


def kept(store: IndexStore, fingerprint: Fingerprint = FINGERPRINT) -> list[str] | None:
    """Open a store, close it, and return what was in it."""
    index = store.open(fingerprint)
    found = None if index is None else [each for each, _ in index.scan()]
    store.close()
    return found


def generations(backend: Backend) -> list[str]:
    """Return the names of the generations that lie in the folder."""
    folder = backend.folder if backend.kind == "edge" else backend.folder / "collection"
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0].isdigit())


@pytest.fixture(params=["fake", "edge", "local"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "fake":
        fake = MemoryIndexStore()
        return Backend("fake", tmp_path, lambda: fake)
    return _embedded(request.param, tmp_path / "index")


@pytest.fixture(params=["edge", "local"])
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return _embedded(request.param, tmp_path / "index")


def _embedded(kind: str, folder: Path) -> Backend:
    return Backend(kind, folder, lambda lock_wait_s=0.2: STORES[kind](folder, lock_wait_s=lock_wait_s))


@pytest.fixture
def store(backend: Backend) -> Iterator[IndexStore]:
    store = backend.again()
    yield store
    store.close()


@pytest.fixture
def index(store: IndexStore) -> VectorIndex:
    return fresh(store)
