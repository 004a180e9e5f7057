"""The scores, against hand-worked cases."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.figures import Rate
from evals.scenario import Expect, PastTurn
from evals.scoring import SCORES, Answered, all_scores, capture_recall, noise_rate, rate, score_turn

PRICE = {"search": True, "evidence": ["h1.3"], "stale": ["h1.2"], "answer": [["13万", "十三万"]], "forbid": ["12万"]}


def judged(expect: dict[str, Any], searched: bool, *returned: list[str], reply: str | None = "", **more: Any) -> Any:
    """Return the verdicts on one turn."""
    return score_turn(Expect(**expect), Answered(searched, returned, reply, **more))


def test_a_turn_that_needs_no_search_counts_for_false_triggers_alone() -> None:
    assert judged({"search": False}, True).false_trigger is True
    verdicts = judged({"search": False}, False)
    assert (verdicts.false_trigger, verdicts.miss, verdicts.found, verdicts.answer) == (False, None, None, None)


def test_a_turn_that_may_search_is_in_no_denominator() -> None:
    verdicts = judged({"search": "either", "evidence": ["h1"]}, False)
    assert (verdicts.false_trigger, verdicts.miss) == (None, None)
    assert judged({"search": "either", "evidence": ["h1"]}, True, ["h1"]).found is True


def test_a_miss_says_whether_it_was_not_searched_or_not_found() -> None:
    expect = {"search": True, "evidence": ["h1", "h2"]}
    assert (judged(expect, False).miss, judged(expect, False).missed) == (True, "not_searched")
    assert (judged(expect, True, ["h9"]).miss, judged(expect, True, ["h9"]).missed) == (True, "not_found")
    hit = judged(expect, True, ["h9"], ["h2", "h3"])
    assert (hit.miss, hit.missed, hit.found) == (False, None, True)


def test_candidates_are_found_when_each_group_is() -> None:
    expect = {"search": True, "candidates": [["a1", "a2"], ["b1"]]}
    assert judged(expect, True, ["a2"], ["b1"]).found is True
    assert judged(expect, True, ["a1", "a2"]).missed == "not_found"
    assert judged(expect | {"evidence": ["c"]}, True, ["a2"], ["b1"]).found is False


def test_a_search_for_what_was_never_said_is_no_miss() -> None:
    verdicts = judged({"search": True, "answer": [["覚えてない"]]}, False, reply="覚えてないな")
    assert (verdicts.miss, verdicts.found, verdicts.answer) == (None, None, True)


def test_an_answer_needs_every_group_and_nothing_forbidden() -> None:
    assert judged(PRICE, True, ["h1.3"], reply="１３万円だったね").answer is True
    assert judged(PRICE, True, ["h1.3"], reply="十三 万円").answer is True
    assert judged(PRICE, True, ["h1.3"], reply="12万円から13万円になったね").answer is False
    assert judged(PRICE, True, ["h1.3"], reply="知らない").answer is False


@pytest.mark.parametrize(
    ("returned", "reply", "right"),
    [
        ([["h1.3"], ["h1.2"]], "13万円", True),
        ([["h1.2"], ["h1.3"]], "13万円", False),  # the stale one stands above
        ([["h1.2", "h1.3"], ["h1.2"]], "13万円", True),  # one memory holds both: it is current
        ([["h9"], ["h1.2"]], "13万円", False),  # stale, and the current one is not there
        ([["h9"]], "13万円", True),
        ([["h1.3"]], "12万円", False),
        ([], "13万円", True),
    ],
)
def test_a_correction_is_rested_on(returned: list[list[str]], reply: str, right: bool) -> None:
    assert judged(PRICE, bool(returned), *returned, reply=reply).correction is right


def test_asking_back_counts_what_the_rules_say_where_it_was_wanted() -> None:
    expect = {"search": True, "ask_back": True, "candidates": [["a"], ["b"]]}
    assert judged(expect, True, asks_back=True).ask_back is True
    assert judged(expect, True, asks_back=False).ask_back is False
    assert judged({"search": True}, True, asks_back=None).ask_back is None


def test_a_rule_that_only_decides_whether_to_search_has_no_answers() -> None:
    verdicts = judged(PRICE | {"ask_back": True, "candidates": [["h1.3"], ["h1.2"]]}, True, ["h1.3"], reply=None)
    assert (verdicts.answer, verdicts.correction, verdicts.ask_back) == (None, None, None)
    assert verdicts.missed == "not_found"


def past(**keeps: bool | None) -> list[PastTurn]:
    """Return turns of the past by their names."""
    return [PastTurn(id=name, user="a", assistant="b", keep=keep) for name, keep in keeps.items()]


def test_capture_counts_turns_worth_keeping_and_noise_memories_without_any() -> None:
    turns = past(a=True, b=True, c=False, d=None)
    memories = [["a", "c"], ["c"], ["d"]]
    assert capture_recall(turns, memories) == Rate(1, 2)
    assert noise_rate(turns, memories) == Rate(2, 3)
    assert capture_recall(turns, []) == Rate(0, 2)
    assert noise_rate(turns, []) == Rate(0, 0)
    assert capture_recall(past(c=False), [["c"]]) == Rate(0, 0)


def test_all_seven_scores_are_there_and_nothing_is_null_and_void() -> None:
    empty = all_scores([], Rate(0, 0), Rate(0, 0))
    assert tuple(empty) == SCORES
    assert all((score["value"], score["low"], score["high"]) == (None, None, None) for score in empty.values())
    verdicts = [
        judged({"search": False}, True),
        judged({"search": False}, False),
        judged(PRICE, False, reply="知らない"),
        judged(PRICE, True, ["h9"], reply="13万"),
        judged(PRICE, True, ["h1.3"], reply="13万"),
    ]
    scores = all_scores(verdicts, Rate(1, 2), Rate(0, 3))
    assert {name: (score["num"], score["den"]) for name, score in scores.items()} == {
        "false_trigger_rate": (1, 2),
        "miss_rate": (2, 3),
        "ask_back_rate": (0, 0),
        "correction_rate": (2, 3),
        "answer_rate": (2, 3),
        "capture_recall": (1, 2),
        "noise_rate": (0, 3),
    }
    assert (scores["miss_rate"]["not_searched"], scores["miss_rate"]["not_found"]) == (1, 1)


names = st.lists(st.sampled_from("abcd"), max_size=3)


@given(
    st.sampled_from([True, False, "either"]), names, names, st.lists(names.filter(bool), max_size=3), st.booleans(),
    st.lists(names, max_size=4), st.sampled_from(["a", "b", None]),
)  # fmt: skip
def test_any_answer_gives_verdicts_that_agree(
    search: Any, evidence: list[str], stale: list[str], candidates: Any, searched: bool, returned: Any, reply: Any
) -> None:
    expect = Expect(search=search, evidence=evidence, stale=stale, candidates=candidates, answer=[["a"]])
    verdicts = score_turn(expect, Answered(searched, returned, reply))
    assert (verdicts.missed is not None) == bool(verdicts.miss)
    assert verdicts.found is None or searched
    assert not (verdicts.false_trigger and verdicts.miss)
    value = rate("miss_rate", [verdicts]).value
    assert value is None or 0 <= value <= 1
