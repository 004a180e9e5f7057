"""After a model kept a turn waiting for nothing, the next turns are spared the wait for a few seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stackmem.exceptions import TransientError
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest

SLOW_S = 2.0  # a failure that came faster cost nobody anything: the next turn may ask again at once
FIRST_S, LONGEST_S = 5.0, 30.0  # how long the model is left alone, doubling with every failure in a row


class Circuit:
    """A chat model behind a breaker. Opens after a slow failure; one success closes it."""

    def __init__(self, model: ChatModel, now_s: Callable[[], float] = time.monotonic):
        self.name = model.name
        self._model, self._now_s = model, now_s
        self._failures, self._open_until = 0, 0.0

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the model's answer; raises TransientError at once while the circuit is open."""
        with self._watched():
            return self._model.complete(request)

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield what the model says; raises TransientError at once while the circuit is open."""
        with self._watched():
            yield from self._model.stream(request)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        started = self._now_s()
        if started < self._open_until:
            raise TransientError("The chat model did not answer a moment ago; it is asked again in a few seconds.")
        try:
            yield
        except TransientError:
            self._failed(self._now_s() - started)
            raise
        self._failures = 0

    def _failed(self, waited_s: float) -> None:
        if waited_s >= SLOW_S:
            self._open_until = self._now_s() + min(LONGEST_S, FIRST_S * 2**self._failures)
            self._failures += 1
