"""A search without vectors: by the words of the summaries, over the rows that a filter leaves."""

from typing import Any

from stackmem.lexical import bm25, coverage
from stackmem.models import Memory, MemoryEntity
from stackmem.ports import IndexFilter
from stackmem.ranking import Ranked

COVERAGE = 0.2  # share of the query's bigrams a memory must hold


def find_by_words(query: str, where: IndexFilter, limit: int) -> list[Ranked]:
    """Return the memories that share most with the query, the best first; their ``retrieval_score`` is 0."""
    columns = (Memory.id, Memory.topic, Memory.summary, Memory.said_at)
    rows = [
        (row, f"{row.topic} {row.summary}")
        for row in matching(where).select(*columns).order_by(Memory.id).namedtuples()
    ]
    near = [(row, text) for row, text in rows if coverage(query, text) >= COVERAGE]
    scores = bm25(query, [text for _, text in near])
    found = [Ranked(row.id, row.said_at, 0.0, float(score)) for (row, _), score in zip(near, scores, strict=True)]
    return sorted(found, key=lambda ranked: -ranked.rank_score)[:limit]


def matching(where: IndexFilter) -> Any:
    """Return a query of the rows that the index's filter would let through."""
    there = Memory.status == where.status if where.status else Memory.status != "forgotten"
    rows = Memory.select().where(Memory.owner == where.owner, there)
    if where.memory_type is not None:
        rows = rows.where(Memory.memory_type == where.memory_type)
    if where.entity_keys:
        keys = MemoryEntity.key.in_(list(where.entity_keys))
        rows = rows.where(Memory.id.in_(MemoryEntity.select(MemoryEntity.memory).where(keys)))
    happened = said = Memory.owner == where.owner
    if where.since is not None:
        happened, said = happened & (Memory.occurred_to >= where.since), said & (Memory.said_at >= where.since)
    if where.until is not None:
        happened, said = happened & (Memory.occurred_from <= where.until), said & (Memory.said_at <= where.until)
    return rows.where(happened | said)
