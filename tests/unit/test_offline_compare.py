"""The offline model's comparing and judging: conservative, and never raising."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackmem.adapters.offline import OfflineChat
from stackmem.ports import ChatRequest

DATED = "2026年7月1日、ユーザー："


def ask(request: Any) -> Any:
    message = {"role": "user", "content": json.dumps(request)}
    return json.loads(OfflineChat().complete(ChatRequest([message], "compare", 1.0)).content)


def decide(new: str, *known: str, memory_type: str = "episode", entities: Any = ()) -> tuple[str, str | None]:
    def memory(name: str, summary: str) -> dict[str, Any]:
        return {"id": name, "topic": "", "summary": summary, "memory_type": memory_type, "entities": entities}

    listed = [memory(f"K{place}", summary) for place, summary in enumerate(known, 1)]
    (decision,) = ask({"new": [memory("N1", new)], "known": listed})["decisions"]
    assert decision["id"] == "N1"
    return decision["decision"], decision["known"]


@pytest.mark.parametrize(
    ("new", "known"),
    [
        ("ごめん、12万じゃなくて13万円だった。", "昨日（2026年6月30日）富士通のPCを12万円で買ったよ。"),
        ("富士通のPCを13万円で買ったよ。", "富士通のPCを12万円で買ったよ。"),
        ("猫の名前はタマじゃなくてモモだよ。", "うちの猫の名前はタマだよ。"),
        ("京都旅行はやめて北海道旅行に変更した。", "来月京都旅行に行く予定。"),
        ("歯医者は土曜に変更になった。", "来週の金曜に歯医者に行く。"),
    ],
)
def test_a_changed_value_supersedes(new: str, known: str) -> None:
    assert decide(DATED + new, DATED + "ThinkPadを8万円で買った。", DATED + known) == ("supersedes", "K2")


def test_a_changed_value_supersedes_in_english() -> None:
    new = "On 2026-07-02, User: Actually the laptop was 1,300 dollars."
    assert decide(new, "On 2026-07-01, User: I bought a Fujitsu laptop for 1,200 dollars.") == ("supersedes", "K1")


def test_a_changed_decision_or_preference_needs_only_its_subject() -> None:
    known, new = DATED + "旅行は沖縄に行くことにした。", DATED + "やっぱり旅行は北海道にした。"
    assert decide(new, known, memory_type="decision") == ("supersedes", "K1")
    assert decide(new, known) == ("new", None)
    assert decide(new, known, entities=["旅行", 3]) == ("supersedes", "K1")


@pytest.mark.parametrize("again", ["富士通のPCを12万円で買ったよ。", "富士通のPCを12万円で買ったんだ。"])
def test_the_same_fact_repeats(again: str) -> None:
    assert decide("2026年7月9日、ユーザー：" + again, DATED + "富士通のPCを12万円で買ったよ。") == ("repeats", "K1")


@pytest.mark.parametrize(
    ("new", "known"),
    [
        ("ThinkPadのPCを8万円で買ったよ。", "富士通のPCを12万円で買ったよ。"),
        ("もう一台富士通のPCを13万円で買ったよ。", "富士通のPCを12万円で買ったよ。"),
        ("渋谷のイタリアンに行った。", "新宿のイタリアンに行った。"),
        ("昨日新宿でラーメンを食べた。", "新宿で寿司を食べた。"),
        ("やっぱりラーメンはおいしい。", "犬を飼っている。"),
        ("今日じゃなくて明日行く。", "犬を飼っている。"),
        ("ゲームが逆にストレスになった。", "ゲームを毎日している。"),
        ("", ""),
        ("。", "。"),
    ],
)
def test_a_look_alike_that_corrects_nothing_is_new(new: str, known: str) -> None:
    assert decide(DATED + new, DATED + known) == ("new", None)


def test_nothing_known_makes_all_new() -> None:
    assert decide(DATED + "犬を飼った。") == ("new", None)


@pytest.mark.parametrize("request_", [None, [], {}, {"new": 1}, {"new": ["x", {}], "known": [{}]}])
def test_an_odd_request_gets_no_decisions(request_: Any) -> None:
    assert ask(request_) == {"decisions": []}


@settings(max_examples=150, deadline=None)
@given(st.text(), st.text(), st.none() | st.text() | st.lists(st.text() | st.integers()))
def test_any_summaries_get_one_decision_each(new: str, known: str, entities: Any) -> None:
    decision, target = decide(new, known, known, entities=entities)
    assert (decision == "new") == (target is None)


def test_an_odd_request_to_judge_is_told_that_no_memory_was_needed() -> None:
    answer = OfflineChat().complete(ChatRequest([], "judge", 1.0))
    assert json.loads(answer.content) | {"reason": ""} == {"needed": False, "right": None, "reason": ""}
    assert (OfflineChat.name, answer.prompt_tokens, answer.completion_tokens) == ("offline", 0, 0)


def test_what_a_correction_does_not_change_is_kept() -> None:
    known = (
        DATED
        + "来月3日（2026年8月3日）に京都に行くことにした。去年の夏（2025年6月1日〜2025年8月31日）に北海道に行ったんだ。"
    )
    request = {
        "new": [
            {
                "id": "N1",
                "topic": "",
                "summary": DATED + "京都行きはやめた。",
                "memory_type": "decision",
                "entities": [],
            }
        ],
        "known": [{"id": "K1", "topic": "", "summary": known, "memory_type": "decision", "entities": []}],
    }
    (decision,) = ask(request)["decisions"]
    assert (decision["decision"], decision["known"]) == ("supersedes", "K1")
    assert decision["keep"] == "去年の夏（2025年6月1日〜2025年8月31日）に北海道に行ったんだ。"


def test_a_correction_inside_a_memory_retires_no_other_with_the_same_value() -> None:
    new = DATED + "来月3日（2026年8月3日）に美容院予約したんだ。あ、3日じゃなくて4日だった。"
    assert decide(new, DATED + "来月3日（2026年8月3日）に歯医者の予約入れたんだ。") == ("new", None)


def test_a_plan_that_was_called_off_is_retired() -> None:
    plan = DATED + "12月20日にディズニーランドに行く予定なんだ。"
    for said in ("ディズニーランドの予定、中止になったよ。", "ディズニーランドに行くの、キャンセルしたんだ。"):
        assert decide(said, plan, memory_type="decision", entities=["ディズニーランド"]) == ("supersedes", "K1")
