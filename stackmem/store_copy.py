"""A whole store as rows, copied between databases of any kind: what a backup, a restore and a migration share.

Rows go from one driver to the other by plain SQL, so that two databases can be open while the models are bound to one.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from peewee import (  # type: ignore[attr-defined]  # its stubs lack sort_models
    AutoField,
    BlobField,
    BooleanField,
    FloatField,
    JSONField,
    SqliteDatabase,
    sort_models,
)

from stackmem.database import INDEX_OWNER
from stackmem.fields import UTCField, json_text
from stackmem.models import TABLES, Lease
from stackmem.score_models import SCORE_TABLES
from stackmem.text import clean, clean_json

ROWS = 500  # a batch; SQLite takes 32,766 values in a statement

# In the order in which rows can be put in: what a row points at comes first. Leases are of processes, not of the store.
STORED: list[Any] = [model for model in sort_models([*TABLES, *SCORE_TABLES]) if model is not Lease]

Report = Callable[[int], None]  # told how many more rows are done
Progress = Callable[[int, int], None]  # told how many of how many are done
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Content:
    """How many rows a table has, and a hash of them that does not depend on their order or the kind of database."""

    count: int
    sha256: str


def is_sqlite(database: Any) -> bool:
    """Tell whether a database is a SQLite file."""
    return isinstance(database, SqliteDatabase)


def table_of(model: Any) -> str:
    """Return the name of a model's table."""
    return str(model._meta.table_name)


@contextmanager
def reading(database: Any) -> Iterator[None]:
    """Read one state of the store for the block, whatever others write meanwhile."""
    with database.atomic():
        if not is_sqlite(database):
            database.execute_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


