"""Text at every entry, and the keys by which words and names are compared."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.text import (
    bigrams,
    clean,
    clean_json,
    cut_at_sentence,
    entity_key,
    estimate_tokens,
    fold,
    for_terminal,
    letters,
)


def test_nul_and_lone_surrogates_become_the_replacement_character() -> None:
    assert clean("a\x00b\ud800c\udfffd") == "a\ufffdb\ufffdc\ufffdd"


def test_nothing_that_steers_a_terminal_is_shown_on_one() -> None:
    assert for_terminal("\x1b[2J赤\x9b31m\rうそ\a") == "�[2J赤�31m�うそ�"
    assert for_terminal("改行\nと\r\nタブ\t🎉") == "改行\nと\r\nタブ\t🎉"


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


COUNTED = {  # by Qwen's own tokenizer (docs/decisions/0014)
    "昨日さ、駅前の電気屋さんで富士通のノートパソコンを12万円で買ったんだ。思ったより軽くてびっくりしたよ。": 37,
    "うん、そうだね。でもさ、やっぱり冬は温かいラーメンがいちばんだよね！": 24,
    "来月3日から京都に旅行に行くことにしたんだけど、おすすめのお寺とか知ってる？": 20,
    '{"reply": "そうなんだ、いいね！", "emotion": "happy", "action": "nod"}': 22,
    "妹の誕生日は5月3日で、プレゼントはスターバックスのカードにしようと思ってる。": 24,
    "RTX 3050 Tiで動かしたのはQwen3の8Bだったかな、たしか毎秒20トークンくらいだったよ。": 36,
    '{"turn_id": 3, "at": "2026-07-02T20:00:40+09:00", "day": "木", '
    '"user": "あ、12万じゃなくて13万だった", "robot": "13万円だね"}': 70,
    "I bought a Fujitsu laptop for 1200 dollars yesterday, and it is lighter than I thought.": 23,
}


def test_tokens_are_estimated_within_fifteen_percent_of_qwens_tokenizer() -> None:
    estimated = {text: estimate_tokens(text) for text in COUNTED}
    assert sum(estimated.values()) == pytest.approx(sum(COUNTED.values()), rel=0.15)
    for text, count in COUNTED.items():
        assert estimated[text] == pytest.approx(count, rel=0.25), text


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 1), ("漢" * 100, 99), ("ア" * 100, 77), ("a" * 100, 28), ("…" * 10, 14)]
)
def test_kinds_of_characters_weigh_differently(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_a_short_text_is_not_cut() -> None:
    assert cut_at_sentence("おはよう。", 5) == "おはよう。"


def test_a_long_text_ends_with_a_sentence_of_its_second_half() -> None:
    assert cut_at_sentence("今日は晴れ。明日は雨。あさっては曇り", 13) == "今日は晴れ。明日は雨。"


def test_a_text_without_such_an_end_is_cut_hard() -> None:
    assert cut_at_sentence("あ。" + "い" * 20, 12) == "あ。" + "い" * 10


@given(st.text() | st.text("あがカﾞ゛Ａ！？…　、。･｡゙́1①㈱"))
def test_letters_are_what_folding_leaves_of_letters_and_digits(text: str) -> None:
    assert letters(text) == "".join(filter(str.isalnum, fold(text)))
