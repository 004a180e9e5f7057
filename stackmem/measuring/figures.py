"""Recall, and nearness to the reference, of vectors; percentiles of times."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stackmem.ports import Vector


@dataclass(frozen=True)
class Recall:
    """Of ``questions`` questions, how many found their memory first, and among the first five."""

    at_1: int
    at_5: int
    questions: int


def cut(vectors: Vector, dim: int) -> Vector:
    """Return the first ``dim`` dimensions as unit vectors (Matryoshka, https://arxiv.org/abs/2205.13147)."""
    short = vectors[:, :dim]
    lengths = np.linalg.norm(short, axis=1, keepdims=True)
    return np.asarray(short / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def recall(questions: Vector, summaries: Vector, answers: Sequence[int]) -> Recall:
    """Count where the memory at ``answers[i]`` is among the nearest to question i; an equal one counts as nearer."""
    scores = questions @ summaries.T
    own = scores[np.arange(len(answers)), list(answers)]
    ranks = (scores >= own[:, None]).sum(axis=1)
    return Recall(int((ranks == 1).sum()), int((ranks <= 5).sum()), len(answers))


def cosine(vectors: Vector, reference: Vector) -> float:
    """Return the mean cosine, in [-1, 1], of unit vectors to those of the same texts in ``reference``."""
    return float((vectors * reference).sum(axis=1).mean())


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, linearly between neighbours. Raises ValueError of no values."""
    if not values:
        raise ValueError("nothing was measured")
    return float(np.percentile(values, percent))
