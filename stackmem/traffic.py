"""Live turns first: background work of the same process waits a little at each step while one is in flight."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 0.1  # that one step waits at most: robots that talk without a pause slow memories down, never stop them


class Traffic:
    """How many live turns are in flight in this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turns = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Be in flight inside the block."""
        with self._changed:
            self._turns += 1
        try:
            yield
        finally:
            with self._changed:
                self._turns -= 1
                self._changed.notify_all()

    def give_way(self) -> bool:
        """Wait until no turn is in flight, ``PATIENCE_S`` at most; return whether none is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._turns, PATIENCE_S)


live = Traffic()  # this process's; where workers are processes of their own, there is never one in flight
