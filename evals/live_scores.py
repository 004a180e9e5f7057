"""The rates of real talk, as JSON: by judge, each rate with its interval and what its judge is worth."""

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import Any

from evals.allowance import Allowance
from evals.judge.standing import BEHIND, standing_of, trust
from evals.live_turns import unfinished
from evals.marks import agreement, verdicts
from evals.windows import Tally, scores
from stackmem.clock import show_time
from stackmem.models import Turn
from stackmem.score_models import Label, Score


def live_scores(owner: str, allowance: Allowance, zone: tzinfo) -> dict[str, Any]:
    """Return how an owner's live turns stand, and the rates of every judge over all it judged and in its windows."""
    labels = list(Label.select().where(Label.owner == owner))
    waiting = Turn.select().where(Turn.owner == owner, unfinished()).count()
    judges = by_judge(row for row in labels if row.state == "judged")
    for shown in judges:
        windows = scores(owner, shown["judge"], shown["prompt_version"]).order_by(Score.size, Score.ordinal)
        shown["windows"] = [_window(row, zone) for row in windows]
    return {
        "owner": owner,
        "turns": {
            "judged": sum(row.state == "judged" for row in labels),
            "unjudgeable": sum(row.state == "unjudgeable" for row in labels),
            "waiting": waiting,
        },
        "calls_today": allowance.used(),
        "calls_per_day": allowance.per_day,
        "judges": judges,
    }


def last_scores(turn_ids: Sequence[int]) -> list[dict[str, Any]]:
    """Return the rates of every judge over these turns."""
    return by_judge(Label.select().where(Label.turn.in_(turn_ids), Label.state == "judged"))


def by_judge(labels: Iterable[Label]) -> list[dict[str, Any]]:
    """Return the rates over labels, each judge's apart; the judge of the newest turn first."""
    groups: dict[tuple[str, str], list[Label]] = {}
    for row in sorted(labels, key=lambda row: row.turn_id, reverse=True):
        groups.setdefault((row.judge, row.prompt_version), []).append(row)
    return [_group(judge, version, rows) for (judge, version), rows in groups.items()]


def _group(judge: str, version: str, rows: Sequence[Label]) -> dict[str, Any]:
    standing = standing_of(judge, version)
    return {
        "judge": judge,
        "prompt_version": version,
        "standing": standing.as_json() if standing else None,
        "trust": {rate: trust(standing, rate) for rate in BEHIND},
        "turns": len(rows),
        "marked": _marked(rows),
        **Tally.of(verdicts(rows)).as_json(),
    }


def _marked(rows: Sequence[Label]) -> dict[str, Any]:
    """Return how many of these turns people marked, and how the judge agrees with them on what was needed."""
    found = agreement(rows)
    return {"turns": found.count, "accuracy": found.accuracy, "kappa": found.kappa}


def _window(row: Score, zone: tzinfo) -> dict[str, Any]:
    return {
        "size": row.size,
        "first_turn": row.first_turn,
        "last_turn": row.last_turn,
        "from": show_time(row.from_at, zone),
        "to": show_time(row.to_at, zone),
        **Tally.of_score(row).as_json(),
    }
