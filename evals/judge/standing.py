"""What a judge is worth: how its verdicts agree with those of the people who labelled the same turns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any, Literal

from evals.figures import Agreement
from evals.judge.labels import Labelled, Labels
from evals.judge.turn import PROMPT_VERSION, Verdict, judge_turn
from stackmem.exceptions import BadAnswer, ContentRefused
from stackmem.ports import ChatModel, Clock
from stackmem.score_models import JudgeStanding

UNANSWERED = 0.2  # share of the labelled turns without an answer, at most
TRUSTED_FROM = 0.6  # Cohen's kappa; "substantial" after Landis and Koch 1977, https://doi.org/10.2307/2529310

Question = Literal["needed", "found", "missed"]
Trust = Literal["trustworthy", "not trustworthy", "never judged"]
Tell = Callable[[int, int], None]

# Which question a rate rests on.
BEHIND: Mapping[str, Question] = {"false_trigger_rate": "needed", "miss_rate": "missed"}


@dataclass(frozen=True)
class Standing:
    """A judge's agreement with the labels, by question. ``unanswered``: labels to which its answers were bad."""

    judge: str
    prompt_version: str
    labels: int
    unanswered: int
    agreement: Mapping[str, Agreement]
    at: datetime

    def as_json(self) -> dict[str, Any]:
        """Return the counts, and of each question accuracy and kappa, None where they are undefined."""
        questions = {
            question: {"accuracy": found.accuracy, "kappa": found.kappa, "turns": found.count}
            for question, found in self.agreement.items()
        }
        return {"labels": self.labels, "unanswered": self.unanswered, **questions}


def trust(standing: Standing | None, rate: str) -> Trust:
    """Return whether a rate by this judge can be trusted: from kappa 0.6 on; an undefined kappa does not count.

    Nor does that of a judge who left more than a fifth of the labelled turns without an answer: of which, nobody knows.
    """
    if standing is None:
        return "never judged"
    if standing.unanswered > UNANSWERED * standing.labels:
        return "not trustworthy"
    kappa = standing.agreement[BEHIND[rate]].kappa
    return "trustworthy" if kappa is not None and kappa >= TRUSTED_FROM else "not trustworthy"


def standing_of(judge: str, prompt_version: str = PROMPT_VERSION) -> Standing | None:
    """Return what is stored of a judge; None where it was never judged with these prompts, or not to the end."""
    row = _row(judge, prompt_version)
    if row is None or row.agreement is None:
        return None
    agreement = {question: Agreement(*counts) for question, counts in row.agreement.items()}
    unanswered = sum(verdict is None for verdict in row.verdicts.values())
    return Standing(judge, prompt_version, len(row.verdicts), unanswered, agreement, row.created_at)


def assess(judge: ChatModel, labels: Labels, timeout_s: float, clock: Clock, tell: Tell) -> Standing:
    """Ask a judge about every labelled turn, and store how it agrees; what was broken off goes on where it stopped.

    Raises TransientError or PermanentError where the judge does not answer; what it said so far is kept.
    """
    row = _begun(judge.name, labels, clock.now())
    for done, labelled in enumerate(labels.turns):
        tell(done, len(labels.turns))
        if labelled.id not in row.verdicts:
            row.verdicts[labelled.id] = _verdict(judge, labelled, timeout_s)
            row.save()
    tell(len(labels.turns), len(labels.turns))
    found = agreement(labels.turns, row.verdicts)
    row.agreement = {question: astuple(counts) for question, counts in found.items()}
    row.created_at = clock.now()
    row.save()
    stored = standing_of(judge.name)
    assert stored is not None
    return stored


def _row(judge: str, prompt_version: str) -> JudgeStanding | None:
    return JudgeStanding.get_or_none(JudgeStanding.judge == judge, JudgeStanding.prompt_version == prompt_version)


def _begun(judge: str, labels: Labels, now: datetime) -> JudgeStanding:
    """Return the row of an assessment that was broken off; else a new one, in the place of a finished one."""
    row = _row(judge, PROMPT_VERSION)
    if row is not None and row.agreement is None and row.labels_version == labels.version:
        return row
    fresh: dict[str, Any] = {"labels_version": labels.version, "verdicts": {}, "agreement": None, "created_at": now}
    key = {"judge": judge, "prompt_version": PROMPT_VERSION}
    target = [JudgeStanding.judge, JudgeStanding.prompt_version]
    JudgeStanding.insert(**key, **fresh).on_conflict(conflict_target=target, update=fresh).execute()
    made = _row(judge, PROMPT_VERSION)
    assert made is not None
    return made


def _verdict(judge: ChatModel, labelled: Labelled, timeout_s: float) -> dict[str, Any] | None:
    try:
        verdict = judge_turn(judge, labelled.case, timeout_s)
    except (BadAnswer, ContentRefused):
        return None
    return {"needed": verdict.needed, "right": list(verdict.right)}


def agreement(turns: Sequence[Labelled], verdicts: Mapping[str, Any]) -> dict[Question, Agreement]:
    """Count how people (first) and judge (second) answer each question; turns the judge did not answer are left out.

    needed: over all turns. missed: over all turns, whether there was something to find and it was not found. found:
    over the turns of which people say that it was or was not.
    """
    both = [
        (turn, Verdict(said["needed"], tuple(said["right"])))
        for turn in turns
        if (said := verdicts.get(turn.id)) is not None
    ]
    found = [(turn.verdict.found(turn.case), verdict.found(turn.case)) for turn, verdict in both]
    return {
        "needed": Agreement.of((turn.verdict.needed, verdict.needed) for turn, verdict in both),
        "found": Agreement.of((people, judge is True) for people, judge in found if people is not None),
        "missed": Agreement.of((turn.verdict.missed(turn.case), verdict.missed(turn.case)) for turn, verdict in both),
    }
