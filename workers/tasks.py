"""The tasks: an id in, one call into stackmem or evals. Each does nothing where its row is already past it."""

import logging
import threading

from celery import Task, shared_task
from peewee import DatabaseError, InterfaceError

from evals.live import LiveScoring
from stackmem.exceptions import StackmemError, TransientError
from stackmem.witness import seen
from workers.app import runtime

log = logging.getLogger(__name__)


WAITS = (1, 2, 4)  # seconds before each further try
stopping = threading.Event()  # set when this process is to end: nothing is tried again then


class DatabaseTask(Task):
    """A task with a database connection of its own.

    What may work later is tried again, 1, 2 and 4 seconds later, here: a task that is sent again to run later needs a
    broker that keeps it, and each keeps it in another way. Then, and with what will not work, the row stays as it is:
    the log says why in one line, and the sweep finds it again.
    """

    abstract = True

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run the task."""
        for number, wait in enumerate((*WAITS, None), 1):
            try:
                with runtime().database.connection_context():
                    return super().__call__(*args, **kwargs)
            except (TransientError, DatabaseError, InterfaceError) as exc:
                runtime().meter.error("task", type(exc).__name__)
                log.warning("%s%s did not work (try %d): %s", self.name, list(args), number, exc)
            except StackmemError as exc:
                runtime().meter.error("task", type(exc).__name__)
                log.warning("%s%s did not work: %s", self.name, list(args), exc)
                break
            if wait is None or stopping.wait(wait):
                break
        return None


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


@shared_task(base=DatabaseTask, name="workers.check_index")
def check_index() -> None:
    """Compare database and index, if that is due."""
    runtime().work.check_index()


@shared_task(base=DatabaseTask, name="workers.sweep")
def sweep() -> None:
    """Find and enqueue what is waiting."""
    seen("live", runtime().clock.now())
    runtime().work.sweep()


@shared_task(base=DatabaseTask, name="workers.score")
def score() -> None:
    """Judge live turns, and write the windows that have become full."""
    seen("batch", runtime().clock.now())
    LiveScoring.over(runtime()).run()
