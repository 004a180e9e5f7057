"""Count a model's calls, tokens and seconds, in a file beside the store."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from stackmem.exceptions import PermanentError, TransientError
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest
from stackmem.text import estimate_tokens

FAILURES = 8  # in a row, after which a model that is down ends the run
CALLS_FILE = "calls.jsonl"  # in the home folder, so that a run that goes on knows the calls made before


@dataclass(frozen=True)
class Call:
    """One call of the model. ``estimated``: the server reported no tokens, so they were estimated."""

    purpose: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    estimated: bool = False
    answered: bool = True


class CountingChat:
    """A chat model that writes every call of the one inside into a file."""

    def __init__(self, inner: ChatModel, path: Path):
        self.name, self._inner, self._path = inner.name, inner, path
        self._failed = 0  # in a row

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the model's answer. Raises what it raises, and ClickException when it failed too often in a row."""
        started = time.perf_counter()
        try:
            answer = self._inner.complete(request)
        except (TransientError, PermanentError) as exc:
            self._failed += 1
            self._write(Call(request.purpose, 0, 0, time.perf_counter() - started, answered=False))
            if self._failed >= FAILURES:
                raise click.ClickException(f"The model failed {FAILURES} times in a row: {exc}") from exc
            raise
        self._failed = 0
        self._write(call_of(request, answer, time.perf_counter() - started))
        return answer

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield the answer when it is whole: a benchmark speaks nothing."""
        yield self.complete(request)

    def _write(self, call: Call) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(call)) + "\n")


def call_of(request: ChatRequest, answer: ChatAnswer, seconds: float) -> Call:
    """Return what one call cost, by the server's own count where it gives one."""
    if answer.prompt_tokens:
        return Call(request.purpose, answer.prompt_tokens, answer.completion_tokens, seconds)
    prompt = sum(estimate_tokens(message["content"]) for message in request.messages)
    return Call(request.purpose, prompt, estimate_tokens(answer.content), seconds, estimated=True)


def read_calls(home: Path) -> list[Call]:
    """Return all calls made in this home folder, by earlier runs too."""
    path = home / CALLS_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Call(**json.loads(line)) for line in lines]
