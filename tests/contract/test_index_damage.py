"""Damaged files, full disks, errors of the engines: an index that must be built again never stops a start."""

import errno
import json
import logging
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stackmem.adapters import edge_index, edge_shard, local_collection, local_index
from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.local_index import LocalStore
from stackmem.exceptions import Busy, PermanentError, StackmemError, TransientError
from stackmem.ports import Fingerprint, IndexFilter
from tests.contract.conftest import (
    DIM,
    FINGERPRINT,
    STORES,
    Backend,
    fresh,
    generations,
    kept,
    memory_id,
    point,
)

ANY = IndexFilter("home")
QUERY = np.ones(DIM, np.float32)

# --- damage ----------------------------------------------------------------------------------------------------------


def _one(folder: Path, pattern: str) -> Path:
    return sorted(folder.rglob(pattern))[0]


def _garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(3).bytes(max(path.stat().st_size, 64)))


DAMAGE = {
    "edge": {
        "label": lambda folder: _garbage(_one(folder, "engine.json")),
        "label of another engine": lambda folder: _one(folder, "engine.json").write_text('{"engine": "older"}'),
        "label missing": lambda folder: _one(folder, "engine.json").unlink(),
        "segment": lambda folder: _garbage(_one(folder, "segment.json")),
        "payload": lambda folder: _garbage(_one(folder, "payload_storage/page_0.dat")),
        "a Rust panic": lambda folder: _garbage(_one(folder, "payload_index/*owner-map/tracker.dat")),
        "vectors missing": lambda folder: _one(folder, "vector_storage-sources/vectors/chunk_0.mmap").unlink(),
        "shard missing": lambda folder: shutil.rmtree(_one(folder, "shard")),
        "generation missing": lambda folder: shutil.rmtree(folder / (folder / "CURRENT").read_text()),
        "CURRENT missing": lambda folder: (folder / "CURRENT").unlink(),
        "CURRENT empty": lambda folder: (folder / "CURRENT").write_text(""),
        "CURRENT garbage": lambda folder: (folder / "CURRENT").write_bytes(b"\xff\x00../../etc"),
        "CURRENT leads out": lambda folder: (folder / "CURRENT").write_text(".."),
    },
    "local": {
        "meta.json": lambda folder: _garbage(folder / "meta.json"),
        "meta.json missing": lambda folder: (folder / "meta.json").unlink(),
        "meta.json of another shape": lambda folder: (folder / "meta.json").write_text("[]"),
        "collection missing": lambda folder: _edit_meta(folder, lambda meta: meta["collections"].clear()),
        "alias missing": lambda folder: _edit_meta(folder, lambda meta: meta["aliases"].clear()),
        "label": lambda folder: _edit_meta(folder, _relabel),
        "sqlite": lambda folder: _garbage(_one(folder, "storage.sqlite")),
        "a row": lambda folder: _bad_row(_one(folder, "storage.sqlite")),
    },
}


def _edit_meta(folder: Path, change: Any) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    change(meta)
    (folder / "meta.json").write_text(json.dumps(meta))


def _relabel(meta: dict[str, Any]) -> None:
    for collection in meta["collections"].values():
        collection["metadata"]["engine"] = "qdrant-client 0.1"


def _bad_row(path: Path) -> None:
    with sqlite3.connect(path) as storage:
        storage.execute("UPDATE points SET point = ?", (b"\x80\x04garbage",))
    storage.close()


