"""What waits and how it stands, of all owners: counted in the rows, which every process shares."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from peewee import fn

from stackmem.models import Job, Memory, PointDeletion, Session, Turn, Window
from stackmem.status import MEMORY_STATUSES, TURN_STATES


@dataclass(frozen=True)
class Backlog:
    """Counts, and ages that are 0 where nothing waits.

    ``oldest_pending_s``: of the oldest turn without its look; ``index_lag_s``: of the oldest memory that no search
    finds yet. ``waiting``: sessions to look at, memories to index, windows to compare, jobs.
    """

    turns: dict[str, int]
    memories: dict[str, int]
    waiting: dict[str, int]
    oldest_pending_s: float
    index_lag_s: float
    delayed_sessions: int  # whose look waits because the memory model did not answer


def backlog(now: datetime) -> Backlog:
    """Return how things stand now."""
    unfinished = Turn.state.in_(["open", "pending"])
    new = Memory.outdated & (Memory.version == 1) & (Memory.status == "active")
    return Backlog(
        turns=_counts(Turn.state, TURN_STATES),
        memories=_counts(Memory.status, MEMORY_STATUSES),
        waiting={
            "look": Turn.select(Turn.session).where(Turn.state == "pending").distinct().count(),
            "index": Memory.select().where(Memory.outdated).count() + PointDeletion.select().count(),
            "compare": Window.select().where(~Window.compared).count(),
            "job": Job.select().where(Job.state.in_(["waiting", "running"])).count(),
        },
        oldest_pending_s=_age(Turn.received_at, unfinished, now),
        index_lag_s=_age(Memory.created_at, new, now),
        delayed_sessions=Session.select().where(Session.delays > 0).count(),
    )


def _counts(column: Any, names: tuple[str, ...]) -> dict[str, int]:
    found = dict(column.model.select(column, fn.COUNT(column).alias("n")).group_by(column).tuples())
    return {name: found.get(name, 0) for name in names}


def _age(column: Any, where: Any, now: datetime) -> float:
    since = column.python_value(column.model.select(fn.MIN(column)).where(where).scalar())
    return max(0.0, (now - since).total_seconds()) if since else 0.0
