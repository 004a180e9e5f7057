"""The offline model notes that two names mean one thing only where the user says so."""

import json
from typing import Any

import pytest

from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.offline.aliases import aliases
from stackmem.answers import read_segments
from stackmem.ports import ChatRequest


def remember(*said: tuple[str, str], both: bool = False) -> list[dict[str, Any]]:
    turns = [{"turn_id": n, "at": None, "user": user, "robot": robot} for n, (user, robot) in enumerate(said, 1)]
    content = json.dumps({"both_speakers": both, "turns": turns})
    answer = OfflineChat().complete(ChatRequest([{"role": "user", "content": content}], "remember", 1.0)).content
    read_segments(answer, len(said))
    return list(json.loads(answer)["segments"])


@pytest.mark.parametrize(
    ("words", "pair"),
    [
        ("富士通は英語でFujitsu", ["富士通", "Fujitsu"]),
        ("富士通は英語でFujitsuって書くんだよ", ["富士通", "Fujitsu"]),
        ("Fujitsuは日本語だと富士通だよ", ["Fujitsu", "富士通"]),
        ("みけは漢字だと三毛って書くよ", ["みけ", "三毛"]),
        ("Fujitsuっていうのは富士通のこと", ["Fujitsu", "富士通"]),
        ("スタバって、スターバックスのことだよ", ["スタバ", "スターバックス"]),
        ("うちの猫はみけ、正式な名前はミケランジェロ", ["みけ", "ミケランジェロ"]),
        ("ミケって呼んでるけど本名はミケランジェロ", ["ミケ", "ミケランジェロ"]),
        ("うちの犬はポチって呼んでるんだけど、本名はポチョムキンなんだ", ["ポチ", "ポチョムキン"]),
        ("本名はミケランジェロだけどミケって呼んでる", ["ミケ", "ミケランジェロ"]),
        ("ミケは正式にはミケランジェロっていうの", ["ミケ", "ミケランジェロ"]),
        ("うちの猫はミケランジェロっていうんだけどミケって呼んでる", ["ミケランジェロ", "ミケ"]),
        ("彼の名前はWilliamで、みんなはBillって呼んでる", ["William", "Bill"]),
        ("友達の健太、あだ名はケンちゃん", ["健太", "ケンちゃん"]),
        ("富士通 (Fujitsu) のPCを買った", ["富士通", "Fujitsu"]),
        ("昨日富士通（Fujitsu）のPCを買った", ["富士通", "Fujitsu"]),
        ("Yesterday Alexander, or Alex for short, came", ["Alexander", "Alex"]),
        ("スターバックス、略してスタバに行った", ["スターバックス", "スタバ"]),
        ("富士通（Fujitsu）のPCを買った", ["富士通", "Fujitsu"]),
        ("Ｆｕｊｉｔｓｕ（富士通）のPCを買った", ["Fujitsu", "富士通"]),
        ("My brother Robert, everyone calls him Bob.", ["Robert", "Bob"]),
        ("Robert, everyone calls him Bob", ["Robert", "Bob"]),
        ("Fujitsu, also known as FJ, makes PCs", ["Fujitsu", "FJ"]),
        ("Elizabeth goes by Liz", ["Elizabeth", "Liz"]),
        ("My friend Alexander, or Alex for short, came", ["Alexander", "Alex"]),
        ("My cat is Mike, his full name is Michelangelo", ["Mike", "Michelangelo"]),
    ],
)
def test_two_names_of_one_thing_are_a_pair(words: str, pair: list[str]) -> None:
    assert aliases(words) == [pair]


@pytest.mark.parametrize(
    "words",
    [
        "カメラ（Canon）を買った",
        "私の会社（Fujitsu）で働いてる",
        "会社（IBM）を辞めた",
        "妹（Yuki）に会った",
        "私の靴下（Nike）を洗った",
        "カタカナ（abc）で書いた",
        "母（大阪在住）が来た",
        "田中さん（38歳）に会った",
        "来月3日（水）に行く",
        "買った（笑）",
        "本当（lol）",
        "富士通は英語で何？",
        "富士通は英語で何て言うの",
        "富士通は英語でFujitsu？",
        "これは英語でpenです",
        "それって富士通のことだよ",
        "ママって田中さんのことが好き",
        "ミケってうちの猫のことだよ",
        "富士通のPCとThinkPadを買った",
        "田中は英語でプレゼンをした",
        "田中は英語でプレゼンだった",
        "友達はみんなボブって呼んでる",
        "本名は言えない",
        "東京でボブって呼ばれてる",
        "健太はいいやつだけどみんな怖がってる",
        "富士通は正式には言えない",
        "富士通（富士通）",
        "Everyone calls him Bob",
        "She called me yesterday",
        "He goes by Bob",
        "I met Robert and Bob",
        "Is Robert also known as Bob?",
        "We moved from Tokyo (Japan) to Paris",
    ],
)
def test_in_doubt_there_is_no_pair(words: str) -> None:
    assert aliases(words) == []


def test_the_pair_stands_on_the_segment_of_its_turn_kept_or_not() -> None:
    segments = remember(("こんにちは", "こんにちは！"), ("昨日富士通（Fujitsu）のPCを12万円で買ったよ", "いいね"))
    assert [(segment["keep"], segment.get("aliases")) for segment in segments] == [
        (False, None),
        (True, [["富士通", "Fujitsu"]]),
    ]
    (dropped,) = remember(("スタバってスターバックスのこと", "へえ"))
    assert (dropped["keep"], dropped["aliases"]) == (False, [["スタバ", "スターバックス"]])


def test_the_robots_words_state_no_pair() -> None:
    assert all("aliases" not in segment for segment in remember(("富士通のPCを買った", "富士通は英語でFujitsu")))


def test_pairs_stand_once_in_the_order_said() -> None:
    (segment,) = remember(
        ("昨日富士通（Fujitsu）のPCをヨドバシ（Yodobashi）で買ったよ", ""),
        ("Fujitsu（富士通）のPCは12万円だったよ", ""),
    )
    assert segment["aliases"] == [["富士通", "Fujitsu"], ["ヨドバシ", "Yodobashi"]]