@pytest.mark.parametrize(("kind", "damage"), [(kind, each) for kind, every in DAMAGE.items() for each in every])
def test_a_damaged_index_opens_as_none_with_a_reason_and_can_be_built_again(
    kind: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "index"
    store = STORES[kind](folder, lock_wait_s=0.2)
    fresh(store).upsert([point(number, sources=[[1, 0, 0, 0]]) for number in range(20)])
    store.close()
    DAMAGE[kind][damage](folder)
    with caplog.at_level(logging.WARNING):
        assert store.open(FINGERPRINT) is None
    if "missing" not in damage:
        assert str(folder) in caplog.text
    fresh(store).upsert([point(50)])
    store.close()
    assert kept(STORES[kind](folder)) == [memory_id(50)]
    assert len(generations(Backend(kind, folder, STORES[kind]))) == 1


def test_an_index_of_another_fingerprint_is_kept_until_it_is_replaced(embedded: Backend) -> None:
    store = embedded.again()
    fresh(store).upsert([point(1)])
    store.close()
    other = Fingerprint("an/other:model", DIM)
    assert kept(store, other) is None
    assert kept(store) == [memory_id(1)]
    fresh(store, other).upsert([point(2)])
    store.close()
    assert kept(store) is None
    assert kept(store, other) == [memory_id(2)]


def test_foreign_folders_beside_the_generations_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "2024-photos").mkdir()
    (tmp_path / "2024-photos" / "cat.png").write_bytes(b"cat")
    (tmp_path / "notes").mkdir()
    store = EdgeStore(tmp_path)
    assert store.open(FINGERPRINT) is None
    fresh(store)
    store.close()
    assert (tmp_path / "2024-photos" / "cat.png").exists()
    assert (tmp_path / "notes").exists()


# The refused client leaves its own lock file open: qdrant_client/local/qdrant_local.py, _load, 1.20.0
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_foreign_client_on_the_folder_of_local_mode_is_busy(tmp_path: Path) -> None:
    foreign = local_collection.connect(tmp_path)
    store = LocalStore(tmp_path)
    with pytest.raises(Busy, match="Another Qdrant client"):
        store.open(FINGERPRINT)
    with pytest.raises(Busy):
        store.begin(FINGERPRINT)
    foreign.close()
    assert store.open(FINGERPRINT) is None
    store.close()


def test_another_error_of_the_client_is_not_taken_for_a_foreign_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import qdrant_client

    def fail(**_: Any) -> None:
        raise RuntimeError("out of order")

    store = LocalStore(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(qdrant_client, "QdrantClient", fail)
        assert store.open(FINGERPRINT) is None
    assert "out of order" in caplog.text
    store.close()


# --- a full disk, and other errors of the engines --------------------------------------------------------------------


def test_edge_writes_nothing_on_a_nearly_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EdgeStore(tmp_path)
    index = fresh(store)
    index.upsert([point(1)])
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, edge_shard.RESERVE - 1))
    for call in (
        lambda: index.upsert([point(2)]),
        lambda: index.delete([memory_id(1)]),
        lambda: store.begin(FINGERPRINT),
    ):
        with pytest.raises(TransientError, match="nearly full"):
            call()
    assert [hit.memory_id for hit in index.search(QUERY, ANY, 5)] == [memory_id(1)]
    monkeypatch.undo()
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 160 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("A small disk cannot be mounted here: run the tests as root.")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


FILLING = """
import sys
from pathlib import Path
from stackmem.exceptions import TransientError
from tests.contract.conftest import FINGERPRINT, STORES, fresh, point
store = STORES[sys.argv[1]](Path(sys.argv[2]))
index = fresh(store)
index.upsert([point(1)])
print("begun", flush=True)
sys.stdin.readline()  # until the disk is nearly full
number = 2
try:
    while number < 100_000:
        index.upsert([point(number, topic="x" * 20_000)])
        number += 1
except TransientError as exc:
    print(f"full after {number - 1}: {exc}", flush=True)
sys.stdin.readline()  # until there is room again
index.upsert([point(number)])
store.close()
print(f"wrote {number}", flush=True)
"""


