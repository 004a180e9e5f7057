"""Progress bars on standard error, quiet where nobody watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stackmem.indexing import Progress as Report


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
