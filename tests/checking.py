"""Claims that must hold of any store, whatever happened to it: checked in the rows and in the index."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.local_index import LocalStore
from stackmem.ports import Fingerprint
from tests.shapes import settings_of

FINGERPRINT = Fingerprint("use", 512)
LONG_AGO = "2000-01-01T00:00:00.000000+00:00"  # for what only waits for time to pass


def rows(home: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query on a store that may be in use."""
    if url := settings_of(home).get("database_url"):
        return _in_postgres(url, sql, values)
    connection = sqlite3.connect(f"file:{home / 'stackmem.db'}?mode=ro", uri=True)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def execute(home: Path, sql: str, *values: Any) -> None:
    """Change a store from outside, as when time passes at once."""
    if url := settings_of(home).get("database_url"):
        _in_postgres(url, sql, values)
        return
    connection = sqlite3.connect(home / "stackmem.db", timeout=10)
    try:
        with connection:
            connection.execute(sql, values)
    finally:
        connection.close()


def _in_postgres(url: str, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    import psycopg  # an extra

    sql = re.sub(r'(?<!")\b(user|window)\b(?!")', r'"\1"', sql)  # words of the language there
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.replace("?", "%s"), values or None)  # type: ignore[arg-type]  # tests' own SQL
        return cursor.fetchall() if cursor.description else []


def files_with(home: Path, word: str) -> list[str]:
    """Return the files under a home folder that hold a word, plain or escaped, the write-ahead log included."""
    escaped = json.dumps(word)[1:-1]
    forms = {word.encode(code) for code in ("utf-8", "utf-16-le", "utf-16-be", "shift-jis", "euc-jp")}
    forms |= {escaped.encode(), escaped.upper().replace("\\U", "\\u").encode()}
    found = []
    for path in _paths(home):
        with suppress(FileNotFoundError, IsADirectoryError):  # an old generation may go while we look
            data = path.read_bytes()
            found += [str(path.relative_to(home))] if any(form in data for form in forms) else []
    return found


def _paths(home: Path) -> list[Path]:
    """Return all paths below a folder; an old generation may go while we look."""
    while True:
        with suppress(FileNotFoundError):
            return sorted(home.rglob("*"))


def points(home: Path, kind: str = "edge") -> dict[str, str]:
    """Return memory_id → status of every point in a store that nobody uses now."""
    store = EdgeStore(home / "index", lock_wait_s=5) if kind == "edge" else LocalStore(home / "index" / "local")
    try:
        index = store.open(FINGERPRINT)
        assert index is not None, "the index cannot be opened"
        found = [(memory_id, payload["status"]) for memory_id, payload in index.scan()]
    finally:
        store.close()
    assert len(found) == len(dict(found)), "a memory has two points"
    return dict(found)


def check_store(home: Path, turns: int, kind: str = "edge") -> None:
    """Check a settled store: no turn lost or left, no memory twice, every active memory in the index once."""
    states = dict(rows(home, "SELECT state, count(*) FROM turn GROUP BY state"))
    assert sum(states.values()) == turns
    assert set(states) <= {"kept", "skipped"}, states
    assert rows(
        home, "SELECT count(*) FROM turn WHERE uid IN (SELECT uid FROM turn GROUP BY uid HAVING count(*) > 1)"
    ) == [(0,)]
    memories = dict(rows(home, "SELECT id, status FROM memory WHERE status <> 'forgotten'"))
    assert points(home, kind) == memories
    assert memories_told_twice(home) == []
    kept_without_memory = rows(
        home, "SELECT id FROM turn WHERE state = 'kept' AND id NOT IN (SELECT turn_id FROM memory_source)"
    )
    assert kept_without_memory == []
    assert rows(home, "SELECT memory_id FROM memory_source WHERE turn_id NOT IN (SELECT id FROM turn)") == []
    assert sources_of_others(home) == []


def memories_told_twice(home: Path) -> list[tuple[Any, ...]]:
    """Return the summaries, each with its source turns, that more than one memory has."""
    said_by: dict[str, tuple[str, list[int]]] = {}
    told = "SELECT m.id, m.summary, s.turn_id FROM memory m JOIN memory_source s ON s.memory_id = m.id"
    for memory_id, summary, turn_id in rows(home, f"{told} ORDER BY m.id, s.turn_id"):
        said_by.setdefault(memory_id, (summary, []))[1].append(turn_id)
    counted = Counter((summary, *ids) for summary, ids in said_by.values())
    return [key for key, count in counted.items() if count > 1]


def sources_of_others(home: Path) -> list[tuple[Any, ...]]:
    """Return the memories that were made of another owner's turns."""
    return rows(
        home,
        "SELECT m.id FROM memory m JOIN memory_source s ON s.memory_id = m.id JOIN turn t ON t.id = s.turn_id "
        "WHERE t.owner <> m.owner",
    )
