"""One fixture runs the same claims over the fake, every embedded engine, and a Qdrant server."""

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ulid import ULID

from stackmem.adapters import server_calls
from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.local_index import LocalStore
from stackmem.adapters.server_index import ServerStore
from stackmem.ports import Fingerprint, IndexFilter, IndexPoint, IndexStore, VectorIndex
from tests.fakes import MemoryIndexStore
from tests.qdrant_standin import QdrantStandin
from tests.requiring import QDRANT

DIM = 4
KEY = "secret-key"
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


# A real server is one more kind where there is one; without, a single test says that it was skipped.
REAL = [pytest.param("qdrant", marks=pytest.mark.qdrant_server)] if os.environ.get(QDRANT) else []


@pytest.fixture(params=["fake", "edge", "local", "server", *REAL])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Every kind there is; ``server`` over a stand-in's wire, ``qdrant`` over a real one's where it is told of."""
    if request.param == "fake":
        fake = MemoryIndexStore()
        return Backend("fake", tmp_path, lambda: fake)
    if request.param in ("server", "qdrant"):
        return request.getfixturevalue(request.param)  # type: ignore[no-any-return]
    return _embedded(request.param, tmp_path / "index")


@pytest.fixture
def standin() -> Iterator[QdrantStandin]:
    with QdrantStandin(KEY) as standin:
        yield standin


@pytest.fixture
def server(standin: QdrantStandin, tmp_path: Path) -> Iterator[Backend]:
    yield from _served(standin.url, KEY, tmp_path)


@pytest.fixture
def qdrant(tmp_path: Path) -> Iterator[Backend]:
    url = os.environ.get(QDRANT)
    if not url:
        pytest.skip(f"No Qdrant server: {QDRANT} is not set.")
    yield from _served(url, os.environ.get("STACKMEM_TEST_QDRANT_KEY", ""), tmp_path)


def _served(url: str, key: str, tmp_path: Path) -> Iterator[Backend]:
    """Yield stores under a name of their own, and remove what they left."""
    name, stores = f"test-{uuid.uuid4().hex}", list[IndexStore]()

    def again(lock_wait_s: float = 0) -> IndexStore:
        stores.append(ServerStore(url, api_key=key, name=name))
        return stores[-1]

    yield Backend("server", tmp_path, again)
    for store in stores:
        store.close()
    client = server_calls.connect(url, key)
    for each in server_calls.names(client):
        if each.startswith(name):
            client.delete_collection(each)
    client.close()


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
