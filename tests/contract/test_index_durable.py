"""What the embedded stores must survive: other processes, kill -9, orphans."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from stackmem.adapters import folder_lock
from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.folder_lock import FolderLock
from stackmem.exceptions import Busy, TransientError
from stackmem.ports import IndexFilter
from tests.contract.conftest import DIM, FINGERPRINT, STORES, Backend, fresh, generations, kept, memory_id, point

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


def test_a_forked_child_closes_what_it_inherited(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, 0)
    lock.acquire()
    folder_lock._forget_all_in_child()
    other = FolderLock(tmp_path, 0)
    other.acquire()  # here the only descriptor was closed; in a real child its parent's is left
    lock._forget_in_child()  # nothing held
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
    assert len(generations(embedded)) == 2
    assert kept(embedded.again()) == [memory_id(1)]
    assert len(generations(embedded)) == 1


def test_nothing_is_left_of_oldgenerations(embedded: Backend) -> None:
    store = embedded.again()
    for _ in range(3):
        fresh(store)
    assert [name.split("-")[0] for name in generations(embedded)] == ["3"]
    store.begin(FINGERPRINT)
    store.close()
    assert len(generations(embedded)) == 1


def test_opening_while_a_generation_is_filled_leaves_it_alone(embedded: Backend) -> None:
    store = embedded.again()
    begun = store.begin(FINGERPRINT)
    begun.upsert([point(1)])
    assert store.open(FINGERPRINT) is None
    assert [each for each, _ in store.swap().scan()] == [memory_id(1)]
    store.close()


def test_qdrant_client_is_not_imported_before_local_mode_is_opened() -> None:
    code = "import sys, stackmem.adapters.local_index; assert 'qdrant_client' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(CHECKOUT)}, check=True)
