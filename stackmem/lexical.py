"""Similarity by words: BM25 over character bigrams, which needs no tokeniser for Japanese."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stackmem.text import bigrams, letters

K1 = 1.2  # term saturation; the usual values, Robertson and Zaragoza 2009, https://doi.org/10.1561/1500000019
B = 0.75  # length normalisation


def bm25(query: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return a score >= 0 for every text, shape (len(texts),); rarity is counted over these texts."""
    words = [letters(text) for text in texts]
    lengths = np.array([max(len(word) - 1, 1) if word else 0 for word in words], dtype=float)
    mean = float(lengths.mean()) if len(texts) and lengths.any() else 1.0
    weights = K1 * (1 - B + B * lengths / mean)
    everything = "\n".join(words)
    terms = [term for term in set(bigrams(query)) if term in everything]
    counts = [[word.count(term) for word in words] for term in terms]
    frequency = np.array(counts, dtype=float).reshape(len(terms), len(texts))
    found = (frequency > 0).sum(axis=1, keepdims=True)
    idf = np.log(1 + (len(texts) - found + 0.5) / (found + 0.5))
    scores: NDArray[np.float64] = (idf * frequency * (K1 + 1) / (frequency + weights)).sum(axis=0)
    return scores


def coverage(query: str, text: str) -> float:
    """Return the share of the query's bigrams that stand in the text, in [0, 1]."""
    wanted, word = _terms(query), letters(text)
    return sum(term in word for term in wanted) / len(wanted) if wanted else 0.0


@lru_cache(maxsize=64)  # one query is set against many texts
def _terms(query: str) -> frozenset[str]:
    return frozenset(bigrams(query))
