"""The tasks: an id in, one call into stackmem. Each does nothing where its row is already past it."""

from celery import Task, shared_task
from peewee import DatabaseError

from stackmem.exceptions import TransientError
from workers.app import runtime


class DatabaseTask(Task):
    """A task with a database connection; what may work later is tried again, then left to the sweep."""

    abstract = True
    autoretry_for = (TransientError, DatabaseError)
    max_retries = 3
    retry_backoff = 1  # seconds, doubled each time
    retry_backoff_max = 30  # seconds

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run the task inside a connection of its own."""
        with runtime().database.connection_context():
            return super().__call__(*args, **kwargs)


@shared_task(base=DatabaseTask, name="workers.remember")
def remember(session_id: int) -> None:
    """Look at a session."""
    runtime().work.remember(session_id)


@shared_task(base=DatabaseTask, name="workers.index")
def index(owner: str) -> None:
    """Bring an owner's memories into the index."""
    runtime().work.index_memories(owner)


@shared_task(base=DatabaseTask, name="workers.compare")
def compare(owner: str) -> None:
    """Set an owner's new memories against the older ones."""
    runtime().work.compare(owner)


@shared_task(base=DatabaseTask, name="workers.reindex")
def reindex(job_id: int) -> None:
    """Do the job of a reindex command."""
    runtime().work.rebuild(job_id)


@shared_task(base=DatabaseTask, name="workers.sweep")
def sweep() -> None:
    """Find and enqueue what is waiting."""
    runtime().work.sweep()
