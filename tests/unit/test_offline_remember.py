"""The offline model's way of remembering: every turn in one segment, facts kept in the speakers' own words."""

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.offline.dates import resolve
from stackmem.adapters.offline.names import names
from stackmem.ports import ChatRequest

AT = "2026-07-02T20:15:00+09:00"


def remember(*turns: Any, both: bool = False, at: Any = AT) -> list[dict[str, Any]]:
    listed = [{"turn_id": place, "at": at, "user": said, "robot": robot} for place, (said, robot) in enumerate(turns)]
    return ask({"session_ended": True, "both_speakers": both, "time_zone": "Asia/Tokyo", "turns": listed})


def ask(window: Any) -> list[dict[str, Any]]:
    content = json.dumps(window)
    answer = OfflineChat().complete(ChatRequest([{"role": "user", "content": content}], "remember", 1.0))
    return list(json.loads(answer.content)["segments"])


def kept(*turns: Any, both: bool = False, at: Any = AT) -> list[dict[str, Any]]:
    return [segment for segment in remember(*turns, both=both, at=at) if segment["keep"]]


def test_a_fact_is_kept_with_its_date_and_names() -> None:
    (memory,) = kept(
        ("ただいま", "おかえり！"), ("昨日富士通のPCを12万円で買ったよ", "いい買い物だね！"), ("おやすみ", "おやすみ")
    )
    assert memory["turn_ids"] == [1]
    assert memory["summary"] == "2026年7月2日、ユーザー：昨日（2026年7月1日）富士通のPCを12万円で買ったよ。"
    assert memory["entities"] == ["富士通", "PC"]
    assert memory["occurred_at"] == "2026-07-01T00:00:00+09:00"
    assert memory["memory_type"] == "episode"


def test_english_facts_stay_english() -> None:
    (memory,) = kept(("I bought a Fujitsu laptop yesterday for 1,200 dollars", "Nice!"))
    assert memory["summary"].startswith("On 2026-07-02, User: I bought a Fujitsu laptop yesterday (2026-07-01) for")
    assert memory["entities"] == ["Fujitsu"]


def test_a_correction_stays_with_what_it_corrects() -> None:
    (memory,) = kept(("富士通のPCを12万円で買ったよ", "いいね"), ("ごめん、12万じゃなくて13万円だった", "13万円だね"))
    assert memory["turn_ids"] == [0, 1]


@pytest.mark.parametrize(
    "words",
    [
        "こんにちは",
        "うん",
        "前に進んで",
        "富士山の高さは？",
        "今日はいい天気だね",
        "疲れたなあ",
        "",
        "Good morning",
        "Turn left please",
    ],
)
def test_small_talk_is_not_kept(words: str) -> None:
    (segment,) = remember((words, "うん、そうだね"))
    assert segment["keep"] is False
    assert segment["summary"] == ""


@pytest.mark.parametrize(
    "words",
    [
        "うちの猫の名前はタマだよ",
        "コーヒーは苦手なんだ",
        "妹の誕生日は5月3日",
        "鍵は玄関の棚に置いたって覚えておいて",
        "I'm allergic to peanuts",
    ],
)
def test_a_personal_fact_is_kept(words: str) -> None:
    assert kept((words, "そうなんだ"))


def test_a_question_and_its_answer_from_memory_are_no_new_memory() -> None:
    turn = {
        "turn_id": 7,
        "at": AT,
        "user": "富士通のPCを12万円で買ったよね",
        "robot": "13万円だったよ",
        "recalled": True,
    }
    fact = {"turn_id": 8, "at": AT, "user": "昨日ThinkPadを買ったよ", "robot": ""}
    assert [(segment["turn_ids"], segment["keep"]) for segment in ask({"turns": [turn, fact]})] == [
        ([7], False),
        ([8], True),
    ]


