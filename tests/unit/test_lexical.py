"""Similarity by words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.lexical import bm25, coverage

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
