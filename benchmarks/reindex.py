"""How fast the index is rebuilt from stored vectors, beside the bare index's own bulk speed in the same run.

Every measurement is a process of its own. Run ``python -m benchmarks.reindex`` from the checkout (50,000 memories of
512 dimensions need 1 GB of disk and some minutes; ``--memories 5000`` for a quick one).
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import numpy as np

from stackmem.bootstrap import Runtime, build
from stackmem.config import load_settings
from stackmem.database import transaction
from stackmem.ids import memory_id, turn_uid
from stackmem.indexing import _text_hash, _texts
from stackmem.models import Memory, MemorySource, MemoryVector, Owner, Session, Turn
from stackmem.ports import Fingerprint, IndexPoint
from stackmem.reindexing import ROWS, reindex
from stackmem.stored_points import rows_after, stored_points

WANTED_PER_S, WANTED_SHARE = 5000, 0.9
START = datetime(2025, 1, 1, tzinfo=UTC)
TURNS = 3  # of one memory: two windows of source words
NAMES = ("倉庫", "自転車")


def runtime_at(home: Path) -> Runtime:
    """Return a runtime on the store in ``home``."""
    return build(load_settings(home=home, database_url="", index_url="edge:"), owns_index=True)


# --- the store -------------------------------------------------------------------------------------------------------


def fill(home: Path, count: int) -> None:
    """Insert memories of three turns with random unit vectors, as if all were embedded and indexed."""
    runtime = runtime_at(home)
    with runtime.database.connection_context():
        Owner.insert(name="home").on_conflict_ignore().execute()
        for first in range(0, count, 1000):
            with transaction():
                _insert(range(first, min(first + 1000, count)), runtime.index.embedder.fingerprint)
    runtime.close()


def _insert(numbers: range, fingerprint: Fingerprint) -> None:
    at = START + timedelta(minutes=numbers.start)
    session = Session.create(
        owner="home", name=f"s{numbers.start}", seq=1, named=True, started_at=at, received_at=at, ended_at=at
    )
    turns, memories, sources = [], [], []
    for number in numbers:
        at = START + timedelta(minutes=number)
        ids = range(number * TURNS + 1, number * TURNS + TURNS + 1)
        uids = [turn_uid("home", session.name, 1, turn, f"{turn}番の話") for turn in ids]
        turns += [
            (
                turn,
                uid,
                session.id,
                turn,
                "home",
                at,
                at,
                f"{turn}番の倉庫には自転車をしまったよ",
                "そうなんだね。",
                "kept",
            )
            for turn, uid in zip(ids, uids, strict=True)
        ]
        identity = memory_id(at, "home", uids)
        memories.append((
            identity, "home", f"{number}番の倉庫", f"ユーザーは{number}番の倉庫に自転車をしまった。", list(NAMES),
            list(NAMES), "episode", at, at, at, at, at, False,
        ))  # fmt: skip
        sources += [(identity, turn) for turn in ids]
    Turn.insert_many(turns, [
        Turn.id, Turn.uid, Turn.session, Turn.ordinal, Turn.owner, Turn.at, Turn.received_at, Turn.user, Turn.reply,
        Turn.state,
    ]).execute()  # fmt: skip
    Memory.insert_many(memories, [
        Memory.id, Memory.owner, Memory.topic, Memory.summary, Memory.entities, Memory.entity_keys, Memory.memory_type,
        Memory.occurred_at, Memory.occurred_from, Memory.occurred_to, Memory.said_at, Memory.created_at,
        Memory.outdated,
    ]).execute()  # fmt: skip
    MemorySource.insert_many(sources, [MemorySource.memory, MemorySource.turn]).execute()
    _insert_vectors([row[0] for row in memories], fingerprint, np.random.default_rng(numbers.start))


def _insert_vectors(ids: list[str], fingerprint: Fingerprint, rng: np.random.Generator) -> None:
    rows = []
    for identity, texts in _texts(list(Memory.select().where(Memory.id.in_(ids)))).items():
        vectors = rng.normal(size=(len(texts), fingerprint.dim)).astype("<f4")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        for ordinal, text in enumerate(texts):
            rows.append((identity, str(fingerprint), ordinal, _text_hash(text), vectors[ordinal].tobytes()))
    columns = [getattr(MemoryVector, name) for name in ("memory", "fingerprint", "ordinal", "text_hash", "vector")]
    for first in range(0, len(rows), 1000):
        MemoryVector.insert_many(rows[first : first + 1000], columns).execute()


# --- one measurement, in a process of its own ------------------------------------------------------------------------


def _measured(home: Path, what: str) -> None:
    runtime = runtime_at(home)
    with runtime.database.connection_context():
        done, started, cpu = 0, 0.0, 0.0
        if what == "reindex":
            started, cpu = time.perf_counter(), time.process_time()
            done = reindex(runtime.index, lambda done, _: print(done, flush=True))
        else:
            store, fingerprint = runtime.index.store, runtime.index.embedder.fingerprint
            assert store is not None
            started, cpu = time.perf_counter(), time.process_time()
            new = store.begin(fingerprint)
            for batch, seconds, cpu_s in _ready(fingerprint):
                started, cpu = started + seconds, cpu + cpu_s
                new.upsert(batch)
                done += len(batch)
            store.swap()
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"per_s": done / seconds, "cpu_us": cpu / done * 1e6, "peak_mb": peak / 1024, "points": done}))
    runtime.close()


def _ready(fingerprint: Fingerprint) -> Iterator[tuple[list[IndexPoint], float, float]]:
    """Yield the same points in the same batches, with the seconds (by the clock, of the CPU) that reading them took."""
    after = ""
    while True:
        started, cpu = time.perf_counter(), time.process_time()
        rows = rows_after(after, ROWS)
        batch = list(stored_points(rows, fingerprint).values())
        if not batch:
            return
        after = rows[-1].id
        yield batch, time.perf_counter() - started, time.process_time() - cpu


def measure(home: Path, what: str, kill_at: int | None = None) -> dict[str, Any] | None:
    """Return the figures of one process; None where it was killed with ``kill_at`` memories done."""
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.reindex", "--child", what, str(home)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    line = ""
    for line in child.stdout:
        if kill_at is not None and line[0].isdigit() and int(line) >= kill_at:
            child.kill()
            child.wait()
            return None
    if child.wait() != 0:
        raise SystemExit(f"{what} failed")
    return json.loads(line)  # type: ignore[no-any-return]


@click.command()
@click.option("--memories", default=50_000, show_default=True)
@click.option("--rounds", default=3, show_default=True, help="How often each is measured, in turn.")
@click.option("--child", type=(str, click.Path(path_type=Path)), hidden=True)
def main(memories: int, rounds: int, child: tuple[str, Path] | None) -> None:
    """Fill a store, rebuild its index again and again, once with a kill -9 in the middle."""
    if child is not None:
        _measured(child[1], child[0])
        return
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        started = time.perf_counter()
        fill(home, memories)
        print(f"{memories} memories stored in {time.perf_counter() - started:.0f} s; load {os.getloadavg()[0]:.1f}")
        found: dict[str, list[dict[str, Any]]] = {"bare": [], "reindex": []}
        for _ in range(rounds):
            for what, figures in found.items():
                figures.append(measure(home, what) or {})
                print(what, {name: round(value) for name, value in figures[-1].items()}, flush=True)
        measure(home, "reindex", kill_at=memories // 2)
        after = measure(home, "reindex") or {}
        print(f"after kill -9 half-way: {after['points']} points, {after['per_s']:.0f}/s")
    middle = {what: statistics.median(each["per_s"] for each in figures) for what, figures in found.items()}
    share = middle["reindex"] / middle["bare"]
    print(f"reindex {middle['reindex']:.0f}/s (wanted {WANTED_PER_S}), {share:.2f} of the bare index ({WANTED_SHARE})")


if __name__ == "__main__":
    main()
