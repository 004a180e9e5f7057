"""The offline model sees that the user asks it to forget, and does not take every 忘れ for such a request."""

import json
from typing import Any

import pytest

from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.offline.forgetting import LENGTH, asks_to_forget
from stackmem.answers import read_segments
from stackmem.ports import ChatRequest

AT = "2026-07-02T20:15:00+09:00"


def remember(*said: str, both: bool = False, **more: Any) -> list[dict[str, Any]]:
    turns = [{"turn_id": n, "at": AT, "user": words, "robot": "うん", **more} for n, words in enumerate(said, 1)]
    content = json.dumps({"session_ended": True, "both_speakers": both, "turns": turns})
    answer = OfflineChat().complete(ChatRequest([{"role": "user", "content": content}], "remember", 1.0)).content
    read_segments(answer, len(said))  # what the rules answer is always valid
    return list(json.loads(answer)["segments"])


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("富士通のPCのことは忘れてください", "富士通のPCのこと"),
        ("富士通のPCのこと、忘れてくれる？", "富士通のPCのこと"),
        ("ごめん、昨日言った旅行の話は忘れてほしいな", "昨日言った旅行の話"),
        ("やっぱり歯医者の予定は忘れて", "歯医者の予定"),
        ("スタックチャン、彼女の誕生日のこと忘れてもらえる？", "彼女の誕生日のこと"),
        ("パスワードの話は忘れていいよ", "パスワードの話"),
        ("僕が引っ越すことは忘れてくれないかな", "僕が引っ越すこと"),
        ("カレーが好きって話、忘れて！", "カレーが好きって話"),
        ("体重の話なんだけど、忘れてほしい", "体重の話"),
        ("さっき言った住所、忘れて", "さっき言った住所"),
        ("あのPCのことは忘れて", "あのPCのこと"),
        ("忘れてね、富士通のPCのこと", "富士通のPCのこと"),
        ("住所は覚えなくていいよ", "住所"),
        ("彼女と別れた話は忘れといて", "彼女と別れた話"),
        ("旅行の話はなかったことにして", "旅行の話"),
        ("パソコンのことは忘れてくださいね。お願い", "パソコンのこと"),
        ("私の電話番号を記憶から消して", "私の電話番号"),
        ("please forget what I said about the laptop", "what I said about the laptop"),
        ("Can you forget my birthday?", "my birthday"),
        ("Please forget about the trip to Kyoto.", "the trip to Kyoto"),
        ("I want you to forget my address", "my address"),
        ("Could you please delete my phone number from your memory?", "my phone number"),
    ],
)
def test_a_request_names_what_it_is_about_without_the_asking(words: str, what: str) -> None:
    assert asks_to_forget(words) == what


@pytest.mark.parametrize(
    "words",
    [
        "それ忘れて",
        "それは忘れてね",
        "さっきの話は忘れてね",
        "今の忘れて",
        "さっき言ったことは忘れちゃって",
        "今のは忘れて、冗談だから",
        "忘れて、さっきの話",
        "もう忘れて",
        "さっきのなし、忘れて",
        "今の聞かなかったことにしてね",
        "全部忘れてくれていいよ",
        "忘れてください",
        "富士通のPCを買ったんだ。やっぱりそれは忘れて。",
        "Forget that",
        "Forget it, please.",
        "Oh, just forget everything I told you",
        "Please don't remember that",
    ],
)
def test_where_the_user_only_points_their_whole_words_are_kept(words: str) -> None:
    assert asks_to_forget(words) == words


@pytest.mark.parametrize(
    "words",
    [
        "財布を忘れてきた",
        "忘れてた",
        "忘れてないよ",
        "忘れないで",
        "忘れないでね",
        "忘れてしまった",
        "忘れてもいい？",
        "覚えなくていい？",
        "財布を忘れて",
        "傘忘れてさ",
        "財布を忘れて、取りに帰った",
        "薬を飲むのを忘れて",
        "薬を飲むの忘れてね",
        "宿題忘れて怒られた",
        "嫌なことは忘れて、遊びに行った",
        "忘れてねえよ",
        "彼の名前を忘れてる",
        "母には忘れてほしくない",
        "母には忘れてほしい",
        "薬を飲むのは忘れて",
        "お母さんに忘れてって言われた",
        "もう忘れたよ",
        "そのこと忘れてる？",
        "大事なことを忘れてね、困った",
        "そんなことは忘れて楽しもう",
        "忘れてくださいって言われた",
        "なかったことにしてもらった",
        "ファイルを消してください",
        "",
        "I forgot my umbrella",
        "don't forget the meeting",
        "Never forget that day",
        "I'll never forget that",
        "I always forget things",
        "Did you forget that?",
        "Don't remember that",
        "Can you forget things?",
        "Forget to buy milk and you are in trouble",
    ],
)
def test_losing_or_keeping_in_mind_is_no_request(words: str) -> None:
    assert asks_to_forget(words) == ""
    assert all(not segment.get("forget") for segment in remember(words))


def test_a_request_is_a_segment_of_its_own_and_nothing_of_its_turn_is_kept() -> None:
    segments = remember(
        "昨日富士通のPCを12万円で買ったよ",
        "妹の誕生日は5月3日なんだけど、富士通のPCのことは忘れてください",
        "私は大阪に住んでいます",
    )
    assert [(segment["turn_ids"], segment["keep"]) for segment in segments] == [([1], True), ([2], False), ([3], True)]
    assert segments[1]["forget"] == "妹の誕生日は5月3日なんだけど、富士通のPCのこと"
    assert (segments[1]["summary"], segments[1]["entities"], segments[1]["memory_type"]) == ("", [], "episode")
    assert "forget" not in segments[0]
    assert "妹" not in segments[0]["summary"] + segments[2]["summary"]


def test_two_requests_in_a_row_are_two_segments() -> None:
    segments = remember("歯医者の予定は忘れて", "パスワードの話も忘れて")
    assert [(segment["turn_ids"], segment["forget"]) for segment in segments] == [
        ([1], "歯医者の予定"),
        ([2], "パスワードの話"),
    ]


def test_a_request_is_seen_in_a_turn_that_repeats_a_memory() -> None:
    assert remember("富士通のPCのことは忘れてください", recalled=True)[0]["forget"] == "富士通のPCのこと"


def test_what_two_people_say_to_each_other_is_no_request_to_the_robot() -> None:
    assert all("forget" not in segment for segment in remember("さっきの話は忘れてね", both=True))


def test_what_is_to_be_forgotten_is_short() -> None:
    assert len(asks_to_forget("あ" * 3000 + "のことは忘れてください")) == LENGTH
    assert len(asks_to_forget("ああ。" * 1000 + "それ忘れて")) == LENGTH


@pytest.mark.parametrize("part", ["は", "もう", "それ", "ごめん", "って", "忘れて", "forget ", "that ", "what i "])
def test_long_words_are_read_in_no_time(part: str) -> None:
    for end in ("", "x忘れてください", "忘れて、", "x please"):
        asks_to_forget(part * 30_000 + end)  # a backtracking pattern would not come back
        asks_to_forget(part * 60 + end)
