"""The hand-labelled turns the judge is judged by are sound."""

import json
from importlib.resources import files
from typing import Any

import pytest

from evals.judge.turn import MEMORIES, Case, Shown, Verdict

LINES = (files("evals.judge") / "labels.jsonl").read_text(encoding="utf-8").splitlines()
TURNS: list[dict[str, Any]] = [json.loads(line) for line in LINES]
KEYS = {
    *("id", "language", "context", "user", "reply", "searched", "memories", "returned"),
    *("needed", "right", "found", "difficulty", "source"),
}


def count(**values: Any) -> int:
    return sum(all(turn[key] == value for key, value in values.items()) for turn in TURNS)


def share(key: str, value: Any) -> float:
    return count(**{key: value}) / len(TURNS)


def test_there_are_turns_enough_each_once() -> None:
    assert len(TURNS) >= 120
    assert count(language="ja") >= 100
    assert count(language="en") >= 20
    assert len({turn["id"] for turn in TURNS}) == len(TURNS)
    assert len({json.dumps([turn["context"], turn["user"]]) for turn in TURNS}) == len(TURNS)


def test_about_half_need_a_memory_and_about_half_are_searched() -> None:
    assert 0.4 <= share("needed", True) <= 0.6
    assert 0.4 <= share("searched", True) <= 0.7


def test_every_way_to_fail_is_there() -> None:
    assert count(needed=True, found=True) >= 10
    assert count(needed=True, found=False) >= 10
    assert count(needed=True, searched=False) >= 10
    assert count(needed=True, right=[]) >= 10
    assert count(needed=False, searched=True) >= 10
    assert 0.4 <= share("difficulty", "hard") <= 0.6


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn["id"])
def test_a_label_agrees_with_its_turn(turn: dict[str, Any]) -> None:
    ids = [memory["id"] for memory in turn["memories"]]
    assert set(turn) == KEYS
    assert len(turn["context"]) <= 6
    assert len(set(ids)) == len(ids) <= MEMORIES
    assert set(turn["returned"]) | set(turn["right"]) <= set(ids)
    assert turn["needed"] or not turn["right"]
    assert turn["searched"] or not turn["returned"]
    assert turn["found"] is Verdict(turn["needed"], tuple(turn["right"])).found(case_of(turn))


def case_of(turn: dict[str, Any]) -> Case:
    return Case(
        turn["user"],
        turn["reply"],
        turn["searched"],
        [(said["user"], said["reply"]) for said in turn["context"]],
        [Shown(memory["id"], memory["at"], memory["summary"]) for memory in turn["memories"]],
        frozenset(turn["returned"]),
    )