def test_only_advice_and_promises_of_the_robot_are_kept() -> None:
    (memory,) = kept(("おすすめの本ある？", "「こころ」がおすすめだよ"))
    assert memory["summary"] == "2026年7月2日、ロボット：「こころ」がおすすめだよ。"
    assert kept(("うん", "僕は昨日パソコンを買ったよ")) == []


def test_in_an_imported_talk_both_speakers_count() -> None:
    (memory,) = kept(("私は横浜に住んでいます", "私は昨日大阪に行きました"), both=True)
    assert "ユーザー：私は横浜に住んでいます。" in memory["summary"]
    assert "相手：私は昨日（2026年7月1日）大阪に行きました。" in memory["summary"]
    (english,) = kept(("I live in Osaka", "I bought a bike"), both=True)
    assert "Partner: I bought a bike." in english["summary"]


def test_a_short_answer_keeps_its_question() -> None:
    (memory,) = kept(
        ("ただいま", "好きな居酒屋メニューありますか？"),
        ("だしまきです！", "そうなんだ"),
        ("うん、3回食べたよ", "へえ"),
    )
    assert "（好きな居酒屋メニューありますか？）だしまきです！" in memory["summary"]
    (english,) = kept(("Hi", "Where do you live?"), ("In Osaka with my dog", "ok"))
    assert "(Where do you live?) In Osaka with my dog." in english["summary"]


def test_a_cue_word_begins_a_new_topic() -> None:
    memories = kept(
        ("富士通のPCを買ったよ", "いいね"),
        ("富士通のPCは12万円だった", "へえ"),
        ("ところで来週の金曜に歯医者に行く", "うん"),
    )
    assert [memory["turn_ids"] for memory in memories] == [[0, 1], [2]]
    assert memories[1]["occurred_at"] == "2026-07-10T00:00:00+09:00"


@pytest.mark.parametrize(
    ("said", "segments"),
    [
        (
            ["I bought a Fujitsu laptop for 1200 dollars.", "My sister lives in Osaka.", "I love curry."],
            [[0], [1], [2]],
        ),
        (["I have a dog", "I hate onions"], [[0], [1]]),
        (["I bought a bike", "The bike was cheap", "I hate onions"], [[0, 1], [2]]),
        (["My sister lives in Osaka.", "She works at a bank there.", "I love curry."], [[0, 1], [2]]),
        (["I bought a laptop yesterday", "It has 32 gigabytes of memory"], [[0, 1]]),
        (
            ["I bought a dog", "He eats", "He barked", "He ran off", "He fell", "He jumped yesterday", "I hate onions"],
            [[0, 1, 2, 3, 4, 5], [6]],
        ),
        (["My sister has two cats", "Their names are Mugi and Momo"], [[0, 1]]),
    ],
)
def test_english_topics_part_where_no_word_and_no_pronoun_holds_them(
    said: list[str], segments: list[list[int]]
) -> None:
    found = remember(*((words, "I see.") for words in said))
    assert [segment["turn_ids"] for segment in found if segment["keep"]] == segments


def test_what_the_robot_advised_in_english_holds_a_topic() -> None:
    (memory,) = kept(("Any book for my trip?", "I recommend Kokoro."), ("I bought Kokoro yesterday", "I see."))
    assert memory["turn_ids"] == [0, 1]


def test_an_english_answer_stays_with_its_question() -> None:
    (memory,) = kept(("I went to Kyoto last week", "Where did you sleep?"), ("In a small inn with my dog", "Nice"))
    assert memory["turn_ids"] == [0, 1]


def test_a_weekday_beside_the_time_of_a_turn_changes_nothing() -> None:
    turn = {"turn_id": 1, "at": AT, "user": "土曜日に富士通のPCを買ったよ", "robot": "いいね"}
    assert ask({"turns": [turn | {"day": "木曜日"}]}) == ask({"turns": [turn]})
    assert ask({"turns": [turn]})[0]["occurred_at"] == "2026-06-27T00:00:00+09:00"


