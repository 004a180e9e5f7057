"""What stackchan-kai can read: no backslash, known emotions, two kilobytes."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from web.kai import EMOTIONS, emotion_of, readable

any_text = st.text(st.characters() | st.sampled_from('"\\\n\t\x00\ud83d'), max_size=2000)


@given(any_text)
@example('「"やあ"」って"言った\\n')
@example("\ud83d\x00\x1f")
@example("😀" * 2000)
def test_no_backslash_can_occur_and_it_fits(text: str) -> None:
    body = json.dumps({"text": readable(text), "emotion": "neutral", "audio_url": None}, ensure_ascii=False)
    assert "\\" not in body
    assert body.count('"') == 10
    assert json.loads(body)["text"]
    assert len(body.encode()) < 1800  # and the headers beside it: the robot reads 2,048 bytes


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('"スタックチャン"だよ', "「スタックチャン」だよ"),
        ('5" の画面', "5＂ の画面"),
        (r"C:\home", "C:＼home"),
        ("一行目\n二行目\r\n", "一行目 二行目"),
        ("", "…"),
        ("そうだね。" * 100, "そうだね。" * 80),
    ],
)
def test_what_it_cannot_read_is_written_otherwise(text: str, shown: str) -> None:
    assert readable(text) == shown


def test_emotions_are_those_that_kai_knows() -> None:
    ours = ["neutral", "happy", "angry", "sad", "doubt", "sleepy", "ｳﾚｼｲ", ""]
    assert [emotion_of(one) for one in ours] == [
        "neutral", "happy", "angry", "sad", "surprised", "sleepy", "neutral", "neutral",
    ]  # fmt: skip
    assert all(emotion_of(one) in EMOTIONS for one in ours)
