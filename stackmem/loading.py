"""An embedder that loads in the background, so that only who needs it waits, and no longer than it may."""

import logging
import threading

from stackmem.exceptions import StackmemError, TransientError
from stackmem.ports import Embedder

log = logging.getLogger(__name__)

LOADING = "The embedder is still loading."


class Loading:
    """The loading of one embedder; tried again when somebody needs it and it has failed."""

    def __init__(self, embedder: Embedder):
        self._embedder = embedder
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._fault = ""

    def begin(self) -> threading.Thread | None:
        """Begin, unless it is loading or was loaded here; return the thread that loads it, None where it is ready.

        One that is ready from the start (a service's client) may still have something to import.
        """
        with self._lock:
            ready = self._embedder.ready()
            if self._thread is None or not (ready or self._thread.is_alive()):
                self._thread = threading.Thread(target=self._load, name="embedder", daemon=True)
                self._thread.start()
            return None if ready else self._thread

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when the embedder is loaded. Raises TransientError where it is not in time, or cannot be."""
        if not self._embedder.ready() and (thread := self.begin()) is not None:
            thread.join(timeout_s)
        if not self._embedder.ready():
            raise TransientError(
                f"Memories cannot be searched: {self._fault}"
                if self._fault
                else "Memories cannot be searched yet, the embedder is still loading: say so, and to ask again soon."
            )

    def reason(self) -> str:
        """Return why searches wait or fail, in a sentence; empty where it is loaded, or nobody has asked for it."""
        if self._embedder.ready() or self._thread is None:
            return ""
        return f"The embedder does not load: {self._fault}" if self._fault else LOADING

    def _load(self) -> None:
        try:
            self._embedder.load()
            self._fault = ""
        except StackmemError as exc:
            self._fault = str(exc)
            log.error("The embedder does not load: %s", exc)
