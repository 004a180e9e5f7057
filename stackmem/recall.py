"""What ``search_memory`` and ``read_memory_source`` do: filter, rank, re-read the sources. Nothing here writes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any

from stackmem import sources
from stackmem.by_words import find_by_words
from stackmem.clock import show_time
from stackmem.exceptions import InvalidInput, StackmemError, TransientError
from stackmem.index_handle import IndexHandle
from stackmem.models import Memory
from stackmem.ports import IndexFilter, IndexHit, Vector
from stackmem.prepared import Prepared
from stackmem.ranking import (
    NORMALISE_FROM,
    TIE_MARGIN_NORMALISED,
    Ranked,
    best_score,
    newest_first_in_ties,
    rank_scores,
)
from stackmem.search_arguments import SearchArguments, read_arguments, widened
from stackmem.shapes import forms_of, shown_entities

POOL = 100  # best by summary and best by source words that are ranked
CANDIDATES = 5
CHECKED = 3  # candidates whose source turns are re-read
WAIT = 25  # seconds a person's search waits for an embedder that is still loading

_FOUND = Prepared(
    lambda ids: Memory.select(
        Memory.id, Memory.topic, Memory.summary, Memory.said_at, Memory.owner, Memory.status
    ).where(Memory.id.in_(ids)),
    lists=["ids"],
)
_MEMORIES = Prepared(lambda ids: Memory.select().where(Memory.id.in_(ids)), lists=["ids"])


@dataclass(frozen=True)
class Candidate:
    """A memory found: its row, the index's similarity of the summary, and the score it was ordered by."""

    memory: Memory
    retrieval_score: float
    rank_score: float


@dataclass
class ToolResult:
    """What a tool gives the model (``content``) and the trace (the rest)."""

    content: dict[str, Any]
    hits: list[dict[str, Any]] = field(default_factory=list)
    relaxed: list[str] = field(default_factory=list)
    note: str = ""
    embed_ms: float = 0.0
    search_ms: float = 0.0
    looked_for: dict[str, Any] | None = None  # the search as it was done, for "why"


