"""Figures of rankings."""

from collections.abc import Collection, Sequence

Rank = int | None  # counted from 1; None: not among what was found


def rank_of(found: Sequence[Collection[int]], wanted: Collection[int]) -> Rank:
    """Return the place, counted from 1, of the first one found that holds anything wanted."""
    return next((place for place, held in enumerate(found, 1) if set(held) & set(wanted)), None)


def recall_at(ranks: Sequence[Rank], k: int) -> float | None:
    """Return the share of ranks that are at most ``k``, None of no ranks."""
    return sum(rank is not None and rank <= k for rank in ranks) / len(ranks) if ranks else None


def mean_reciprocal_rank(ranks: Sequence[Rank]) -> float | None:
    """Return the mean of 1 / rank, 0 for what was not found; None of no ranks."""
    return sum(1 / rank for rank in ranks if rank) / len(ranks) if ranks else None
