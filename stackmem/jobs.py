"""Long work that whoever owns the index does: its row, and its progress in it."""

import time
from datetime import datetime, timedelta, tzinfo

from stackmem.indexing import Progress
from stackmem.models import Job

NIGHT = 3  # the hour in which the index is checked, where the machine runs then
CHECK_EVERY, CHECK_AT_LATEST = timedelta(hours=20), timedelta(hours=48)
EVERY_S = 0.5  # between two notes of progress: each is a commit


def reindex_job(source: str, now: datetime) -> Job:
    """Return a rebuild that is waiting or was begun (a kill -9 leaves one behind), else a new one."""
    unfinished = Job.select().where(Job.kind == "reindex", Job.state.in_(["waiting", "running"])).order_by(Job.id)
    same = [job for job in unfinished if (job.arguments.get("from") or "memories") == source]
    return same[0] if same else Job.create(kind="reindex", arguments={"from": source}, created_at=now)


def check_job(mend: bool, now: datetime) -> Job:
    """Return a new comparison of database and index; what it finds will stand in its arguments."""
    return Job.create(kind="check", arguments={"mend": mend}, created_at=now)


def is_check_due(now: datetime, zone: tzinfo) -> bool:
    """Tell whether the index is to be compared now: once a night, and on a machine that sleeps then, every two days."""
    checked = Job.select().where(Job.kind == "check").order_by(Job.id.desc()).first()
    if checked is None or checked.created_at <= now - CHECK_AT_LATEST:
        return True
    return now.astimezone(zone).hour == NIGHT and checked.created_at <= now - CHECK_EVERY


def progress_of(job_id: int) -> Progress:
    """Return what writes a job's progress into its row, twice a second at most."""
    noted_at = float("-inf")

    def note(done: int, total: int) -> None:
        nonlocal noted_at
        if time.monotonic() - noted_at >= EVERY_S:
            Job.update(done=done, total=total).where(Job.id == job_id).execute()
            noted_at = time.monotonic()

    return note
