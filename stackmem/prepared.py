"""Queries of the live turn whose SQL is written once: that takes peewee longer than the database needs to answer.

A query is written with peewee as anywhere else, with slots for its values. What comes back are named tuples.
"""

from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from peewee import BooleanField, Field, ForeignKeyField, Insert, JSONField, Node, Select, SqliteDatabase, fn

from stackmem.fields import UTCField, json_text
from stackmem.models import proxy

_CONVERTED = (UTCField, JSONField, BooleanField)  # what a database may give back in another form than Python's


@dataclass(frozen=True)
class _Coming:
    """A value that comes with each run: its name, its place where it is one of a list, what makes it the database's."""

    name: str
    place: int | None
    convert: Callable[[Any], Any]


class Slot(Node):
    """Where a value will stand; it is converted as the field says that it is compared with, or by ``convert``."""

    def __init__(self, name: str, place: int | None = None, convert: Callable[[Any], Any] | None = None):
        self._name, self._place, self._convert = name, place, convert

    def __sql__(self, ctx: Any) -> Any:
        convert = self._convert or ctx.state.converter
        return ctx.value(self, lambda slot: _Coming(slot._name, slot._place, convert))


def slots(*fields: Field) -> dict[Field, Node]:
    """Return what an insert or an update writes into these fields: for each a slot of its name."""
    return {field: _written(field) for field in fields}


def _written(field: Field) -> Node:
    if isinstance(field, JSONField) and isinstance(proxy.obj, SqliteDatabase):
        convert = lambda value: None if value is None else json_text(value)  # noqa: E731
        return fn.json(Slot(field.name, convert=convert))  # as peewee writes it there
    return Slot(field.name, convert=field.db_value)


class Prepared:
    """A query whose SQL is written at its first use, and again for another length of a list or another database.

    ``build`` takes a slot for each value and returns the query; those named in ``lists`` are lists, of values and of
    slots, to be used with ``in_``: texts or integers, which are handed on as they are.
    """

    def __init__(self, build: Callable[..., Any], lists: Sequence[str] = ()):
        self._build, self._lists = build, lists
        self._statements: dict[tuple[Any, ...], _Statement] = {}

    def rows(self, **values: Any) -> list[Any]:
        """Return all rows, as named tuples with the names of the columns."""
        statement, cursor = self._run(values)
        return statement.read(cursor.fetchall())

    def first(self, **values: Any) -> Any:
        """Return the first row, or None."""
        return next(iter(self.rows(**values)), None)

    def insert(self, **values: Any) -> int:
        """Insert a row; return its id."""
        _, cursor = self._run(values)
        return int(cursor.fetchone()[0] if proxy.obj.returning_clause else cursor.lastrowid)

    def update(self, **values: Any) -> int:
        """Change rows; return how many were there to change."""
        _, cursor = self._run(values)
        return int(cursor.rowcount)

    def _run(self, values: dict[str, Any]) -> tuple["_Statement", Any]:
        values |= {name: _padded(values[name]) for name in self._lists}
        key = (type(proxy.obj), *(len(values[name]) for name in self._lists))
        statement = self._statements.get(key)
        if statement is None:
            slots: dict[str, Any] = {name: Slot(name) for name in values}
            slots |= {name: [Slot(name, place) for place in range(len(values[name]))] for name in self._lists}
            statement = self._statements[key] = _Statement(self._build(**slots))
        return statement, proxy.execute_sql(statement.sql, statement.filled(values))


class _Statement:
    """SQL with its values, some of them to come, and how to read what it returns."""

    def __init__(self, query: Any):
        if isinstance(query, Insert) and proxy.obj.returning_clause:
            query = query.returning(query.table._meta.primary_key)
        self.sql, values = query.sql()
        # The values of a list stand side by side: the first one stands for all.
        self._values = [value for value in values if not (isinstance(value, _Coming) and value.place)]
        selected: Sequence[Any] = query.selected_columns if isinstance(query, Select) else ()
        self._made = _row_type([_name(column) for column in selected])
        converters = [(place, _converter(column)) for place, column in enumerate(selected)]
        self._converters = [(place, convert) for place, convert in converters if convert is not None]

    def filled(self, values: dict[str, Any]) -> list[Any]:
        """Return the statement's values for one run."""
        filled: list[Any] = []
        for value in self._values:
            if not isinstance(value, _Coming):
                filled.append(value)
            elif value.place is None:
                filled.append(value.convert(values[value.name]))
            else:
                filled += values[value.name]
        return filled

    def read(self, rows: Sequence[Any]) -> list[Any]:
        """Return named tuples of what the database returned."""
        if self._converters:
            rows = [list(row) for row in rows]
            for place, convert in self._converters:
                for row in rows:
                    row[place] = convert(row[place])
        return list(map(self._made, rows))


def _padded(values: Sequence[Any]) -> list[Any]:
    """Repeat the last one up to the next power of two, so that a few statements serve every length."""
    values = list(values)
    return values + values[-1:] * ((1 << max(0, len(values) - 1).bit_length()) - len(values))


def _row_type(names: Sequence[str]) -> Any:
    row: Any = namedtuple("Row", names)  # type: ignore[misc]  # the names are known here only
    return row._make


def _name(column: Any) -> str:
    return str(column.column_name if isinstance(column, Field) else column.name)


def _converter(column: Any) -> Callable[[Any], Any] | None:
    field = column.rel_field if isinstance(column, ForeignKeyField) else column
    return field.python_value if isinstance(field, _CONVERTED) else None
