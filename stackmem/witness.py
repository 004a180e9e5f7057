"""That workers and beat are alive, as the database shows it: beat's regular tasks leave a row when a worker runs them.

No worker has to be asked, and none that hangs can answer for another: sweep (every 30 s) stands for ``live``, scoring
(every 60 s) for ``batch``.
"""

from datetime import datetime, timedelta

from stackmem.models import Lease

PATIENCE = {"live": timedelta(seconds=120), "batch": timedelta(minutes=15)}  # a judge may take its time
PREFIX = "seen:"


def seen(queue: str, now: datetime) -> None:
    """Note that a worker takes tasks of this queue."""
    row = {"name": PREFIX + queue, "holder": "worker", "until": now + PATIENCE[queue]}
    until = {Lease.until: row["until"]}
    Lease.insert(row).on_conflict(conflict_target=[Lease.name], update=until).execute()


def absent(now: datetime) -> list[str]:
    """Return the queues of which no worker has taken a regular task for too long, or ever."""
    names = [PREFIX + queue for queue in PATIENCE]
    alive = {row.name for row in Lease.select().where(Lease.name.in_(names), Lease.until >= now)}
    return [queue for queue in PATIENCE if PREFIX + queue not in alive]
