"""Hints on their way to a broker: they leave in a thread of their own, and no live turn waits for that."""

import atexit
import threading
import time
from collections.abc import Callable

from stackmem.ports import Hint

WAITING = 1000  # hints at most; the sweep finds what is left out
AT_EXIT = 2.0  # seconds a process that ends waits for its last hints to leave

Send = Callable[[Hint], None]
Lost = Callable[[Hint, Exception, int], None]  # which, why, and how many more with it


class Departing:
    """A queue whose hints are sent by a thread, each as soon as it can be, the same one once.

    A broker may refuse a connection in a millisecond, or say nothing for seconds, or take a hint and not confirm it:
    a live turn is to notice none of that.
    """

    def __init__(self, send: Send, lost: Lost):
        self._send, self._lost = send, lost
        self._waiting: dict[Hint, None] = {}
        self._changed = threading.Condition()
        self._sending = False
        self._thread: threading.Thread | None = None

    def put(self, hint: Hint) -> None:
        """Let a hint depart; it is dropped where too many wait already."""
        with self._changed:
            if self._thread is None:  # not before: a server may fork
                self._thread = threading.Thread(target=self._run, name="hints", daemon=True)
                self._thread.start()
                atexit.register(self.flush, AT_EXIT)
            if len(self._waiting) < WAITING:
                self._waiting[hint] = None
                self._changed.notify_all()

    def flush(self, patience_s: float) -> bool:
        """Wait until all hints have left; return whether they have."""
        end = time.monotonic() + patience_s
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._waiting or self._sending), timeout=max(0.0, end - time.monotonic())
            )

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                hint = next(iter(self._waiting))
                del self._waiting[hint]
                self._sending = True
            try:
                self._send(hint)
            except Exception as exc:  # the edge of the process: kombu raises what each broker's library does
                self._lost(hint, exc, self._drop())
            with self._changed:
                self._sending = False
                self._changed.notify_all()

    def _drop(self) -> int:
        """Drop what waits as well: each would keep the thread as long, and the sweep brings all of it."""
        with self._changed:
            more = len(self._waiting)
            self._waiting.clear()
        return more
