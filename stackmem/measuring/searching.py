"""How long searches over somebody's own store take, stage by stage."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from typing import Any

from stackmem.index_handle import IndexHandle
from stackmem.measuring.figures import percentile
from stackmem.models import Turn
from stackmem.ports import CommonPart, IndexFilter, IndexHit, IndexPoint, Vector, VectorIndex
from stackmem.recall import Recall

WHOLE = "whole search"
WORDS = 1000  # turns at most whose words are searched for


class TimedIndex:
    """A ``VectorIndex`` that knows how many milliseconds its searches took."""

    def __init__(self, index: VectorIndex):
        self._index, self.spent_ms = index, 0.0

    def search(self, query: Vector, where: IndexFilter, limit: int, common: CommonPart | None = None) -> list[IndexHit]:
        """Search."""
        started = time.perf_counter()
        try:
            return self._index.search(query, where, limit, common)
        finally:
            self.spent_ms += (time.perf_counter() - started) * 1000

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Hand on."""
        self._index.upsert(points)

    def delete(self, memory_ids: Sequence[str]) -> None:
        """Hand on."""
        self._index.delete(memory_ids)

    def scan(self, owner: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Hand on."""
        return self._index.scan(owner)


def queries(owner: str, times: int) -> list[str]:
    """Return so many queries: what the owner said last, over and over; empty where nothing was said."""
    said = Turn.select(Turn.user).where(Turn.owner == owner, Turn.user != "").order_by(Turn.id.desc()).limit(WORDS)
    return list(islice(cycle(dict.fromkeys(turn.user for turn in said)), times))


def by_stage(index: IndexHandle, recall: Recall, owner: str, asked: Sequence[str]) -> dict[str, list[float]]:
    """Search as the robot does; return the milliseconds of each search, by stage, the whole last.

    The first query is searched for once more before. Raises StackmemError where a search fails.
    """
    found: dict[str, list[float]] = {"query embedded": [], "index searched": [], "rows, order and words": [], WHOLE: []}
    timed = TimedIndex(index.current) if index.current else None
    if timed:
        index.current = timed
    for query in [*asked[:1], *asked]:
        before = timed.spent_ms if timed else 0.0
        result = recall.search_memory(owner, None, {"query": query})
        searched = (timed.spent_ms if timed else 0.0) - before
        spent = (result.embed_ms, searched, result.search_ms - searched, result.embed_ms + result.search_ms)
        for times, milliseconds in zip(found.values(), spent, strict=True):
            times.append(milliseconds)
    return {stage: times[1:] for stage, times in found.items()}


def whole(search: Callable[[str], Any], asked: Sequence[str]) -> dict[str, list[float]]:
    """Search by a function; return the milliseconds of each search. The first query is searched for once more."""
    times = []
    for query in [*asked[:1], *asked]:
        started = time.perf_counter()
        search(query)
        times.append((time.perf_counter() - started) * 1000)
    return {WHOLE: times[1:]}


def shown(stages: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return p50 and p95 of each stage."""
    return [
        {"stage": stage, "p50_ms": percentile(times, 50), "p95_ms": percentile(times, 95)}
        for stage, times in stages.items()
    ]
