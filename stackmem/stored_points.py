"""Points read back from the rows, many at a time: a rebuild is as fast as the index itself, or nearly."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from stackmem.models import Memory, MemoryVector, proxy
from stackmem.ports import Fingerprint, IndexPoint
from stackmem.sqlite import Sqlite

_PLACE = itemgetter(0, 1)


class StoredRow(NamedTuple):
    """What an index holds of a memory besides its vectors, as the database gives it: no field is converted."""

    id: str
    owner: str
    status: str
    memory_type: str
    entity_keys: Any
    occurred_at: Any
    occurred_from: Any
    occurred_to: Any
    said_at: Any
    version: int
    outdated: Any


def rows_after(memory_id: str, limit: int) -> list[StoredRow]:
    """Return the next rows in order of id, without those that are forgotten."""
    return _rows(_select().where(Memory.id > memory_id).order_by(Memory.id).limit(limit))


def rows_of(memory_ids: Sequence[str]) -> list[StoredRow]:
    """Return the rows of these memories, as far as there are any that are not forgotten."""
    return _rows(_select().where(Memory.id.in_(memory_ids)))


def _select() -> Any:
    return Memory.select(*(getattr(Memory, name) for name in StoredRow._fields)).where(Memory.status != "forgotten")


def _rows(query: Any) -> list[StoredRow]:
    return [StoredRow._make(row) for row in _raw(query)]


def payload_of(row: StoredRow) -> dict[str, Any]:
    """Return what ``indexing.payload`` returns of the same memory."""
    keys = row.entity_keys
    return {
        "owner": row.owner,
        "status": row.status,
        "memory_type": row.memory_type,
        "entity_keys": json.loads(keys) if isinstance(keys, str) else keys,
        "occurred_at": _iso(row.occurred_at),
        "occurred_from": _iso(row.occurred_from),
        "occurred_to": _iso(row.occurred_to),
        "said_at": _iso(row.said_at),
        "version": row.version,
    }


def stored_points(rows: Sequence[StoredRow], fingerprint: Fingerprint) -> dict[str, IndexPoint]:
    """Return the points, by memory id, of those of neighbouring rows that have vectors of this fingerprint.

    One that has lost a vector between the others, or its summary's, or holds one of another length, is left out.
    """
    if not rows:
        return {}
    vectors = MemoryVector.select(MemoryVector.memory, MemoryVector.ordinal, MemoryVector.vector).where(
        MemoryVector.memory.between(rows[0].id, rows[-1].id), MemoryVector.fingerprint == str(fingerprint)
    )
    first, end, torn = dict[str, int](), dict[str, int](), set[str]()
    found, size = sorted(_raw(vectors), key=_PLACE), 4 * fingerprint.dim
    for number, (memory_id, ordinal, vector) in enumerate(found):
        if number - first.setdefault(memory_id, number) != ordinal or len(vector) != size:
            torn.add(memory_id)
        end[memory_id] = number + 1
    together = np.frombuffer(
        b"".join(vector if len(vector) == size else bytes(size) for _, _, vector in found), dtype="<f4"
    ).reshape(-1, fingerprint.dim)
    return {
        row.id: IndexPoint(row.id, together[at], together[at + 1 : end[row.id]], payload_of(row))
        for row in rows
        if (at := first.get(row.id)) is not None and row.id not in torn
    }


def _raw(query: Any) -> list[tuple[Any, ...]]:
    """Return rows as the driver gives them: peewee's own conversion takes longer than the index does."""
    sql, parameters = query.sql()
    if isinstance(proxy.obj, Sqlite):
        return proxy.obj.rows(sql, parameters)
    return proxy.execute_sql(sql, parameters).fetchall()  # type: ignore[no-any-return]


def _iso(value: Any) -> str:
    """Return a stored time in UTC, to the second: text of fixed width in SQLite, a datetime in PostgreSQL."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    return f"{value[:19]}+00:00"
