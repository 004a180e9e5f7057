"""Work that goes on in a thread of its own while its beginning is sent: nobody who goes away can stop it."""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from stackmem.speaking import OnSentence

Result = TypeVar("Result")


class Underway(Generic[Result]):
    """``work(on_text)`` in a thread with a connection to the database.

    Its first piece of text, its end, or its failure is waited for at once: what fails before that is raised here.
    """

    def __init__(self, work: Callable[[OnSentence], Result], database: Any):
        self._coming: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._work, self._database = work, database
        self._result: list[Result] = []
        # A daemon: a server that stops does not wait for a model. Whatever was not stored is found by its state.
        threading.Thread(target=self._run, name="answering", daemon=True).start()
        self._first: str | None = self._next()

    @property
    def result(self) -> Result:
        """What the work returned; there once ``pieces`` is at its end."""
        return self._result[0]

    def pieces(self) -> Iterator[str]:
        """Yield the pieces of text as they come. Raises what the work raises."""
        piece = self._first
        while piece is not None:
            yield piece
            piece = self._next()

    def _next(self) -> str | None:
        kind, value = self._coming.get()
        if kind == "failed":
            raise value
        if kind == "done":
            self._result.append(value)
            return None
        return str(value)

    def _run(self) -> None:
        try:
            with self._database.connection_context():
                result = self._work(lambda text: self._coming.put(("text", text)))
        except Exception as exc:  # the thread's edge: raised again by who waits
            self._coming.put(("failed", exc))
        else:
            self._coming.put(("done", result))
