"""A store of the first release is opened by this one: every row stays, and what was remembered is found."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peewee import SqliteDatabase
from playhouse.migrations import Runner

import stackmem
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.database import PRAGMAS, migrate, open_database
from stackmem.forgetting import forget, undo
from stackmem.listing import newest
from stackmem.models import Memory, MemoryEntity, Session, Turn
from tests.fakes import FixedClock
from tests.unit.world import ZONE, World, sources_of, states

WHEN = "2026-07-01T01:00:00.000000+00:00"
MEMORY = "mem_01M8NHNGNX1GCA863WK4YM8NJ4"
OTHER = "mem_01M8NHNGJQ7ZKP5TNKDSJ8E9G5"
ROWS = {
    "owner": [{"name": "home", "delays": 0}, {"name": "mari", "delays": 0}],
    "session": [
        {
            "id": number, "owner": owner, "name": "s", "seq": 1, "named": 1, "both_speakers": 0, "started_at": WHEN,
            "received_at": WHEN, "ended_at": WHEN, "looked_to": 2, "look_due": 0, "delays": 0, "attempts": 0,
        }
        for number, owner in ((1, "home"), (2, "mari"))
    ],
    "turn": [
        {
            "id": number, "uid": f"uid-{number}", "session_id": 2 if number == 4 else 1, "ordinal": number,
            "owner": "mari" if number == 4 else "home", "at": WHEN, "received_at": WHEN,
            "user": user, "reply": "いいね", "emotion": "happy", "action": "nod", "state": state,
            "degraded": 0, "imported": 0, "searched": 0,
            "memory_ids": "[]", "model_calls": 1, "tokens": "{}", "durations_ms": "{}",
        }
        for number, user, state in (
            (1, "富士通のPCにRTX 3050 Tiを積んだ", "kept"), (2, "うん", "skipped"),
            (3, "妹の誕生日は5月3日", "pending"), (4, "富士通のプリンタがある", "kept"),
        )
    ],
    "window": [
        {
            "id": number, "session_id": number, "owner": owner, "turn_ids": turns, "final": 1, "prompt_version": "v0",
            "model": "qwen", "created_at": WHEN, "compared": 1, "compare_attempts": 0,
        }
        for number, owner, turns in ((1, "home", "[1, 2]"), (2, "mari", "[4]"))
    ],
    "memory": [
        {
            "id": identity, "owner": owner, "topic": "PC", "summary": summary, "entities": '["富士通", "RTX 3050 Ti"]',
            "entity_keys": '["富士通", "rtx3050ti"]', "memory_type": "episode", "occurred_at": WHEN,
            "occurred_from": WHEN, "occurred_to": WHEN, "said_at": WHEN, "status": "active", "revision": 0,
            "origin": "made", "window_id": window, "created_at": WHEN, "version": 1, "outdated": 1, "neighbours": "[]",
        }
        for identity, owner, summary, window in (
            (MEMORY, "home", "ユーザーは富士通のPCにRTX 3050 Tiを積んだ。", 1), (OTHER, "mari", "真理のプリンタ。", 2),
        )
    ],
    "memory_entity": [
        {"memory_id": identity, "owner": owner, "key": key}
        for identity, owner in ((MEMORY, "home"), (OTHER, "mari")) for key in ("富士通", "rtx3050ti")
    ],
    "memory_source": [{"memory_id": MEMORY, "turn_id": 1}, {"memory_id": OTHER, "turn_id": 4}],
}  # fmt: skip


@pytest.fixture
def first_release(tmp_path: Path) -> Path:
    """A store that only the first migration has seen, with rows in it."""
    folder, path = tmp_path / "migrations", tmp_path / "stackmem.db"
    folder.mkdir()
    shutil.copy(Path(stackmem.__file__).parent / "migrations" / "0001_first.py", folder)
    database = SqliteDatabase(str(path), pragmas=PRAGMAS)
    with database.connection_context():
        assert Runner(database, str(folder)).up() == ["0001_first"]
        for table, rows in ROWS.items():
            for row in rows:
                names, places = ", ".join(f'"{name}"' for name in row), ", ".join("?" for _ in row)
                database.execute_sql(f'INSERT INTO "{table}" ({names}) VALUES ({places})', list(row.values()))
    return path


def stored(database: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the first release's tables, in its columns."""
    found = {}
    for table, rows in ROWS.items():
        names = list(rows[0])
        columns = ", ".join(f'"{name}"' for name in names)
        read = database.execute_sql(f'SELECT {columns} FROM "{table}" ORDER BY rowid').fetchall()
        found[table] = [dict(zip(names, row, strict=True)) for row in read]
    return found


@pytest.fixture
def open_old(first_release: Path, embedder: UseEmbedder) -> Callable[[], tuple[Any, World]]:
    """Open it with today's code."""

    def opened() -> tuple[Any, World]:
        database = open_database(f"sqlite:///{first_release}")
        database.connect()
        return database, World(embedder, OfflineChat(), clock=FixedClock())

    return opened


def test_every_row_of_the_first_release_stays_as_it_was(open_old: Callable[[], tuple[Any, World]]) -> None:
    database, _ = open_old()
    try:
        assert stored(database) == ROWS
        assert not Turn.select().where(Turn.settled).exists()
        assert [row.attempts_to for row in Session.select()] == [None, None]
        assert sources_of(MEMORY) == [1]
    finally:
        database.close()
    assert migrate(database) == []


def test_what_the_first_release_remembered_is_found_by_name_and_shown_as_it_was(
    open_old: Callable[[], tuple[Any, World]],
) -> None:
    database, world = open_old()
    try:
        world.settle()  # the turn that waited is remembered, everything is indexed
        assert states()[:3] == ["kept", "skipped", "kept"]
        for name in ("RTX3050Ti", "ｒｔｘ ３０５０ ｔｉ", "富士通"):
            content = world.recall.search_memory("home", None, {"query": "PC", "entities": [name]}).content
            assert [found["memory_id"] for found in content["candidates"]] == [MEMORY]
            assert content["relaxed"] == []
            (line,) = newest("home", {"entity": name}, 10, ZONE)["memories"]
            assert line["memory_id"] == MEMORY
            assert line["entities"] == ["富士通", "RTX 3050 Ti"]
    finally:
        database.close()


def test_what_the_first_release_remembered_can_be_forgotten_and_brought_back(
    open_old: Callable[[], tuple[Any, World]],
) -> None:
    database, world = open_old()
    try:
        world.settle()
        forget("home", [MEMORY], world.clock.now())
        assert newest("home", {"entity": "富士通"}, 10, ZONE)["count"] == 0
        undo("home", [MEMORY])
        assert newest("home", {"entity": "富士通"}, 10, ZONE)["count"] == 1
        forget("home", [MEMORY], world.clock.now(), turns=True, at_once=True)
        world.work.sweep()
        world.settle()
        assert (Turn.get_by_id(1).user, Turn.get_by_id(4).user) == ("", "富士通のプリンタがある")
        assert Memory.get_by_id(OTHER).summary == "真理のプリンタ。"
        assert {row.memory_id for row in MemoryEntity.select()} >= {OTHER}
    finally:
        database.close()
