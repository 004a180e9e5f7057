"""What the embedded stores must survive: other processes, kill -9, damage, a full disk."""

import errno
import json
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stackmem.adapters import edge_index, edge_shard, local_collection, local_index, qdrant_points
from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.folder_lock import FolderLock
from stackmem.adapters.local_index import LocalStore
from stackmem.exceptions import Busy, PermanentError, StackmemError, TransientError
from stackmem.ports import Fingerprint, IndexFilter, IndexStore
from tests.contract.conftest import DIM, FINGERPRINT, STORES, Backend, fresh, memory_id, point

CHECKOUT = Path(__file__).parents[2]
ANY = IndexFilter("home")
QUERY = np.ones(DIM, np.float32)
PRELUDE = """
import os, signal, sys, time
from pathlib import Path
from stackmem.adapters.folder_lock import FolderLock
from tests.contract.conftest import FINGERPRINT, STORES, fresh, point
folder = Path({folder!r})
store = STORES[{kind!r}](folder, lock_wait_s=5)
"""


def child(backend: Backend, code: str) -> "subprocess.Popen[str]":
    """Start another Python on the same folder."""
    program = PRELUDE.format(folder=str(backend.folder), kind=backend.kind) + code
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


@contextmanager
def owner_elsewhere(backend: Backend, code: str = "store.open(FINGERPRINT)") -> Iterator["subprocess.Popen[str]"]:
    """Have another process own the folder; kill -9 it at the end."""
    with child(backend, code + "\nprint('ready', flush=True)\nsys.stdin.read()") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def kept(store: IndexStore, fingerprint: Fingerprint = FINGERPRINT) -> list[str] | None:
    """Open a store, close it, and return what was in it."""
    index = store.open(fingerprint)
    found = None if index is None else [each for each, _ in index.scan()]
    store.close()
    return found


# --- other processes -------------------------------------------------------------------------------------------------


def test_points_survive_kill_9_after_their_upsert_returned(embedded: Backend) -> None:
    code = """
index = fresh(store)
index.upsert([point(number, sources=[[0, 1, 0, 0]]) for number in range(30)])
index.delete([point(7).memory_id])
os.kill(os.getpid(), signal.SIGKILL)
"""
    with child(embedded, code) as process:
        assert process.wait(60) == -signal.SIGKILL
    store = embedded.again()
    assert kept(store) == [memory_id(number) for number in range(30) if number != 7]
    index = store.open(FINGERPRINT)
    assert index is not None
    assert len(index.search(QUERY, ANY, 100)) == 29
    store.close()


def test_a_second_process_is_refused_in_time_and_told_the_remedy(embedded: Backend) -> None:
    with owner_elsewhere(embedded):
        for call in ("open", "begin"):
            before = time.monotonic()
            with pytest.raises(Busy, match=f"{embedded.folder}: stop it, or give this one its own STACKMEM_HOME"):
                getattr(embedded.again(0.5), call)(FINGERPRINT)
            assert 0.5 <= time.monotonic() - before < 5
    store = embedded.again(5)  # the owner is dead
    assert store.open(FINGERPRINT) is None
    store.close()


def test_a_second_store_of_the_same_process_is_refused_until_the_first_is_closed(embedded: Backend) -> None:
    first, second = embedded.again(), embedded.again()
    fresh(first)
    with pytest.raises(Busy):
        second.open(FINGERPRINT)
    first.close()
    assert second.open(FINGERPRINT) is not None
    second.close()
    second.close()


def test_an_owner_that_leaves_is_waited_for(embedded: Backend) -> None:
    with owner_elsewhere(embedded) as process:
        waiting = embedded.again(20)
        assert process.stdin is not None
        process.stdin.close()  # it ends, and its lock with it
        assert waiting.open(FINGERPRINT) is None
        waiting.close()


def test_a_child_that_forked_does_not_keep_the_lock_of_a_dead_parent(tmp_path: Path) -> None:
    code = """
lock = FolderLock(folder, 1)
lock.acquire()
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with child(Backend("edge", tmp_path, EdgeStore), code) as process:
        assert process.stdout is not None
        forked = int(process.stdout.readline())
        try:
            process.wait(30)
            lock = FolderLock(tmp_path, 5)
            lock.acquire()
            lock.acquire()  # held already
            lock.release()
            lock.release()  # free already
        finally:
            os.kill(forked, signal.SIGKILL)


def test_a_forked_child_lets_go_of_the_lock_and_its_parent_keeps_it(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, 0)
    lock.acquire()
    FolderLock(tmp_path / "free", 0)._forget_in_child()  # nothing held
    lock._forget_in_child()
    other = FolderLock(tmp_path, 0)
    other.acquire()  # the only descriptor was closed
    other.release()


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path: Path, embedded: Backend) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransientError, match="cannot be written"):
        STORES[embedded.kind](tmp_path / "file" / "index").open(FINGERPRINT)


def test_an_orphan_of_a_killed_process_is_removed_at_the_next_open(embedded: Backend) -> None:
    code = """
fresh(store).upsert([point(1)])
store.begin(FINGERPRINT).upsert([point(2)])
os.kill(os.getpid(), signal.SIGKILL)
"""
    with child(embedded, code) as process:
        process.wait(60)
    assert len(_generations(embedded)) == 2
    assert kept(embedded.again()) == [memory_id(1)]
    assert len(_generations(embedded)) == 1


def test_nothing_is_left_of_old_generations(embedded: Backend) -> None:
    store = embedded.again()
    for _ in range(3):
        fresh(store)
    assert [name.split("-")[0] for name in _generations(embedded)] == ["3"]
    store.begin(FINGERPRINT)
    store.close()
    assert len(_generations(embedded)) == 1


def test_opening_while_a_generation_is_filled_leaves_it_alone(embedded: Backend) -> None:
    store = embedded.again()
    begun = store.begin(FINGERPRINT)
    begun.upsert([point(1)])
    assert store.open(FINGERPRINT) is None
    assert [each for each, _ in store.swap().scan()] == [memory_id(1)]
    store.close()


def _generations(backend: Backend) -> list[str]:
    folder = backend.folder if backend.kind == "edge" else backend.folder / "collection"
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0].isdigit())


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
    assert len(_generations(Backend(kind, folder, STORES[kind]))) == 1


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


# The refused client leaves its own lock file open: https://github.com/qdrant/qdrant-client, local/qdrant_local.py, _load
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


# --- small pieces ----------------------------------------------------------------------------------------------------


def test_a_point_id_holds_the_bits_of_the_memory_id_and_sorts_alike() -> None:
    for number in (0, 1, 77, 10**9):
        assert qdrant_points.point_id(memory_id(number)).int == (1 << 100) + number
        assert qdrant_points.memory_id_of(str(qdrant_points.point_id(memory_id(number)))) == memory_id(number)


@pytest.mark.parametrize(
    "bad", ["", "mem_", memory_id(10).lower(), memory_id(1)[4:], "mem_" + "Z" * 26, "mem_" + "é" * 26]
)
def test_what_is_no_memory_id_has_no_point_id(bad: str) -> None:
    with pytest.raises(PermanentError, match="Not a memory id"):
        qdrant_points.point_id(bad)


def test_a_hit_deleted_between_two_queries_is_left_out() -> None:
    assert [hit.memory_id for hit in qdrant_points.hits({"a": 0.5}, {"a": 0.1, "gone": 0.9})] == ["a"]


def test_qdrant_client_is_not_imported_before_local_mode_is_opened() -> None:
    code = "import sys, stackmem.adapters.local_index; assert 'qdrant_client' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(CHECKOUT)}, check=True)
