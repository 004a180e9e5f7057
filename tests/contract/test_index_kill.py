"""kill -9 between the upsert and its mark in the database: for every kind of index it ends in one point a memory."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stackmem.bootstrap import build
from stackmem.config import load_settings
from stackmem.indexing import index_owner
from stackmem.models import Lease, Memory
from tests.contract.conftest import KEY
from tests.qdrant_standin import QdrantStandin

CHECKOUT = Path(__file__).parents[2]
KILLED = """
import os, signal, sys
from stackmem import indexing
from stackmem.bootstrap import build
from stackmem.config import load_settings
from stackmem.models import Memory, Owner
from stackmem.reindexing import reindex
runtime = build(load_settings(home=sys.argv[1]), owns_index=True)
with runtime.database.connection_context():
    reindex(runtime.index)
    at = runtime.clock.now()
    Owner.insert(name="home").execute()
    times = dict.fromkeys(("occurred_at", "occurred_from", "occurred_to", "said_at", "created_at"), at)
    for number in range(5):
        Memory.create(id=f"mem_{number:026}", owner="home", topic="猫", summary=f"猫の話{number}",
                      memory_type="episode", **times)
    indexing.transaction = lambda: os.kill(os.getpid(), signal.SIGKILL)
    indexing._store_vectors = lambda *_: None
    indexing.index_owner(runtime.index, "home")
"""


@pytest.mark.parametrize("kind", ["edge", "local", "server"])
def test_what_was_written_but_not_marked_is_written_again_and_is_there_once(
    kind: str, tmp_path: Path, standin: QdrantStandin
) -> None:
    settings: dict[str, Any] = {"index_url": standin.url if kind == "server" else f"{kind}:", "index_api_key": KEY}
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    environment |= {f"STACKMEM_{name.upper()}": value for name, value in settings.items()}
    home = tmp_path / "home"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(home)], env=environment, cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    runtime = build(load_settings(home=home, **settings), owns_index=True, lock_wait_s=5)
    with runtime.database.connection_context():
        assert runtime.index.current is not None
        written = [memory_id for memory_id, _ in runtime.index.current.scan()]
        assert len(written) == 5
        assert Memory.select().where(Memory.outdated).count() == 5
        Lease.delete().execute()  # the dead one's, which would run out in 90 s
        assert index_owner(runtime.index, "home") == 5
        assert [memory_id for memory_id, _ in runtime.index.current.scan()] == written
        assert Memory.select().where(Memory.outdated).count() == 0
    runtime.close()
