"""Progress bars on standard error, quiet where nobody watches."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stackmem.exceptions import StackmemError
from stackmem.indexing import Progress as Report
from stackmem.models import Job

POLL = 0.2  # seconds


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """Yield a function ``report(done, total)`` that draws a bar."""
    # Here, because most commands draw none (20 ms).
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def counting_down(report: Report, left_to_do: Callable[[], int]) -> Callable[[], bool]:
    """Return a function that draws how much of the most ever left is done, and tells whether nothing is left."""
    most = 0

    def done() -> bool:
        nonlocal most
        left = left_to_do()
        most = max(most, left)
        report(most - left, most)
        return left == 0

    return done


def follow(job_id: int, report: Report, is_over: Callable[[], bool], failed: str) -> Job:
    """Draw the progress of a job until it is done and ``is_over``; return it.

    Raises StackmemError, beginning with ``failed``, where the job could not be done.
    """
    while True:
        job = Job.get_by_id(job_id)
        report(job.done, max(job.total, job.done))
        if job.state == "failed":
            raise StackmemError(f"{failed}: {job.message}")
        if job.state == "done" and is_over():
            return job
        time.sleep(POLL)
