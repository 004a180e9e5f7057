"""How things stand: counted in the rows, and in the index itself."""

from datetime import datetime, tzinfo
from typing import Any

from peewee import fn

from stackmem.forget_requests import request_lines
from stackmem.index_handle import IndexHandle
from stackmem.models import Memory, PointDeletion, Turn, Window

TURN_STATES = ("open", "pending", "kept", "skipped", "failed")
MEMORY_STATUSES = ("active", "superseded", "forgotten")


def status(owner: str, index: IndexHandle, kind: str, now: datetime, zone: tzinfo) -> dict[str, Any]:
    """Return the counts of an owner, what the user asked to be forgotten, and why searches wait or fail.

    ``points`` is None in a process that does not own the index.
    """
    oldest = Turn.select(fn.MIN(Turn.received_at)).where(Turn.owner == owner, Turn.state.in_(["open", "pending"]))
    since = Turn.received_at.python_value(oldest.scalar())
    return {
        "turns": _counts(Turn.state, Turn.owner == owner, TURN_STATES),
        "memories": _counts(Memory.status, Memory.owner == owner, MEMORY_STATUSES),
        "index": {
            "kind": kind,
            "points": active_points(index, owner),
            "pending": pending(owner),
            "embedder": index.embedder.fingerprint.name,
            "dim": index.embedder.fingerprint.dim,
        },
        "oldest_pending_s": round((now - since).total_seconds()) if since else None,
        "forget_requests": request_lines(owner, zone),
        "reasons": index.reasons(),
    }


def active_points(index: IndexHandle, owner: str) -> int | None:
    """Return how many of the owner's points in the index are active, counted in the index; None without one."""
    if index.store is None:
        return None
    if index.current is None:
        return 0
    return len([1 for _, payload in index.current.scan(owner) if payload.get("status") == "active"])


def pending(owner: str) -> int:
    """Return how many memories still wait for their embedding, upsert, payload change, removal or comparison."""
    uncompared = Window.select(Window.id).where(Window.owner == owner, ~Window.compared)
    waiting = Memory.select().where(Memory.owner == owner, Memory.outdated | Memory.window.in_(uncompared))
    leaving = PointDeletion.select().where(PointDeletion.owner == owner)
    return int(waiting.count() + leaving.count())


def _counts(column: Any, where: Any, names: tuple[str, ...]) -> dict[str, int]:
    rows = column.model.select(column, fn.COUNT(column).alias("n")).where(where).group_by(column).tuples()
    found = dict(rows)
    return {name: found.get(name, 0) for name in names}