# In a process of its own: a write through a memory map on a full disk ends the process by SIGBUS.
@pytest.mark.parametrize(("kind", "left_mb"), [("edge", 70), ("local", 4)])
def test_a_full_disk_is_said_and_loses_nothing(kind: str, left_mb: int, small_disk: Path) -> None:
    folder = small_disk / "index"
    with subprocess.Popen(
        [sys.executable, "-c", FILLING, kind, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        filler = small_disk / "filler"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free - left_mb * 1024 * 1024)
        child.stdin.write("\n")
        child.stdin.flush()
        full = re.match(r"full after (\d+): ", child.stdout.readline())
        assert full is not None
        filler.unlink()
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == f"wrote {int(full[1]) + 1}\n"
    assert child.returncode == 0
    assert kept(STORES[kind](folder)) == [memory_id(number) for number in range(1, int(full[1]) + 2)]


@pytest.mark.parametrize(
    ("kind", "module", "step"),
    [("edge", edge_index, "write_durably"), ("local", local_index, "make_current")],
)
def test_a_swap_that_cannot_be_written_leaves_the_old_generation_and_can_be_tried_again(
    kind: str, module: Any, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = STORES[kind](tmp_path)
    index = fresh(store)
    index.upsert([point(1)])
    store.begin(FINGERPRINT).upsert([point(2)])
    with monkeypatch.context() as patched:
        patched.setattr(module, step, full)
        with pytest.raises(TransientError, match="No space"):
            store.swap()
    assert [each for each, _ in index.scan()] == [memory_id(1)]
    store.swap()
    assert [each for each, _ in index.scan()] == [memory_id(2)]
    store.close()


@pytest.mark.parametrize(
    ("raised", "ours"),
    [
        (Exception("Service runtime error: IO Error: Input/output error (os error 5)"), TransientError),
        (OSError(errno.EIO, "Input/output error"), TransientError),
        (Exception("Vector dimension error: expected dim: 4, got 2"), PermanentError),
        (type("PanicException", (BaseException,), {})("index out of bounds"), PermanentError),
        (Busy(), Busy),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_edges_errors_become_ours_and_an_interrupt_stays_one(raised: BaseException, ours: type[BaseException]) -> None:
    with pytest.raises(ours) as caught, edge_shard.translated():
        raise raised
    assert caught.value is raised or caught.value.__cause__ is raised


@pytest.mark.parametrize(
    ("raised", "ours"),
    [
        (sqlite3.OperationalError("database or disk is full"), TransientError),
        (sqlite3.DatabaseError("database disk image is malformed"), PermanentError),
        (ValueError("Vector dimension error"), PermanentError),
    ],
)
def test_local_modes_errors_become_ours(raised: Exception, ours: type[StackmemError]) -> None:
    with pytest.raises(ours) as caught, local_collection.translated():
        raise raised
    assert caught.value.__cause__ is raised


def test_a_payload_edge_cannot_take_is_refused(embedded: Backend) -> None:
    store = embedded.again()
    index = fresh(store)
    with pytest.raises(PermanentError):
        index.upsert([point(1, topic=object())])
    assert list(index.scan()) == []
    store.close()


def test_an_old_shard_that_does_not_close_does_not_stop_a_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck:
        def close(self) -> None:
            raise Exception("Service runtime error: flush failed")

    store = EdgeStore(tmp_path)
    index = fresh(store)
    assert store._current is not None
    store._current.engine.close()
    monkeypatch.setattr(store._current, "engine", Stuck())
    fresh(store).upsert([point(1)])
    assert "did not close" in caplog.text
    assert [each for each, _ in index.scan()] == [memory_id(1)]
    store.close()


def test_local_mode_takes_more_than_it_recommends_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qdrant_client.common import client_warnings
    from qdrant_client.local.local_collection import LocalCollection
    from qdrant_client.local.qdrant_local import QdrantLocal

    for limited in (LocalCollection, QdrantLocal):
        monkeypatch.setattr(limited, "LARGE_DATA_THRESHOLD", 1)
    monkeypatch.setattr(client_warnings, "SEEN_MESSAGES", set())
    store = LocalStore(tmp_path)
    fresh(store).upsert([point(number) for number in range(3)])
    store.close()
    assert kept(store) == [memory_id(number) for number in range(3)]