def test_spans_stand_in_the_summary_and_beside_it() -> None:
    (memory,) = kept(("去年の夏に北海道に行ったよ", ""))
    assert memory["summary"] == "2026年7月2日、ユーザー：去年の夏（2025年6月1日〜2025年8月31日）に北海道に行ったよ。"
    assert memory["occurred_at"] == memory["occurred_from"] == "2025-06-01T00:00:00+09:00"
    assert memory["occurred_to"] == "2025-08-31T23:59:59+09:00"


def test_a_backchannel_inside_a_topic_does_not_cut_it() -> None:
    (memory,) = kept(("富士通のPCを買ったよ", "いいね"), ("うん", "うん"), ("富士通のPCは12万円だった", "へえ"))
    assert memory["turn_ids"] == [0, 1, 2]


def test_types_follow_the_words() -> None:
    assert kept(("コーヒーが好き", ""))[0]["memory_type"] == "preference"
    assert kept(("来月京都に行くことにした", ""))[0]["memory_type"] == "decision"
    assert kept(("昨日京都に行ったよ", ""))[0]["memory_type"] == "episode"


def test_a_summary_is_never_longer_than_its_limit() -> None:
    turns = [(f"昨日は富士通のPC{n}を{n}万円で買って、それから" + "長い話をした" * 30, "") for n in range(8)]
    assert all(0 < len(memory["summary"]) <= 300 for memory in kept(*turns))


def test_a_turn_without_a_time_is_kept_without_dates() -> None:
    (memory,) = kept(("昨日富士通のPCを買ったよ", ""), at=None)
    assert memory["summary"] == "ユーザー：昨日富士通のPCを買ったよ。"
    assert memory["occurred_at"] is None


@pytest.mark.parametrize(
    ("sentence", "written", "first", "last"),
    [
        ("一昨日行った", "一昨日（2026年6月30日）行った", "2026-06-30", "2026-06-30"),
        ("先週行った", "先週（2026年6月22日〜2026年6月28日）行った", "2026-06-22", "2026-06-28"),
        ("来月行く", "来月（2026年8月1日〜2026年8月31日）行く", "2026-08-01", "2026-08-31"),
        ("去年行った", "去年（2025年1月1日〜2025年12月31日）行った", "2025-01-01", "2025-12-31"),
        ("3日前に行った", "3日前（2026年6月29日）に行った", "2026-06-29", "2026-06-29"),
        ("2週間後に行く", "2週間後（2026年7月16日）に行く", "2026-07-16", "2026-07-16"),
        ("来週の月曜に行く", "来週の月曜（2026年7月6日）に行く", "2026-07-06", "2026-07-06"),
        ("5月3日に生まれた", "5月3日に生まれた", "2026-05-03", "2026-05-03"),
    ],
)
def test_relative_days_are_written_out(sentence: str, written: str, first: str, last: str) -> None:
    text, span = resolve(sentence, datetime.fromisoformat(AT), japanese=True)
    assert text == written
    assert span is not None
    assert (span.first.isoformat(), span.last.isoformat()) == (first, last)


def test_english_days_are_written_out() -> None:
    at = datetime.fromisoformat(AT)
    assert resolve("The day before yesterday I ran", at, False)[0] == "The day before yesterday (2026-06-30) I ran"
    assert resolve("I ran 2 weeks ago", at, False)[0] == "I ran 2 weeks ago (2026-06-18)"
    assert resolve("I ran last week", at, False)[0] == "I ran last week (2026-06-22 to 2026-06-28)"


def test_days_that_no_calendar_has_are_left_alone() -> None:
    assert resolve("一昨日", datetime(1, 1, 1), True) == ("一昨日", None)
    assert resolve("来年", datetime(9999, 1, 1), True) == ("来年", None)
    assert resolve("13月45日に会う", datetime(2026, 1, 1), True) == ("13月45日に会う", None)


