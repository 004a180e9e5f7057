"""SQLite files with a torn row: read all the same, quickly or not."""

import sqlite3
from pathlib import Path

import pytest
from peewee import OperationalError

from stackmem.sqlite import Sqlite

ALL = "SELECT id, words FROM t WHERE id > ? ORDER BY id"


@pytest.fixture
def database(tmp_path: Path) -> Sqlite:
    database = Sqlite(tmp_path / "x.db")
    database.execute_sql("CREATE TABLE t (id INTEGER PRIMARY KEY, words TEXT)")
    database.execute_sql("INSERT INTO t VALUES (1, 'ねこ'), (2, NULL), (3, '😀')")
    return database


def test_rows_are_read_as_they_are(database: Sqlite) -> None:
    assert database.rows(ALL, [0]) == [(1, "ねこ"), (2, None), (3, "😀")]
    assert database.rows(ALL, [1]) == [(2, None), (3, "😀")]


@pytest.mark.parametrize("torn", [1, 3])
def test_a_torn_row_stops_none_of_the_others(database: Sqlite, torn: int) -> None:
    database.execute_sql("UPDATE t SET words = CAST(x'ff61' AS TEXT) WHERE id = ?", (torn,))
    rows = database.rows(ALL, [0])
    assert (dict(rows)[torn], len(rows)) == ("\ufffda", 3)
    assert database.execute_sql(ALL, (torn - 1,)).fetchone() == (torn, "\ufffda")  # the connection is as before


def test_what_is_wrong_with_a_query_is_said_as_ever(database: Sqlite) -> None:
    with pytest.raises((sqlite3.OperationalError, OperationalError), match="no such table"):
        database.rows("SELECT * FROM missing", [])
