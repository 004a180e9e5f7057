"""The order of what a search found: similarity of the summary and of the words, the newest first among near-equals."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stackmem.lexical import bm25
from stackmem.ports import IndexHit
from stackmem.sources import words_of

NORMALISE_FROM = 20  # active memories: below it a mean and a deviation say nothing
# Weights of the words beside the vectors (docs/decisions/0013-recall-measured.md): a summary holds what matters in few.
LEXICAL_SUMMARY = 0.6
LEXICAL_SOURCES = 0.3
TIE_MARGIN_NORMALISED = 0.10  # of summed z-scores


class Ranked(NamedTuple):
    """A memory found, before its row is read."""

    memory_id: str
    said_at: datetime
    retrieval_score: float
    rank_score: float


def best_score(hit: IndexHit) -> float:
    """Return the larger of the similarities of the summary and of the nearest source window."""
    return max(hit.summary_score, -1.0 if hit.source_score is None else hit.source_score)


def _apart(hit: IndexHit) -> tuple[float, float]:
    """Return the two similarities without what all memories have in common, where that was left out."""
    summary = hit.summary_score if hit.summary_apart is None else hit.summary_apart
    source = hit.source_score if hit.source_apart is None else hit.source_apart
    return summary, summary if source is None else source


def _z(values: NDArray[np.float64]) -> NDArray[np.float64]:
    deviation = float(values.std())
    return (values - values.mean()) / deviation if deviation > 1e-9 else np.zeros_like(values)


def rank_scores(query: str, hits: Sequence[IndexHit], rows: dict[str, Any], normalise: bool) -> NDArray[np.float64]:
    """Return the order's score: mainly the vectors, a little the words (figures in docs/decisions)."""
    if not normalise:
        return np.array([best_score(hit) for hit in hits])
    summary, source = np.array([_apart(hit) for hit in hits]).T
    by_summary = bm25(query, [f"{rows[hit.memory_id].topic} {rows[hit.memory_id].summary}" for hit in hits])
    words = words_of([hit.memory_id for hit in hits])
    by_source = bm25(query, [words[hit.memory_id] for hit in hits])
    return _z(summary) + _z(source) + LEXICAL_SUMMARY * _z(by_summary) + LEXICAL_SOURCES * _z(by_source)


def newest_first_in_ties(found: Sequence[Ranked], margin: float) -> list[Ranked]:
    """Reorder: all within ``margin`` of a group's first member are tied, and the newest said comes first."""
    ordered: list[Ranked] = []
    group: list[Ranked] = []
    for candidate in found:
        if group and group[0].rank_score - candidate.rank_score > margin:
            ordered += sorted(group, key=lambda tied: tied.said_at, reverse=True)
            group = []
        group.append(candidate)
    return ordered + sorted(group, key=lambda tied: tied.said_at, reverse=True)
