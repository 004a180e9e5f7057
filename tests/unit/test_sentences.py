"""Where sentences end, also while the text still grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.sentences import end_of_sentence, sentences

TEXT = st.text(st.sampled_from("あい漢aB1 。！？!?.．」』\"')\n　…"), max_size=30)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("おはよう。いい天気！散歩する？うん", ["おはよう。", "いい天気！", "散歩する？", "うん"]),
        ("「行くよ。」と言った。", ["「行くよ。」", "と言った。"]),
        ("すごい！？でも…ね。", ["すごい！？", "でも…ね。"]),
        ("いいね!でもなあ", ["いいね!", "でもなあ"]),
        ("Hello. It is 3.5 km! Really? Yes", ["Hello.", " It is 3.5 km!", " Really?", " Yes"]),
        ('He said "Go!" Then left.', ['He said "Go!"', " Then left."]),
        ("Dr. Ito met J. Smith. OK.", ["Dr. Ito met J. Smith.", " OK."]),
        ("1. 牛乳\n2. 卵\n", ["1. 牛乳", "\n2. 卵"]),
        ("\n\nはい\n\nうん\n", ["\n\nはい", "\n\nうん"]),
        ("バージョンは1.2だよ", ["バージョンは1.2だよ"]),
        ("", []),
        (" \n", []),
    ],
)
def test_a_text_falls_into_sentences(text: str, wanted: list[str]) -> None:
    assert list(sentences(text)) == wanted


@pytest.mark.parametrize("text", ["はい。", "Yes.", "Yes", "はい。」", "それは3."])
def test_a_sentence_is_not_whole_before_something_follows(text: str) -> None:
    assert end_of_sentence(text) is None


@given(TEXT)
def test_the_sentences_joined_are_the_text_up_to_white_space_at_its_end(text: str) -> None:
    joined = "".join(sentences(text))
    assert text.startswith(joined)
    assert not text[len(joined) :].strip()
    assert all(sentence.strip() for sentence in sentences(text))


@given(TEXT, TEXT, st.integers(0, 5))
def test_nothing_that_is_added_later_moves_an_end(text: str, more: str, start: int) -> None:
    end = end_of_sentence(text, start)
    if end is not None:
        assert end_of_sentence(text + more, start) == end
