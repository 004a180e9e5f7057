"""Figures of rankings and rates, with their uncertainty."""

import math
from collections.abc import Collection, Sequence

Rank = int | None  # counted from 1; None: not among what was found
Z_95 = 1.959964  # normal quantile of a two-sided interval of 95 %


def rank_of(found: Sequence[Collection[int]], wanted: Collection[int]) -> Rank:
    """Return the place, counted from 1, of the first one found that holds anything wanted."""
    return next((place for place, held in enumerate(found, 1) if set(held) & set(wanted)), None)


def recall_at(ranks: Sequence[Rank], k: int) -> float | None:
    """Return the share of ranks that are at most ``k``, None of no ranks."""
    return sum(rank is not None and rank <= k for rank in ranks) / len(ranks) if ranks else None


def mean_reciprocal_rank(ranks: Sequence[Rank]) -> float | None:
    """Return the mean of 1 / rank, 0 for what was not found; None of no ranks."""
    return sum(1 / rank for rank in ranks if rank) / len(ranks) if ranks else None


def wilson(part: int, whole: int) -> tuple[float, float] | None:
    """Return Wilson's score interval of part / whole, 95 %; None of nothing.

    Wilson 1927, https://doi.org/10.2307/2276774, without correction for continuity.
    """
    if not whole:
        return None
    share, z2 = part / whole, Z_95**2
    middle = (share + z2 / (2 * whole)) / (1 + z2 / whole)
    half = Z_95 / (1 + z2 / whole) * math.sqrt(share * (1 - share) / whole + z2 / (4 * whole**2))
    return max(0.0, middle - half), min(1.0, middle + half)