@contextmanager
def alone(database: Any) -> Iterator[None]:
    """Let nobody else write for the block; what the block writes is there whole or not at all."""
    with database.atomic("IMMEDIATE") if is_sqlite(database) else database.atomic():
        if not is_sqlite(database):
            tables = ", ".join(f'"{table_of(model)}"' for model in STORED)
            database.execute_sql(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")
        yield


def size(database: Any) -> int:
    """Return how many rows a store has."""
    return sum(int(database.execute_sql(f'SELECT count(*) FROM "{table_of(model)}"').fetchone()[0]) for model in STORED)


def counter(total: int, progress: Progress | None) -> Report:
    """Return what adds up the rows that are done and tells ``progress`` of how many."""
    done = 0

    def report(more: int) -> None:
        nonlocal done
        done += more
        if progress:
            progress(min(done, total), total)

    return report


def others_connected(database: Any) -> int:
    """Return how many other connections to a PostgreSQL database are open; 0 for SQLite, which does not know."""
    if is_sqlite(database):
        return 0
    found = database.execute_sql(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'"
    )
    return int(found.fetchone()[0])


def rows(database: Any, model: Any, after: Sequence[Any] | None = None) -> Iterator[list[Values]]:
    """Yield the rows behind a key in batches, in order of the table's key; times, JSON and bytes as Python has them."""
    fields, keys = model._meta.sorted_fields, key_columns(model)
    columns = ", ".join(_read(field, database) for field in fields)
    order = ", ".join(keys)
    place = ", ".join([database.param] * len(keys))
    while True:
        where = f"WHERE ({order}) > ({place})" if after is not None else ""
        sql = f'SELECT {columns}, {order} FROM "{table_of(model)}" {where} ORDER BY {order} LIMIT {ROWS}'
        found = database.execute_sql(sql, tuple(after or ())).fetchall()
        if found:
            yield [tuple(map(_to_python, fields, row)) for row in found]
        if len(found) < ROWS:
            return
        after = found[-1][len(fields) :]


def key_of(model: Any, row: Values) -> list[Any]:
    """Return the values of a row's key."""
    columns = [field.column_name for field in model._meta.sorted_fields]
    return [row[columns.index(key.strip('"'))] for key in key_columns(model)]


def key_columns(model: Any) -> list[str]:
    """Return the columns of a table's key, quoted."""
    return [f'"{field.column_name}"' for field in model._meta.get_primary_keys()]


def insert(database: Any, model: Any, batch: Sequence[Values]) -> None:
    """Put rows in as they are, ids too."""
    fields = model._meta.sorted_fields
    columns = ", ".join(f'"{field.column_name}"' for field in fields)
    one = f"({', '.join([database.param] * len(fields))})"
    sql = f'INSERT INTO "{table_of(model)}" ({columns}) VALUES {", ".join([one] * len(batch))}'
    database.execute_sql(
        sql, [_to_driver(field, value) for row in batch for field, value in zip(fields, row, strict=True)]
    )


def empty(database: Any) -> None:
    """Delete every row, leases too; but whose index it is stays written."""
    database.execute_sql(f'DELETE FROM "{table_of(Lease)}" WHERE name <> {database.param}', (INDEX_OWNER,))
    for model in reversed(STORED):
        database.execute_sql(f'DELETE FROM "{table_of(model)}"')


def content(database: Any, report: Report | None = None) -> dict[str, Content]:
    """Return what each table holds, by its name."""
    return {table_of(model): _content(model, rows(database, model), report) for model in STORED}


def copy(source: Any, target: Any, report: Report | None = None) -> dict[str, Content]:
    """Put all rows of one database into another, empty one; return what was read."""
    found = {}
    for model in STORED:

        def passed_on(model: Any = model) -> Iterator[list[Values]]:
            for batch in rows(source, model):
                insert(target, model, batch)
                yield batch

        found[table_of(model)] = _content(model, passed_on(), report)
    raise_ids(target, last_ids(source))
    return found


def _content(model: Any, batches: Iterator[list[Values]], report: Report | None) -> Content:
    fields = model._meta.sorted_fields
    count = total = 0
    for batch in batches:
        count += len(batch)
        total += sum(int.from_bytes(hashlib.sha256(_text(fields, row)).digest()) for row in batch)
        if report:
            report(len(batch))
    return Content(count, f"{total % 2**256:064x}")  # a sum: two databases sort text differently


def last_ids(database: Any) -> dict[str, int]:
    """Return the last number given out by each table that numbers its rows, also where that row is gone."""
    found = {}
    for model in STORED:
        if isinstance(key := model._meta.primary_key, AutoField):
            table = table_of(model)
            highest = database.execute_sql(f'SELECT max("{key.column_name}") FROM "{table}"').fetchone()[0] or 0
            found[table] = max(int(highest), _given_out(database, table, key.column_name))
    return found


def raise_ids(database: Any, last: dict[str, int]) -> None:
    """See that no number up to these is given out again; a number is never given back."""
    for table, number in last.items():
        if number <= _given_out(database, table, "id"):
            continue
        if not is_sqlite(database):
            name = _sequence(database, table, "id")
            database.execute_sql("SELECT setval(%s::text::regclass, %s)", (name, number))
        elif _never_reuses(database, table):
            database.execute_sql("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            database.execute_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))


def _given_out(database: Any, table: str, column: str) -> int:
    if not is_sqlite(database):
        sequence = _sequence(database, table, column)
        sql = f"SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM {sequence}"
        return int(database.execute_sql(sql).fetchone()[0])
    if not _never_reuses(database, table):
        return 0
    row = database.execute_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return int(row[0]) if row else 0


def _sequence(database: Any, table: str, column: str) -> str:
    return str(database.execute_sql("SELECT pg_get_serial_sequence(%s, %s)", (f'"{table}"', column)).fetchone()[0])


def _never_reuses(database: Any, table: str) -> bool:
    row = database.execute_sql("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return row is not None and "AUTOINCREMENT" in row[0].upper()


def _read(field: Any, database: Any) -> str:
    column = f'"{field.column_name}"'
    return f"{column}::text" if isinstance(field, JSONField) and not is_sqlite(database) else column


def _to_python(field: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(field, UTCField):
        return field.python_value(value)
    if isinstance(field, JSONField):
        return clean_json(json.loads(value))
    if isinstance(field, BooleanField):
        return bool(value)
    if isinstance(field, BlobField):
        return bytes(value)
    return clean(value) if isinstance(value, str) else value


def _to_driver(field: Any, value: Any) -> Any:
    if value is None:
        return "null" if isinstance(field, JSONField) and not field.null else None
    if isinstance(field, UTCField):
        return field.db_value(value)
    return json_text(value) if isinstance(field, JSONField) else value


def _text(fields: Sequence[Any], row: Values) -> bytes:
    """Return a row in one form, whatever database it was read from."""
    return "\x1f".join(map(_form, fields, row)).encode()


def _form(field: Any, value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(field, FloatField) and value is not None:
        return f"{value:.6g}"  # PostgreSQL's REAL has no more digits
    if isinstance(field, JSONField):
        return json.dumps(_plain(value), sort_keys=True)
    return repr(value)


def _plain(value: Any) -> Any:
    """Return JSON with its whole numbers as integers: PostgreSQL keeps 1e16 as a number of 17 digits."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
