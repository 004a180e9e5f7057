"""What the judge is asked about a turn, and what is taken from its answer."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.judge.turn import MEMORIES, PROMPT_VERSION, REASON_LIMIT, Case, Shown, Verdict, judge_turn, read_verdict
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.exceptions import BadAnswer, TransientError
from tests.scripted import content, error
from tests.unit.conftest import ScriptedModel

MEMORIES_THERE = (
    Shown("mem_a", "2026-07-01", "ユーザーは富士通のPCを13万円で買った。"),
    Shown("mem_b", "2026-07-02", "猫。"),
)
CASE = Case(
    "富士通のPC、いくらだったっけ",
    "13万円だったね。",
    True,
    [("ただいま", "おかえり")],
    MEMORIES_THERE,
    frozenset({"mem_a"}),
)


def said(needed: Any, right: Any, reason: Any = "理由") -> str:
    return json.dumps({"needed": needed, "right": right, "reason": reason}, ensure_ascii=False)


def test_the_judge_sees_the_words_the_context_the_memories_and_what_was_returned(
    chat: OpenAIChat, model: ScriptedModel
) -> None:
    model.script = [content(said(True, [1]))]
    assert judge_turn(chat, CASE, 5.0) == Verdict(True, ("mem_a",), "理由")
    assert model.prompts == [
        {
            "context": [{"user": "ただいま", "reply": "おかえり"}],
            "user": "富士通のPC、いくらだったっけ",
            "reply": "13万円だったね。",
            "searched": True,
            "memories": [
                {"number": 1, "at": "2026-07-01", "summary": "ユーザーは富士通のPCを13万円で買った。"},
                {"number": 2, "at": "2026-07-02", "summary": "猫。"},
            ],
            "returned": [1],
        }
    ]


def test_the_judge_is_asked_in_the_language_of_the_turn(chat: OpenAIChat, model: ScriptedModel) -> None:
    model.script = [content(said(False, None)), content(said(False, None))]
    judge_turn(chat, CASE, 5.0)
    judge_turn(chat, Case("hi there", "hello", False), 5.0)
    systems = [request["messages"][0]["content"] for request in model.asked]
    assert "採点" in systems[0]
    assert "You score a robot" in systems[1]
    assert len(PROMPT_VERSION) == 8


def test_long_talk_and_more_memories_than_fit_are_cut(chat: OpenAIChat, model: ScriptedModel) -> None:
    model.script = [content(said(True, [20]))]
    many = [Shown(f"mem_{number}", "2026-07-01", "長い" * 900) for number in range(30)]
    verdict = judge_turn(chat, Case("話" * 3000, "返" * 3000, True, [("前" * 3000, "")], many), 5.0)
    assert verdict.right == ("mem_19",)
    assert len(model.prompts[0]["memories"]) == MEMORIES
    assert len(json.dumps(model.prompts, ensure_ascii=False)) < 600 * (MEMORIES + 3) + 2000


def test_a_bad_answer_is_asked_again_once_with_the_fault(chat: OpenAIChat, model: ScriptedModel) -> None:
    model.script = [content(said(True, [3])), content(said(True, [2]))]
    assert judge_turn(chat, CASE, 5.0).right == ("mem_b",)
    assert '"right" names 3, but the memories have the numbers 1 to 2.' in model.asked[1]["messages"][-1]["content"]


def test_two_bad_answers_and_a_judge_that_is_down_are_told_apart(chat: OpenAIChat, model: ScriptedModel) -> None:
    model.script = [content("さあ"), content("{}"), error(503, "down")]
    with pytest.raises(BadAnswer, match='"needed" is not valid'):
        judge_turn(chat, CASE, 5.0)
    with pytest.raises(TransientError):
        judge_turn(chat, CASE, 5.0)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (said(True, [2, 1, 2]), Verdict(True, ("mem_b", "mem_a"), "理由")),
        (said(True, ["M1", "#2"]), Verdict(True, ("mem_a", "mem_b"), "理由")),
        (said("yes", 1), Verdict(True, ("mem_a",), "理由")),
        (said(True, None), Verdict(True, (), "理由")),
        (said(True, []), Verdict(True, (), "理由")),
        (said(False, [1]), Verdict(False, (), "理由")),
        (said(False, [99]), Verdict(False, (), "理由")),
        (said(False, None, 5), Verdict(False, (), "")),
        ('{"needed": false}', Verdict(False)),
        ("```json\n" + said(True, [1]) + "\n```", Verdict(True, ("mem_a",), "理由")),
        ("<think>記憶が要る</think>" + said(True, [1], " 空白 ")[:-1], Verdict(True, ("mem_a",), "空白")),
        (f"[{said(True, [1])}]", Verdict(True, ("mem_a",), "理由")),
    ],
)
def test_an_answer_is_read_whatever_its_wrapping(answer: str, verdict: Verdict) -> None:
    assert read_verdict(answer, CASE) == verdict


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"right": [1]}', '"needed" is not valid: Field required'),
        (said(None, None), '"needed" is not valid'),
        (said("maybe", None), '"needed" is not valid'),
        (said(True, ["the first"]), '"right" is not valid'),
        (said(True, [0]), '"right" names 0'),
        (said(True, {"1": 2}), '"right" is not valid'),
    ],
)
def test_what_cannot_be_used_is_named_for_the_judge_to_mend(answer: str, fault: str) -> None:
    with pytest.raises(BadAnswer, match=fault):
        read_verdict(answer, CASE)


def test_a_reason_is_short() -> None:
    assert len(read_verdict(said(True, [], "長" * 9000), CASE).reason) == REASON_LIMIT


@given(st.text() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_answer_gives_a_verdict_or_a_fault(answer: str) -> None:
    with suppress(BadAnswer):
        assert set(read_verdict(answer, CASE).right) <= {"mem_a", "mem_b"}


@pytest.mark.parametrize(
    ("searched", "returned", "right", "found", "missed"),
    [
        (True, {"mem_a"}, ("mem_a",), True, False),
        (True, {"mem_b"}, ("mem_a",), False, True),
        (True, set(), ("mem_a",), False, True),
        (True, {"mem_b"}, ("mem_a", "mem_b"), True, False),
        (False, set(), ("mem_a",), None, True),
        (True, {"mem_b"}, (), None, False),
        (False, set(), (), None, False),
    ],
)
def test_found_and_missed_are_counted_only_where_there_was_something_to_find(
    searched: bool, returned: set[str], right: tuple[str, ...], found: bool | None, missed: bool
) -> None:
    case = Case("いくら？", "さあ", searched, (), MEMORIES_THERE, frozenset(returned))
    verdict = Verdict(True, right)
    assert (verdict.found(case), verdict.missed(case)) == (found, missed)


# --- the offline judge -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "needed", "right"),
    [
        (CASE, True, ("mem_a",)),
        (Case("うん、そうだね", "そうだね", False, (), MEMORIES_THERE), False, ()),
        (
            Case("How much was my laptop?", "1300", True, (), (Shown("mem_c", "", "The laptop was 1300."),)),
            True,
            ("mem_c",),
        ),
        (Case("富士通のPC、いくらだったっけ", "さあ", False), True, ()),
        (
            Case("富士通のPC、いくらだったっけ", "13万", False, [("富士通のPCいくらだったかっていうと13万", "へえ")]),
            False,
            (),
        ),
    ],
)
def test_the_offline_judge_follows_its_rules(case: Case, needed: bool, right: tuple[str, ...]) -> None:
    verdict = judge_turn(OfflineChat(), case, 5.0)
    assert (verdict.needed, verdict.right) == (needed, right)
    assert verdict.reason


@given(
    st.dictionaries(st.sampled_from(["user", "context", "memories"]), st.none() | st.text() | st.lists(st.integers()))
)
def test_the_offline_judge_answers_anything(asked: dict[str, Any]) -> None:
    from stackmem.adapters.offline.judging import verdict

    assert verdict(asked)["needed"] in (True, False)