def test_a_range_is_given_as_a_range() -> None:
    (memory,) = kept(("来週は京都に出張する予定", ""))
    assert memory["occurred_from"] == "2026-07-06T00:00:00+09:00"
    assert memory["occurred_to"] == "2026-07-12T23:59:59+09:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RTX 3050 Ti と ＳｔａｃｋＣｈａｎ", ["RTX 3050 Ti", "StackChan"]),
        ("田中さんと貴船神社へ", ["田中さん", "貴船神社"]),
        ("デッドバイデイライトのサーバー、サーバ", ["デッドバイデイライト", "サーバー"]),
        ("猫の名前はタマだよ", ["タマ"]),
        ("「こころ」を読んだ", ["こころ"]),
        ("パソコンとゲームと一番", []),
        ("Yes, The dog", []),
        ("It cost 1,200", []),
        ("12 34", []),
    ],
)
def test_names_are_found(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_at_most_eight_names_are_given() -> None:
    assert len(names(" ".join(f"「名{n}」" for n in range(20)))) == 8


def test_many_half_facts_together_make_a_memory_and_few_do_not() -> None:
    turns = [("今朝早く出た", "うん"), ("電車が混んでた", "うん"), ("駅で会った", "うん"), ("夜は寝た", "うん")]
    assert kept(*turns)
    assert kept(turns[1]) == []


@pytest.mark.parametrize("window", [None, [], "x", {}, {"turns": 3}, {"turns": [1, {"user": "x"}]}])
def test_an_odd_window_gives_no_segments(window: Any) -> None:
    assert ask(window) == []


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"turn_id": st.integers()},
            optional={
                "user": st.text(),
                "robot": st.text() | st.none(),
                "at": st.none() | st.text() | st.just(AT),
                "recalled": st.booleans(),
            },
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_every_turn_stands_in_exactly_one_segment_in_order(turns: list[dict[str, Any]], both: bool) -> None:
    segments = ask({"both_speakers": both, "turns": turns})
    assert [turn for segment in segments for turn in segment["turn_ids"]] == [turn["turn_id"] for turn in turns]
    assert segments == ask({"both_speakers": both, "turns": turns})
    recalled = {turn["turn_id"] for turn in turns if turn.get("recalled")} - {
        t["turn_id"] for t in turns if not t.get("recalled")
    }
    assert not recalled & {turn for segment in segments if segment["keep"] for turn in segment["turn_ids"]}


def test_forty_turns_of_100_kilobytes_are_remembered() -> None:
    assert remember(*[("そう昨日おお" * 5000, "、。" * 20000)] * 40, both=True)


def test_the_real_logs_reach_their_targets() -> None:
    rules = pytest.importorskip("benchmarks.offline_rules", reason="the benchmarks are not beside the tests")
    if not rules.DATA.is_dir():
        pytest.skip("../shared/data is not beside the checkout")
    polite, short = rules.measure("ad-ey"), rules.measure("he-gu")
    assert polite["capture"] >= 0.80
    assert polite["noise"] <= 0.25
    assert (polite["evidence kept"] + short["evidence kept"]) / 2 >= 0.88
    assert polite["not searched"] + polite["false triggers"] + short["not searched"] + short["false triggers"] <= 0.2


def test_what_people_tell_a_robot_are_facts_apart() -> None:
    memories = kept(
        ("先週の土曜に弟と高尾山に登ってきたよ", "そうなんだ"),
        ("めっちゃ疲れたけど楽しかった", "へえ"),
        ("来月3日に歯医者の予約入れたんだ", "そうなんだね"),
        ("エビアレルギーなんだ", "気をつけるね"),
    )
    assert [len(memory["turn_ids"]) for memory in memories] == [2, 1, 1]


def test_everyday_ways_of_telling_are_no_questions() -> None:
    for said in (
        "去年の夏は家族で沖縄に行ったんだよね",
        "ぼくの名前は健太だよ、よろしくね",
        "パスワードはひまわり2024だから覚えといて",
    ):
        assert len(kept((said, "うん"))) == 1, said
