"""A memory model that remembers what the reference memories of a log hold, and finds nothing known in anything."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks._replay import spoken
from benchmarks.offline_rules import Turn
from stackmem.exceptions import PermanentError
from stackmem.ports import ChatAnswer, ChatRequest


class ReferenceChat:
    """Answers a look by the reference memories of the turns it sees, and every comparison by "new"."""

    name = "reference"

    def __init__(self, turns: Sequence[Turn], memories: Sequence[dict[str, Any]]):
        self._said = [spoken(turn) for turn in turns]
        self._lines = [set(turn.lines) for turn in turns]
        self._memories = memories

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the segments of a look or the decisions of a comparison, as JSON."""
        given = json.loads(request.messages[1]["content"])
        if request.purpose == "compare":
            return _answer("decisions", [{"id": new["id"], "decision": "new"} for new in given["new"]])
        return _answer("segments", self._segments(given["turns"]))

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield the answer when it is whole."""
        yield self.complete(request)

    def _segments(self, shown: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        start = self._start([(turn["user"], turn["robot"]) for turn in shown])
        lines = {turn["turn_id"]: self._lines[start + step] for step, turn in enumerate(shown)}
        kept = [memory | {"turn_ids": _numbers(memory, lines), "keep": True} for memory in self._memories]
        kept = [segment for segment in kept if segment["turn_ids"]]
        left = set(lines).difference(*(segment["turn_ids"] for segment in kept))
        return kept + ([{"turn_ids": sorted(left), "keep": False}] if left else [])

    def _start(self, shown: Sequence[tuple[str, str]]) -> int:
        """Return the place in the log of the first of these consecutive turns."""
        for start in range(len(self._said) - len(shown) + 1):
            if self._said[start : start + len(shown)] == list(shown):
                return start
        raise PermanentError("These turns are not of the log whose reference memories are known.")


def _numbers(memory: dict[str, Any], lines: dict[int, set[int]]) -> list[int]:
    return [number for number, held in lines.items() if held & set(memory["lines"])]


def _answer(name: str, items: list[dict[str, Any]]) -> ChatAnswer:
    return ChatAnswer(json.dumps({name: items}, ensure_ascii=False))
