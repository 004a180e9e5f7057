"""Model calls as a meter sees them: how long, with what end, how many tokens."""

import time
from collections.abc import Iterator, Mapping
from typing import Literal

from stackmem.exceptions import StackmemError
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest, Meter, Purpose


class NoMeter:
    """Takes nothing: for commands, and workers that nobody asks."""

    def turn(self, durations_ms: Mapping[str, float], *, degraded: bool) -> None:
        """Do nothing."""

    def spent(self, kind: Literal["tool", "part"], name: str, duration_ms: float) -> None:
        """Do nothing."""

    def model_call(self, purpose: Purpose, duration_ms: float, answer: ChatAnswer | None) -> None:
        """Do nothing."""

    def error(self, where: str, kind: str) -> None:
        """Do nothing."""


class MeteredChat:
    """A chat model whose calls are metered, but for a stream that its reader gives up."""

    def __init__(self, model: ChatModel, meter: Meter):
        self.name = model.name
        self._model, self._meter = model, meter

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the model's answer; raises what it raises."""
        started, answer = time.perf_counter(), None
        try:
            answer = self._model.complete(request)
        except StackmemError as exc:
            self._meter.error("model", type(exc).__name__)
            raise
        finally:
            self._meter.model_call(request.purpose, (time.perf_counter() - started) * 1000, answer)
        return answer

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield what the model yields; raises what it raises."""
        started, answer, is_over = time.perf_counter(), None, True
        try:
            for item in self._model.stream(request):
                if isinstance(item, ChatAnswer):
                    answer = item
                yield item
        except GeneratorExit:
            is_over = answer is not None
            raise
        except StackmemError as exc:
            self._meter.error("model", type(exc).__name__)
            raise
        finally:
            if is_over:
                self._meter.model_call(request.purpose, (time.perf_counter() - started) * 1000, answer)
