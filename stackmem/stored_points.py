"""Points read back from the rows, many at a time: a rebuild is as fast as the index itself, or nearly."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from stackmem.models import Memory, MemoryVector, proxy
from stackmem.ports import Fingerprint, IndexPoint

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
    return [StoredRow(*row) for row in _raw(query)]


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

    One that has lost a vector between the others, or its summary's, is left out.
    """
    if not rows:
        return {}
    vectors = MemoryVector.select(MemoryVector.memory, MemoryVector.ordinal, MemoryVector.vector).where(
        MemoryVector.memory.between(rows[0].id, rows[-1].id), MemoryVector.fingerprint == str(fingerprint)
    )
    stored: dict[str, list[bytes]] = {}
    torn = set[str]()
    for memory_id, ordinal, vector in sorted(_raw(vectors), key=_PLACE):
        known = stored.setdefault(memory_id, [])
        if len(known) != ordinal:
            torn.add(memory_id)
        known.append(vector)
    return {
        row.id: _point(row, stored[row.id], fingerprint.dim) for row in rows if row.id in stored and row.id not in torn
    }


def _point(row: StoredRow, vectors: Sequence[bytes], dim: int) -> IndexPoint:
    together = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(-1, dim)
    return IndexPoint(row.id, together[0], together[1:], payload_of(row))


def _raw(query: Any) -> list[tuple[Any, ...]]:
    """Return rows as the driver gives them: peewee's own conversion takes longer than the index does."""
    sql, parameters = query.sql()
    return proxy.execute_sql(sql, parameters).fetchall()  # type: ignore[no-any-return]


def _iso(value: Any) -> str:
    """Return a stored time in UTC, to the second: text of fixed width in SQLite, a datetime in PostgreSQL."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    return f"{value[:19]}+00:00"
