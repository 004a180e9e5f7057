"""Text at every entry, and the keys by which words and names are compared."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.text import bigrams, clean, clean_json, cut_at_sentence, entity_key, estimate_tokens, fold


def test_nul_and_lone_surrogates_become_the_replacement_character() -> None:
    assert clean("a\x00b\ud800c\udfffd") == "a\ufffdb\ufffdc\ufffdd"


def test_a_whole_emoji_is_no_surrogate() -> None:
    assert clean("🤖ありがとう") == "🤖ありがとう"


@given(st.text())
def test_cleaned_text_can_be_encoded_and_cleaning_again_changes_nothing(text: str) -> None:
    assert clean(text).encode().decode() == clean(text)
    assert clean(clean(text)) == clean(text)


def test_every_string_inside_json_is_cleaned_keys_too() -> None:
    assert clean_json({"\x00": ["\ud800", ("a\x00",), 1, None, True, 2.5]}) == {
        "\ufffd": ["\ufffd", ["a\ufffd"], 1, None, True, 2.5]
    }
    assert json.dumps(clean_json({1: "x"})) == '{"1": "x"}'


@pytest.mark.parametrize(
    "names",
    [
        ["富士通", " 富士通 "],
        ["FUJITSU", "Ｆｕｊｉｔｓｕ", "fujitsu"],
        ["rtx3050ti", "RTX 3050 Ti", "RTX-3050Ti", "ＲＴＸ　３０５０　Ｔｉ", "rtx_3050・ti"],
        ["サーバー", "サーバ", "ｻｰﾊﾞｰ"],
        ["O'Reilly", "O’Reilly", "oreilly"],
    ],
)
def test_spellings_of_one_name_meet_under_one_key(names: list[str]) -> None:
    assert len({entity_key(name) for name in names}) == 1
    assert entity_key(names[0])


@pytest.mark.parametrize(("one", "other"), [("ビール", "ビル"), ("RTX 3050", "RTX 3060"), ("C", "C++"), ("カー", "カ")])
def test_different_names_stay_apart(one: str, other: str) -> None:
    assert entity_key(one) != entity_key(other)


@pytest.mark.parametrize("name", ["Ελλάδα", "Москва", "한국", "🤖", "ไทย", "東京"])
def test_no_script_is_normalised_to_nothing(name: str) -> None:
    assert entity_key(name)


def test_nothing_but_separators_has_no_key() -> None:
    assert entity_key(" -・、。~ ") == ""


def test_bigrams_skip_space_and_punctuation() -> None:
    assert bigrams("富士 通、PC!") == ["富士", "士通", "通p", "pc"]
    assert bigrams("Ａ") == ["a"]
    assert bigrams("、。 ") == []


def test_folding_ignores_width_and_case() -> None:
    assert fold("ＰＣ ﾊﾟｿｺﾝ") == "pc パソコン"


def test_a_japanese_character_counts_more_than_an_ascii_one() -> None:
    assert estimate_tokens("") == 1
    assert estimate_tokens("あ" * 100) == 91
    assert estimate_tokens("a" * 100) == 29


def test_a_short_text_is_not_cut() -> None:
    assert cut_at_sentence("おはよう。", 5) == "おはよう。"


def test_a_long_text_ends_with_a_sentence_of_its_second_half() -> None:
    assert cut_at_sentence("今日は晴れ。明日は雨。あさっては曇り", 13) == "今日は晴れ。明日は雨。"


def test_a_text_without_such_an_end_is_cut_hard() -> None:
    assert cut_at_sentence("あ。" + "い" * 20, 12) == "あ。" + "い" * 10
