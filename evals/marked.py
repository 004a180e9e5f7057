"""A marked turn as a scenario: what was said around it, with what a person expects of it."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

import yaml

from evals.scenario import LENGTHS
from stackmem.clock import show_time
from stackmem.models import MemorySource, Turn
from stackmem.persona import language_of
from stackmem.score_models import Label, Mark

LENGTH = min(LENGTHS)  # turns of the scored conversation
BEFORE = 7  # of them, those before the marked one at most
FILLING = {"ja": ("うん", "うん。"), "en": ("I see.", "Yes.")}  # where the talk was shorter
TAG = {
    "should_have_searched": "recall",
    "wrong_memory": "recall",
    "should_not_have_searched": "false_trigger",
}


def scenario_of(mark: Mark, zone: tzinfo) -> str:
    """Return the scenario ``marked-<turn>`` as YAML (docs/scenarios.md); it names no other turn as right or wrong.

    Its history are the words of the memories that the turn was shown or should have been shown.
    """
    turn = mark.turn
    language = language_of([turn.user])
    talk = _around(turn)
    right = _sources(mark.right_ids or _judged_right(turn), talk[0])
    shown = _sources(turn.memory_ids, talk[0])
    past = sorted({row.id: row for row in (*right, *shown)}.values(), key=lambda row: (row.at, row.id))
    needed = mark.kind != "should_not_have_searched"
    value = {
        "id": f"marked-{turn.id}",
        "language": language,
        "title": turn.user[:60],
        "tags": [TAG[mark.kind]],
        "history": _sessions(past, {row.id for row in right} if needed else set(), zone),
        "conversation": {
            "session": "marked",
            "at": _time(talk[0], zone),
            "turns": [
                *(_asked(row, turn, needed, [f"t{one.id}" for one in right] if needed else [], zone) for row in talk),
                *_filling(language, LENGTH - len(talk)),
            ],
        },
    }
    return yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=1000)


def _around(turn: Turn) -> list[Turn]:
    """Return at most ten turns of the session, the marked one among them, oldest first; none goes back in time."""
    rows = Turn.select().where(Turn.session == turn.session_id, Turn.user != "")
    before = list(rows.where(Turn.ordinal < turn.ordinal).order_by(Turn.ordinal.desc()).limit(BEFORE))[::-1]
    after = rows.where(Turn.ordinal > turn.ordinal).order_by(Turn.ordinal).limit(LENGTH - 1 - len(before))
    kept: list[Turn] = []
    for row in (*before, turn, *after):
        if row.id == turn.id or not kept or row.at >= kept[-1].at:
            kept = [*(one for one in kept if one.at <= row.at), row] if row.id == turn.id else [*kept, row]
    return kept


def _sources(memory_ids: Sequence[str], first: Turn) -> list[Turn]:
    """Return the turns of these memories that were said before the conversation began and have words."""
    rows = Turn.select().join(MemorySource).where(MemorySource.memory.in_(list(memory_ids)), Turn.at < first.at)
    return list(rows.where(Turn.owner == first.owner, Turn.user != "").order_by(Turn.id))


def _judged_right(turn: Turn) -> Sequence[str]:
    label = Label.get_or_none(Label.turn == turn.id)
    return list(label.right_ids) if label else []


def _sessions(past: Sequence[Turn], right: set[int], zone: tzinfo) -> list[dict[str, Any]]:
    """Return turns as sessions in the order of time: what lies between two turns of another session divides it."""
    found: list[dict[str, Any]] = []
    last = None
    for row in past:
        if row.session_id != last:
            found.append({"session": f"h{len(found) + 1}", "at": _time(row, zone), "turns": []})
            last = row.session_id
        said = {"id": f"t{row.id}", "user": row.user, "assistant": row.reply or "…", "at": _time(row, zone)}
        found[-1]["turns"].append(said | ({"keep": True} if row.id in right else {}))
    return found


def _asked(row: Turn, marked: Turn, needed: bool, evidence: list[str], zone: tzinfo) -> dict[str, Any]:
    said = {"user": row.user, "assistant": row.reply or "…", "at": _time(row, zone)}
    if row.id != marked.id:
        return said
    return said | {"expect": {"search": needed, **({"evidence": evidence} if evidence else {})}}


def _filling(language: str, count: int) -> list[dict[str, Any]]:
    user, reply = FILLING[language]
    return [{"user": user, "assistant": reply} for _ in range(count)]


def _time(row: Turn, zone: tzinfo) -> str:
    return show_time(row.at, zone) or ""
