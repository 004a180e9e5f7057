"""Two runs of the same turns: which differences are more than noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals.figures import Rate, holm, mcnemar
from evals.scoring import LOW_IS_GOOD, TURN_SCORES
from stackmem.exceptions import StackmemError

LEVEL = 0.05  # of p, adjusted for the number of scores, below which a difference is called one

Key = tuple[str, int]


@dataclass(frozen=True)
class Change:
    """A turn that a score judges differently in B."""

    scenario: str
    index: int
    user: str
    reply_a: str
    reply_b: str
    better: bool


@dataclass(frozen=True)
class Difference:
    """One score over the turns that both runs have. ``p`` is McNemar's, adjusted after Holm; None where none differ."""

    score: str
    a: Rate
    b: Rate
    p: float | None
    changes: Sequence[Change]

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``no difference shown`` or ``the same``."""
        if not self.changes:
            return "the same" if self.a.denominator else "n/a"
        if self.p is None or self.p >= LEVEL:
            return "no difference shown"
        gained = sum(change.better for change in self.changes)
        return "better" if gained * 2 > len(self.changes) else "worse"


@dataclass(frozen=True)
class Comparison:
    """B against A. ``left_out``: turns that only one of the runs has, or that are not the same in both."""

    differences: Sequence[Difference]
    paired: int
    left_out: int
    note: str = ""  # why a difference may not be the model's


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> Comparison:
    """Compare two runs turn by turn. Raises StackmemError where they have no turn in common."""
    left, right = _turns(a), _turns(b)
    pairs = _pairs(left, right)
    if not pairs:
        raise StackmemError("The two runs have no turn in common: there is nothing to compare.")
    raw = [_differ(score, pairs, left, right) for score in TURN_SCORES]
    tested = [number for number, difference in enumerate(raw) if difference.p is not None]
    adjusted = holm([raw[number].p or 0.0 for number in tested])
    for number, p in zip(tested, adjusted, strict=True):
        one = raw[number]
        raw[number] = Difference(one.score, one.a, one.b, p, one.changes)
    return Comparison(raw, len(pairs), len(left.keys() | right.keys()) - len(pairs), _note(a, b))


def _note(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    one, other = a.get("mode"), b.get("mode")
    if one == other:
        return ""
    return f"A ran {one}, B {other}: the talk before a turn was not the same in both."


def has_common_turns(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Tell whether two runs can be compared."""
    return bool(_pairs(_turns(a), _turns(b)))


def _pairs(left: Mapping[Key, Mapping[str, Any]], right: Mapping[Key, Mapping[str, Any]]) -> list[Key]:
    """Return the turns that both have: another wording or another expectation makes it another turn."""
    return [key for key, turn in left.items() if key in right and _same(turn, right[key])]


def _turns(run: Mapping[str, Any]) -> dict[Key, Mapping[str, Any]]:
    return {(scenario["id"], turn["index"]): turn for scenario in run["scenarios"] for turn in scenario["turns"]}


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return bool(a["user"] == b["user"] and a["expect"] == b["expect"])


def _differ(
    score: str, pairs: Sequence[Key], left: Mapping[Key, Mapping[str, Any]], right: Mapping[Key, Mapping[str, Any]]
) -> Difference:
    name = score.removesuffix("_rate")
    judged = [(key, left[key]["verdicts"].get(name), right[key]["verdicts"].get(name)) for key in pairs]
    both = [(key, was, now) for key, was, now in judged if was is not None and now is not None]
    changes = [
        Change(*key, left[key]["user"], left[key]["reply"], right[key]["reply"], now != (score in LOW_IS_GOOD))
        for key, was, now in both
        if was != now
    ]
    only_b = sum(bool(now) for _, was, now in both if was != now)
    p = mcnemar(len(changes) - only_b, only_b) if changes else None
    a = Rate(sum(bool(was) for _, was, _ in both), len(both))
    b = Rate(sum(bool(now) for _, _, now in both), len(both))
    return Difference(score, a, b, p, changes)