class Recall:
    """The two tools over one index, its embedder and the database."""

    def __init__(self, index: IndexHandle, zone: tzinfo):
        self._index, self._zone = index, zone

    def call(
        self,
        owner: str,
        session_id: int | None,
        tool: str,
        arguments: dict[str, Any] | None,
        wait_s: float | None = None,
    ) -> ToolResult:
        """Run one tool call of the model; a wrong one is answered with a sentence, never an exception.

        ``wait_s``: how long an embedder that is still loading is waited for; None: until it is loaded.
        """
        try:
            if arguments is None:
                raise InvalidInput("The arguments could not be read: send one JSON object.")
            if tool == "search_memory":
                return self.search_memory(owner, session_id, arguments, wait_s)
            if tool == "read_memory_source":
                return self.read_memory_source(owner, arguments)
            raise InvalidInput(f"There is no tool {tool[:40]!r}.")
        except StackmemError as exc:
            return ToolResult({"error": str(exc), "candidates": [], "count": 0}, note=str(exc))

    def search_memory(
        self, owner: str, session_id: int | None, given: dict[str, Any], wait_s: float | None = None
    ) -> ToolResult:
        """Find at most 5 candidates, the best first, and the words of other sessions that are no memory yet."""
        arguments = widened(read_arguments(owner, given, self._zone))
        started = time.perf_counter()
        found, relaxed, embed_ms = self._look(arguments, CANDIDATES, wait_s)
        read = self._sources_of(found, arguments)
        waiting = sources.not_yet_memories(owner, session_id, arguments.query, arguments.where, self._zone)
        forms = forms_of([candidate.memory for candidate in found])
        candidates = [self._shown(candidate, read.get(candidate.memory.id), forms) for candidate in found]
        note = self._note(found, relaxed, bool(waiting))
        turn_ids = sources.source_turn_ids([candidate.memory.id for candidate in found])
        hits = [self._hit(candidate, read, turn_ids) for candidate in found]
        content = {"candidates": candidates + waiting, "count": len(found) + len(waiting), "relaxed": relaxed}
        return ToolResult(
            content | ({"note": note} if note else {}),
            hits=hits + _waiting_hits(waiting),
            relaxed=relaxed,
            note=note,
            looked_for=self._looked_for(arguments),
            embed_ms=embed_ms,
            search_ms=(time.perf_counter() - started) * 1000 - embed_ms,
        )

    def _looked_for(self, arguments: SearchArguments) -> dict[str, Any]:
        where = arguments.where
        return {
            "query": arguments.query,
            "entity_keys": list(where.entity_keys),
            "memory_type": where.memory_type,
            "since": show_time(where.since, self._zone),
            "until": show_time(where.until, self._zone),
            "exact": arguments.exact,
            "floor": self._index.searching.floor,
        }

    def find(self, arguments: SearchArguments, limit: int = CANDIDATES) -> list[Candidate]:
        """Return the best ``limit`` memories, in the order the robot would see them."""
        arguments = widened(arguments)
        return self._look(arguments, limit, WAIT)[0]

    def similarity(self, arguments: SearchArguments, memory_id: str) -> tuple[float | None, float]:
        """Return how near a memory is (None: not among the nearest), and from where on nearness counts."""

        def hits() -> list[IndexHit]:
            vector = self._embed(arguments.query, WAIT)
            return [] if vector is None else self._hits(vector, arguments.where, POOL)

        found = self._index.settled(hits)
        near = next((best_score(hit) for hit in found if hit.memory_id == memory_id), None)
        return near, self._index.searching.floor

    def read_memory_source(self, owner: str, given: dict[str, Any]) -> ToolResult:
        """Return the original turns of memories, with neighbours, as they were said."""
        started = time.perf_counter()
        content, hits = sources.read_sources(owner, given, self._zone)
        return ToolResult(content, hits=hits, search_ms=(time.perf_counter() - started) * 1000)

    def _look(
        self, arguments: SearchArguments, limit: int, wait_s: float | None
    ) -> tuple[list[Candidate], list[str], float]:
        """Return what is found, what was relaxed for it, and the milliseconds of embedding the query."""

        def look() -> tuple[list[Candidate], list[str], float]:
            started = time.perf_counter()
            vector = self._embed(arguments.query, wait_s)
            embed_ms = (time.perf_counter() - started) * 1000
            return *self._find_relaxing(arguments, vector, limit), embed_ms

        return self._index.settled(look)

    def _embed(self, query: str, wait_s: float | None) -> Vector | None:
        """Return the query's vector as the index takes it, shape (dim,); None where there are only words to go by."""
        if self._index.store is None:
            raise TransientError("The memory index is not open in this process; answer without it, and say so.")
        if self._index.current is None:
            return None
        self._index.loading.wait(wait_s)
        vector: Vector = self._index.searching.embed_queries([query])[0]
        return vector

    def _find_relaxing(
        self, arguments: SearchArguments, vector: Vector | None, limit: int
    ) -> tuple[list[Candidate], list[str]]:
        relaxed: list[str] = []
        where = arguments.where
        found = self._find(arguments.query, vector, where, limit, arguments.dated)
        for name, wider in (("entities", {"entity_keys": ()}), ("memory_type", {"memory_type": None})):
            narrowed = where.entity_keys if name == "entities" else where.memory_type
            if not found and narrowed:
                where = replace(where, **wider)
                relaxed.append(name)
                found = self._find(arguments.query, vector, where, limit, arguments.dated)
        return found, relaxed

    def _find(self, query: str, vector: Vector | None, where: IndexFilter, limit: int, dated: bool) -> list[Candidate]:
        if vector is None:
            return _candidates(find_by_words(query, where, limit))
        hits = self._hits(vector, where, max(POOL, limit))
        hits = [hit for hit in hits if best_score(hit) >= self._index.searching.floor]
        rows = _active_rows(where, hits)
        hits = [hit for hit in hits if hit.memory_id in rows]
        if not hits:
            return []
        active = Memory.select(Memory.id).where(Memory.owner == where.owner, Memory.status == "active")
        many = where.status == "active" and len(rows) >= NORMALISE_FROM
        normalise = many or active.limit(NORMALISE_FROM).count() >= NORMALISE_FROM
        scores = rank_scores(query, hits, rows, normalise)
        found = [
            Ranked(hit.memory_id, rows[hit.memory_id].said_at, round(hit.summary_score, 6), float(score))
            for hit, score in zip(hits, scores, strict=True)
        ]
        found.sort(key=lambda ranked: (-ranked.rank_score, ranked.memory_id))
        margin = TIE_MARGIN_NORMALISED if normalise else self._index.searching.tie_margin
        return _candidates((found if dated else newest_first_in_ties(found, margin))[:limit])

    def _hits(self, vector: Vector, where: IndexFilter, limit: int) -> list[IndexHit]:
        index = self._index.current
        if index is None:  # closed meanwhile
            raise TransientError("The index is closed.")
        return index.search(vector, where, limit, self._index.common.of(where.owner))

    def _sources_of(self, found: Sequence[Candidate], arguments: SearchArguments) -> dict[str, list[dict[str, Any]]]:
        if len(found) > 1 or arguments.exact:
            # What a person corrected counts more than the words it came from, which would say the old value.
            memories = [candidate.memory for candidate in found[:CHECKED] if candidate.memory.origin != "edited"]
            return sources.cut_sources(memories, arguments.query, self._zone)
        return {}

    def _shown(self, candidate: Candidate, read: list[dict[str, Any]] | None, forms: dict[str, str]) -> dict[str, Any]:
        memory = candidate.memory
        shown = {
            "memory_id": memory.id,
            "topic": memory.topic,
            "summary": memory.summary,
            "entities": shown_entities(memory, forms),
            "memory_type": memory.memory_type,
            "occurred_at": sources.shown_period(memory, self._zone),
            "said_at": sources.shown_time(memory.said_at, self._zone),
            "source_checked": read is not None,
        }
        if memory.origin == "edited":
            shown["corrected_by_hand"] = True
        return shown if read is None else shown | {"sources": read}

    @staticmethod
    def _hit(candidate: Candidate, read: dict[str, Any], turn_ids: dict[str, list[int]]) -> dict[str, Any]:
        return {
            "memory_id": candidate.memory.id,
            "retrieval_score": candidate.retrieval_score,
            "rank_score": round(candidate.rank_score, 6),
            "source_checked": candidate.memory.id in read,
            "source_turn_ids": turn_ids[candidate.memory.id],
        }

    @staticmethod
    def _note(found: Sequence[Candidate], relaxed: Sequence[str], waiting: bool) -> str:
        parts = []
        if relaxed:
            parts.append(f"Nothing matched {' and '.join(relaxed)}; these were found without it.")
        if not found and not waiting:
            parts.append("Nothing was found: say that you do not remember, and invent nothing.")
        if len(found) > 1:
            parts.append(
                "If these are about different things and the question does not decide, ask which one is meant."
            )
        return " ".join(parts)


def _waiting_hits(waiting: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "memory_id": None,
            "retrieval_score": None,
            "source_checked": True,
            "source_turn_ids": [turn["turn_id"] for turn in candidate["sources"]],
        }
        for candidate in waiting
    ]


def _active_rows(where: IndexFilter, hits: Sequence[IndexHit]) -> dict[str, Any]:
    # The index is derived: what it returns counts only when the database says so too. Only what ranking needs is read.
    # Owner and status are compared here: in the query they make SQLite walk through all memories of the owner.
    rows = _FOUND.rows(ids=[hit.memory_id for hit in hits])
    return {row.id: row for row in rows if row.owner == where.owner and where.status in (None, row.status)}


def _candidates(best: Sequence[Ranked]) -> list[Candidate]:
    read = _MEMORIES.rows(ids=[ranked.memory_id for ranked in best])
    rows = {row.id: Memory(**row._asdict()) for row in read}
    return [
        Candidate(rows[ranked.memory_id], ranked.retrieval_score, ranked.rank_score)
        for ranked in best
        if ranked.memory_id in rows
    ]
