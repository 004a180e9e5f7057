"""Two runs side by side: noise is never called an improvement."""

from typing import Any

import pytest

from evals.comparing import compare
from stackmem.exceptions import StackmemError


def run(*turns: dict[str, Any]) -> dict[str, Any]:
    """Return a run of one scenario with these turns."""
    shown = [
        {"index": n, "user": f"話{n}", "expect": {}, "reply": "うん", "verdicts": turn} for n, turn in enumerate(turns)
    ]
    return {"scenarios": [{"id": "s", "turns": shown}]}


def verdict(a: dict[str, Any], b: dict[str, Any], score: str) -> str:
    """Return what is said of one score."""
    return next(one.verdict for one in compare(a, b).differences if one.score == score)


def answers(*right: bool) -> dict[str, Any]:
    """Return a run whose turns were answered so."""
    return run(*({"answer": value} for value in right))


def test_five_gains_of_five_may_be_chance_and_ten_of_ten_are_not() -> None:
    assert verdict(answers(*[False] * 5), answers(*[True] * 5), "answer_rate") == "no difference shown"
    assert verdict(answers(*[False] * 10), answers(*[True] * 10), "answer_rate") == "better"
    assert verdict(answers(*[True] * 10), answers(*[False] * 10), "answer_rate") == "worse"


def test_fewer_needless_searches_are_better() -> None:
    many, few = run(*[{"false_trigger": True}] * 10), run(*[{"false_trigger": False}] * 10)
    assert verdict(many, few, "false_trigger_rate") == "better"
    assert verdict(few, many, "false_trigger_rate") == "worse"


def test_a_p_is_adjusted_for_the_number_of_scores() -> None:
    # Six of six alone give p = .031; with a second score tested it is .062.
    one = compare(answers(*[False] * 6), answers(*[True] * 6)).differences
    assert [round(d.p, 3) for d in one if d.p is not None] == [0.031]
    a = run(*({"answer": False, "miss": n < 1} for n in range(6)))
    b = run(*({"answer": True, "miss": n > 4} for n in range(6)))
    two = compare(a, b)
    assert {d.score: d.verdict for d in two.differences if d.p is not None} == {
        "miss_rate": "no difference shown",
        "answer_rate": "no difference shown",
    }


def test_equal_runs_are_the_same_and_what_was_not_asked_has_no_verdict() -> None:
    same = compare(answers(True, False), answers(True, False))
    assert {d.score: d.verdict for d in same.differences}["answer_rate"] == "the same"
    assert {d.score: d.verdict for d in same.differences}["miss_rate"] == "n/a"


def test_only_turns_that_are_the_same_in_both_are_compared() -> None:
    a, b = answers(True, True, True), answers(False, False)
    b["scenarios"][0]["turns"][0]["user"] = "別の話"
    found = compare(a, b)
    assert (found.paired, found.left_out) == (1, 2)
    (change,) = next(d for d in found.differences if d.score == "answer_rate").changes
    assert (change.index, change.better) == (1, False)
    with pytest.raises(StackmemError, match="no turn in common"):
        compare(answers(True), {"scenarios": []})


def test_it_says_when_the_talk_before_the_turns_was_not_the_same() -> None:
    a, b = answers(True) | {"mode": "forced"}, answers(True) | {"mode": "free"}
    assert compare(a, b).note == "A ran forced, B free: the talk before a turn was not the same in both."
    assert compare(a, a).note == ""
