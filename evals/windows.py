"""Counts of what the judge said: any number of turns, and the full windows of 10 and of 50, each written once."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from peewee import fn

from evals.figures import Rate
from evals.live_turns import OPEN, unfinished
from evals.marks import Verdict, verdicts
from stackmem.database import transaction
from stackmem.models import Turn
from stackmem.score_models import Label, Score

SIZES = (10, 50)  # turns


@dataclass(frozen=True)
class Tally:
    """Counts over judged turns, with the two rates."""

    needless: int = 0
    false_triggers: int = 0
    findable: int = 0
    not_searched: int = 0
    not_found: int = 0

    @classmethod
    def of(cls, labels: Iterable[Label | Verdict]) -> "Tally":
        """Count labels: a miss is possible only where a memory was needed and was there to be found."""
        rows = list(labels)
        needless = [row.searched for row in rows if not row.needed]
        findable = [row for row in rows if row.needed and row.right_ids]
        return cls(
            needless=len(needless),
            false_triggers=sum(needless),
            findable=len(findable),
            not_searched=sum(not row.searched for row in findable),
            not_found=sum(row.searched and not row.found for row in findable),
        )

    @classmethod
    def of_score(cls, score: Score) -> "Tally":
        """Return the counts of a stored window."""
        return cls(**{name: getattr(score, name) for name in cls.__dataclass_fields__})

    @property
    def false_trigger_rate(self) -> Rate:
        """Turns that searched, of those that needed no memory."""
        return Rate(self.false_triggers, self.needless)

    @property
    def miss_rate(self) -> Rate:
        """Turns that did not search, or were not given a right memory, of those that needed one that was there."""
        return Rate(self.not_searched + self.not_found, self.findable)

    def as_json(self) -> dict[str, Any]:
        """Return both rates in the shape of results.json."""
        missed = {"not_searched": self.not_searched, "not_found": self.not_found}
        return {
            "false_trigger_rate": self.false_trigger_rate.as_json(),
            "miss_rate": self.miss_rate.as_json() | missed,
        }


def judged(owner: str, judge: str, prompt_version: str) -> Any:
    """Return the query of an owner's labels by this judge, in order of their turns."""
    return (
        Label.select(Label, Turn.id, Turn.at)
        .join(Turn)
        .where(Label.owner == owner, Label.state == "judged")
        .where(Label.judge == judge, Label.prompt_version == prompt_version)
        .order_by(Label.turn)
    )


def write_windows(owner: str, now: datetime) -> int:
    """Write the owner's windows that have become full; return how many. Those that are there stay as they are.

    A window is a run of turns in order of their ids, and no window reaches beyond a turn that is still to be judged:
    so the order of judging changes nothing.
    """
    written = 0
    with transaction():
        end = _first_unfinished(owner)
        judges: Any = Label.select(Label.judge, Label.prompt_version).where(
            Label.owner == owner, Label.state == "judged"
        )
        for judge, version in judges.distinct().order_by(Label.judge, Label.prompt_version).tuples():
            settled = judged(owner, judge, version).where(Label.turn < end)
            for size in SIZES:
                known = scores(owner, judge, version).where(Score.size == size).count()
                fresh = list(settled.offset(known * size))
                for number in range(len(fresh) // size):
                    _write(fresh[number * size : (number + 1) * size], known + number, now)
                    written += 1
    return written


def scores(owner: str, judge: str, prompt_version: str) -> Any:
    """Return the query of an owner's stored windows by this judge."""
    return Score.select().where(Score.owner == owner, Score.judge == judge, Score.prompt_version == prompt_version)


def _first_unfinished(owner: str) -> int:
    """Return the first of the owner's turns that may still be judged; one after the last where there is none."""
    rows = Turn.select(fn.MIN(Turn.id)).where(Turn.owner == owner, OPEN | unfinished())
    first = rows.scalar()
    return first if first is not None else (Turn.select(fn.MAX(Turn.id)).scalar() or 0) + 1


def _write(labels: Sequence[Label], ordinal: int, now: datetime) -> None:
    first, last = labels[0], labels[-1]
    times = [label.turn.at for label in labels]
    Score.insert(  # two processes may write the same window: it is the same
        owner=first.owner,
        judge=first.judge,
        prompt_version=first.prompt_version,
        size=len(labels),
        ordinal=ordinal,
        first_turn=first.turn_id,
        last_turn=last.turn_id,
        from_at=min(times),
        to_at=max(times),
        created_at=now,
        **asdict(Tally.of(verdicts(labels))),
    ).on_conflict_ignore().execute()
