"""Similarity by words: BM25 over character bigrams, which needs no tokeniser for Japanese."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stackmem.text import bigrams

K1 = 1.2  # term saturation; the usual values, Robertson and Zaragoza 2009, https://doi.org/10.1561/1500000019
B = 0.75  # length normalisation


def bm25(query: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return a score >= 0 for every text, shape (len(texts),); rarity is counted over these texts."""
    counts = [Counter(bigrams(text)) for text in texts]
    lengths = np.array([sum(count.values()) for count in counts], dtype=float)
    mean = float(lengths.mean()) if len(texts) and lengths.any() else 1.0
    scores = np.zeros(len(texts))
    for term in set(bigrams(query)):
        frequency = np.array([count[term] for count in counts], dtype=float)
        found = int((frequency > 0).sum())
        if found:
            idf = math.log(1 + (len(texts) - found + 0.5) / (found + 0.5))
            scores += idf * frequency * (K1 + 1) / (frequency + K1 * (1 - B + B * lengths / mean))
    return scores


def coverage(query: str, text: str) -> float:
    """Return the share of the query's bigrams that stand in the text, in [0, 1]."""
    wanted = set(bigrams(query))
    return len(wanted & set(bigrams(text))) / len(wanted) if wanted else 0.0
