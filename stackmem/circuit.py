"""After a service kept a turn waiting for nothing, the next turns are spared the wait for a few seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stackmem.exceptions import TransientError
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest

SLOW_S = 2.0  # a failure that came faster cost nobody anything: the next turn may ask again at once
FIRST_S, LONGEST_S = 5.0, 30.0  # how long the service is left alone, doubling with every failure in a row


class Breaker:
    """Opens after a slow failure; one success closes it. ``what`` is the service's name in a sentence."""

    def __init__(self, what: str, now_s: Callable[[], float] = time.monotonic, slow_s: float = SLOW_S):
        self._what, self._now_s, self._slow_s = what, now_s, slow_s
        self._failures, self._open_until = 0, 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch one call; raises TransientError at once while the circuit is open."""
        started = self._now_s()
        if started < self._open_until:
            raise TransientError(self._sentence())
        try:
            yield
        except TransientError:
            self._failed(self._now_s() - started)
            raise
        self._failures = 0

    def reason(self) -> str:
        """Return why calls are refused now, "" where they are not."""
        return self._sentence() if self._now_s() < self._open_until else ""

    def _sentence(self) -> str:
        return f"The {self._what} did not answer a moment ago; it is asked again in a few seconds."

    def _failed(self, waited_s: float) -> None:
        if waited_s >= self._slow_s:
            self._open_until = self._now_s() + min(LONGEST_S, FIRST_S * 2**self._failures)
            self._failures += 1


class Circuit:
    """A chat model behind a breaker."""

    def __init__(self, model: ChatModel, now_s: Callable[[], float] = time.monotonic):
        self.name = model.name
        self._model, self._breaker = model, Breaker("chat model", now_s)

    def reason(self) -> str:
        """Return why the model is not asked now, "" where it is."""
        return self._breaker.reason()

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the model's answer; raises TransientError at once while the circuit is open."""
        with self._breaker.watched():
            return self._model.complete(request)

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield what the model says; raises TransientError at once while the circuit is open."""
        with self._breaker.watched():
            yield from self._model.stream(request)
