"""Similarity by words."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.lexical import K1, B, bm25, coverage
from stackmem.text import bigrams, letters

TEXTS = ["ユーザーは富士通のPCを13万円で買った。", "ユーザーは猫を飼っている。", "I bought a laptop", ""]


def test_a_text_with_the_querys_words_scores_most() -> None:
    assert int(np.argmax(bm25("富士通のPC", TEXTS))) == 0
    assert int(np.argmax(bm25("a LAPTOP", TEXTS))) == 2


def test_words_found_nowhere_score_nothing() -> None:
    assert bm25("宇宙旅行計画", TEXTS).tolist() == [0.0] * 4


def test_a_rare_word_counts_more_than_a_frequent_one() -> None:
    common, rare = bm25("ユーザ富士", ["ユーザは来た", "富士に登った", "ユーザは寝た", "ユーザは走る"])[:2]
    assert rare > common


def test_a_longer_text_with_the_same_words_scores_less() -> None:
    short, long = bm25("富士通", ["富士通", "富士通" + "あいうえおかきくけこ" * 5])
    assert short > long


@pytest.mark.parametrize("texts", [[], ["", ""], ["、。"]])
def test_no_words_are_no_fault(texts: list[str]) -> None:
    assert bm25("富士通", texts).tolist() == [0.0] * len(texts)


@given(st.text(), st.lists(st.text(), max_size=5))
def test_scores_are_never_negative_and_coverage_is_a_share(query: str, texts: list[str]) -> None:
    scores = bm25(query, texts)
    assert scores.shape == (len(texts),)
    assert (scores >= 0).all()
    assert all(0 <= coverage(query, text) <= 1 for text in texts)


def test_coverage_is_the_share_of_the_querys_bigrams() -> None:
    assert coverage("富士通", "富士通のPC") == 1.0
    assert coverage("富士山", "富士通のPC") == 0.5
    assert coverage("富士通", "猫") == 0.0
    assert coverage("、。", "猫") == 0.0


def by_hand(query: str, texts: list[str]) -> list[float]:
    """The formula, term by term and text by text."""
    words = [letters(text) for text in texts]
    lengths = [max(len(word) - 1, 1) if word else 0 for word in words]
    mean = sum(lengths) / len(texts) if any(lengths) else 1.0
    scores = [0.0] * len(texts)
    for term in set(bigrams(query)):
        found = sum(term in word for word in words)
        for place, word in enumerate(words):
            count, idf = word.count(term), math.log(1 + (len(texts) - found + 0.5) / (found + 0.5))
            scores[place] += idf * count * (K1 + 1) / (count + K1 * (1 - B + B * lengths[place] / mean))
    return scores


@given(st.text("あいう！", max_size=6), st.lists(st.text("あいうa ", max_size=8), max_size=5))
def test_the_scores_are_those_of_the_formula(query: str, texts: list[str]) -> None:
    assert bm25(query, texts).tolist() == pytest.approx(by_hand(query, texts))
