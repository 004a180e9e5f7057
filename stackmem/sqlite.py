"""SQLite, which hands out whatever bytes a row holds."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from peewee import OperationalError, SqliteDatabase


class Sqlite(SqliteDatabase):
    """A SQLite file one of whose rows may be damaged: bytes that are no UTF-8 become U+FFFD.

    Python's driver would refuse the whole query, and one row would stop every export, restore and move.
    """

    def _add_conn_hooks(self, conn: sqlite3.Connection) -> None:
        super()._add_conn_hooks(conn)  # type: ignore[misc]  # its stubs lack it
        conn.text_factory = _text

    def rows(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return a query's rows as the driver gives them: its own text costs a quarter of ours, and is rarely torn."""
        conn = self.connection()  # type: ignore[no-untyped-call]
        conn.text_factory = str
        try:
            return self._all(sql, parameters)
        except (sqlite3.OperationalError, OperationalError):  # no UTF-8; whatever else it is comes again
            conn.text_factory = _text
            return self._all(sql, parameters)
        finally:
            conn.text_factory = _text

    def _all(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self.execute_sql(sql, parameters).fetchall()  # type: ignore[no-any-return,no-untyped-call]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
