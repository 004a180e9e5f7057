"""SQLite, which hands out whatever bytes a row holds."""

import sqlite3

from peewee import SqliteDatabase


class Sqlite(SqliteDatabase):
    """A SQLite file one of whose rows may be damaged: bytes that are no UTF-8 become U+FFFD.

    Python's driver would refuse the whole query, and one row would stop every export, restore and move.
    """

    def _add_conn_hooks(self, conn: sqlite3.Connection) -> None:
        super()._add_conn_hooks(conn)  # type: ignore[misc]  # its stubs lack it
        conn.text_factory = _text


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
