"""What a turn is worth: seven scores, each a verdict a turn (True, False, None: not in the denominator).

The scores and their denominators are those of the scenario format, see docs/scenarios.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals.figures import Rate
from evals.scenario import Expect, PastTurn, matches, says

TURN_SCORES = ("false_trigger_rate", "miss_rate", "ask_back_rate", "correction_rate", "answer_rate")
SCORES = (*TURN_SCORES, "capture_recall", "noise_rate")
LOW_IS_GOOD = frozenset({"false_trigger_rate", "miss_rate", "noise_rate"})


@dataclass(frozen=True)
class Answered:
    """How a turn was answered. ``returned``: per memory returned, in order, the history turns it was made of.

    ``reply`` is None where only the decision to search is known (a baseline); ``asks_back`` is what the rules say.
    """

    searched: bool
    returned: Sequence[Sequence[str]] = ()
    reply: str | None = None
    asks_back: bool | None = None


@dataclass(frozen=True)
class Verdicts:
    """What the scores say of one turn. ``missed``: not_searched or not_found, where it was missed."""

    found: bool | None
    false_trigger: bool | None
    miss: bool | None
    missed: str | None
    ask_back: bool | None
    correction: bool | None
    answer: bool | None

    def of(self, score: str) -> bool | None:
        """Return the verdict that a score counts."""
        value: bool | None = getattr(self, score.removesuffix("_rate"))
        return value


def score_turn(expect: Expect, answered: Answered) -> Verdicts:
    """Return the verdicts on one turn."""
    found = found_in(expect, answered)
    missed = _missed(expect, answered, found)
    must_find = expect.search is True and bool(expect.evidence or expect.candidates)
    replied = answered.reply is not None
    return Verdicts(
        found=found,
        false_trigger=answered.searched if expect.search is False else None,
        miss=missed is not None if must_find else None,
        missed=missed if must_find else None,
        ask_back=answered.asks_back if expect.ask_back and replied else None,
        correction=_rests_on_the_correction(expect, answered) if expect.stale and replied else None,
        answer=_is_right(expect, answered) if expect.answer and replied else None,
    )


def found_in(expect: Expect, answered: Answered) -> bool | None:
    """Return whether what had to be found was returned; None where nothing was searched or nothing is named."""
    if not answered.searched or not (expect.evidence or expect.candidates):
        return None
    returned = {turn for memory in answered.returned for turn in memory}
    if expect.evidence and not returned & set(expect.evidence):
        return False
    return all(returned & set(group) for group in expect.candidates)


def _missed(expect: Expect, answered: Answered, found: bool | None) -> str | None:
    if not answered.searched:
        return "not_searched"
    return "not_found" if found is False else None


def _is_right(expect: Expect, answered: Answered) -> bool:
    reply = answered.reply or ""
    return says(expect.answer, reply) and not any(matches(word, reply) for word in expect.forbid)


def _rests_on_the_correction(expect: Expect, answered: Answered) -> bool:
    """Return whether the reply is right and no stale memory stood above the current one.

    A memory that holds both the old words and the correction is current.
    """
    stale, current = set(expect.stale), set(expect.evidence)
    for turns in answered.returned:
        if current & set(turns):
            break
        if stale & set(turns):
            return False
    return _is_right(expect, answered)


def rate(score: str, verdicts: Iterable[Verdicts]) -> Rate:
    """Return one of the turn scores over many turns."""
    counted = [value for value in (verdict.of(score) for verdict in verdicts) if value is not None]
    return Rate(sum(counted), len(counted))


def capture_recall(past: Sequence[PastTurn], memories: Sequence[Sequence[str]]) -> Rate:
    """Return how many of the turns worth keeping are a source of a memory. ``memories``: their source turns."""
    held = {turn for sources in memories for turn in sources}
    wanted = [turn.id for turn in past if turn.keep]
    return Rate(sum(turn in held for turn in wanted), len(wanted))


def noise_rate(past: Sequence[PastTurn], memories: Sequence[Sequence[str]]) -> Rate:
    """Return how many memories have no source turn that is worth keeping."""
    worth = {turn.id for turn in past if turn.keep}
    return Rate(sum(not worth & set(sources) for sources in memories), len(memories))


def as_score(score: str, value: Rate, verdicts: Iterable[Verdicts] = ()) -> dict[str, Any]:
    """Return a score in the shape of results.json; the miss rate says how the turns were missed."""
    shape = value.as_json()
    if score == "miss_rate":
        missed = [verdict.missed for verdict in verdicts]
        shape |= {kind: missed.count(kind) for kind in ("not_searched", "not_found")}
    return shape


def all_scores(verdicts: Sequence[Verdicts], capture: Rate, noise: Rate) -> dict[str, dict[str, Any]]:
    """Return all seven scores."""
    values: Mapping[str, Rate] = {"capture_recall": capture, "noise_rate": noise}
    get: Callable[[str], Rate] = lambda score: values[score] if score in values else rate(score, verdicts)  # noqa: E731
    return {score: as_score(score, get(score), verdicts) for score in SCORES}
