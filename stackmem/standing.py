"""How an owner's work stands, cheaply enough for a page that looks again every two seconds: counts, never a scan."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from peewee import fn

from stackmem.drift import sentence
from stackmem.models import Job, Owner, Session, Turn
from stackmem.status import pending

LATELY = timedelta(hours=24)
NEWEST = 2000  # turns that are looked at for today's figures
KINDS = ("model down", "bad answers", "failed turns", "fallback lines", "compare", "job")


@dataclass(frozen=True)
class Waiting:
    """What waits: turns for their look, memories for the index or a comparison, jobs; how old the oldest turn is."""

    turns: int
    memories: int
    oldest_s: int | None
    jobs: list[Job]


@dataclass(frozen=True)
class Trouble:
    """Something that went wrong: one of ``KINDS``, how often, until when it is left alone, and in which words."""

    kind: str
    count: int = 0
    until: datetime | None = None
    message: str = ""


def waiting(owner: str, now: datetime) -> Waiting:
    """Return what waits now."""
    there = (Turn.owner == owner) & Turn.state.in_(["open", "pending"])
    oldest = Turn.received_at.python_value(Turn.select(fn.MIN(Turn.received_at)).where(there).scalar())
    jobs = list(Job.select().where(Job.state.in_(["waiting", "running"])).order_by(Job.id))
    age = round((now - oldest).total_seconds()) if oldest else None
    return Waiting(Turn.select().where(there).count(), pending(owner), age, jobs)


def troubles(owner: str, now: datetime) -> list[Trouble]:
    """Return what went wrong and is not over, or happened within the last day."""
    return list(_troubles(owner, now))


def _troubles(owner: str, now: datetime) -> Iterator[Trouble]:
    stuck = Session.select().where(Session.owner == owner, (Session.delays > 0) | (Session.attempts > 0))
    down = [session for session in stuck if session.delays]
    if down:
        yield Trouble("model down", len(down), max((row.retry_at for row in down if row.retry_at), default=None))
    if bad := [session for session in stuck if session.attempts]:
        yield Trouble("bad answers", sum(row.attempts for row in bad))
    if failed := Turn.select().where(Turn.owner == owner, Turn.state == "failed").count():
        yield Trouble("failed turns", failed)
    if lines := sum(degraded for _, degraded in newest_since(owner, now - LATELY)):
        yield Trouble("fallback lines", lines)
    row = Owner.get_or_none(Owner.name == owner)
    if row is not None and row.delays:
        yield Trouble("compare", row.delays, row.retry_at)
    for job in Job.select().where(Job.state == "failed", Job.finished_at >= now - LATELY).order_by(Job.id):
        yield Trouble("job", 1, None, job.message)


def last_comparison() -> tuple[datetime, str] | None:
    """Return when the index was last compared with the database, and what was found; None where it never was."""
    job = Job.select().where(Job.kind == "check", Job.state == "done").order_by(Job.id.desc()).first()
    if job is None or "found" not in job.arguments:
        return None
    return job.finished_at, sentence(job.arguments["found"], mended=bool(job.arguments.get("mend")))


def calls_since(owner: str, moment: datetime) -> int:
    """Return how often live turns called the model since then, over the newest 2,000 turns of all owners at most."""
    return sum(calls for calls, _ in newest_since(owner, moment))


def newest_since(owner: str, moment: datetime) -> Iterator[tuple[int, bool]]:
    """Yield of the newest turns received since then how often the model was called, and whether it did not answer."""
    last = Turn.select(fn.MAX(Turn.id)).scalar() or 0
    columns = (Turn.owner, Turn.model_calls, Turn.degraded, Turn.received_at)
    # Without the owner in the query, SQLite reads the end of the table instead of sorting all turns of the owner.
    rows: Any = Turn.select(*columns).where(Turn.id > last - NEWEST).order_by(Turn.id.desc())
    for whose, calls, degraded, received_at in rows.tuples().iterator():
        if received_at < moment:
            return  # an import is received when it is read, so ids and clock go together
        if whose == owner:
            yield calls, degraded
