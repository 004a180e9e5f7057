"""What people say of live turns. A mark goes before the judge's label in every rate, and becomes a scenario."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from evals.figures import Agreement
from stackmem.browsing import Leaf, leaf
from stackmem.exceptions import InvalidInput
from stackmem.models import Memory, Turn
from stackmem.score_models import Label, Mark

KINDS = ("should_have_searched", "should_not_have_searched", "wrong_memory")
SOMETHING = "something"  # stands for the memory that was missed where the person named none
MARKS = 500  # in one query


@dataclass(frozen=True)
class Verdict:
    """What counts for a live turn: the judge's label, or a person's mark in its place."""

    needed: bool
    searched: bool
    found: bool | None
    right_ids: Sequence[str]


def mark(turn: Turn, kind: str, right_ids: Sequence[str], now: datetime) -> None:
    """Mark a turn, in the place of an earlier mark. Raises InvalidInput where the mark cannot be true of it."""
    if kind not in KINDS:
        raise InvalidInput(f"A mark is one of {', '.join(KINDS)}.")
    if turn.imported or turn.state == "open":
        raise InvalidInput("Only turns that were answered here can be marked.")
    if turn.searched == (kind == "should_have_searched"):
        raise InvalidInput(f"This turn {'searched' if turn.searched else 'did not search'}: mark it otherwise.")
    known = {row.id for row in Memory.select(Memory.id).where(Memory.owner == turn.owner, Memory.id.in_(right_ids))}
    if unknown := [identity for identity in right_ids if identity not in known]:
        raise InvalidInput(f"There is no memory {unknown[0][:40]}.")
    row = {"owner": turn.owner, "kind": kind, "right_ids": list(right_ids), "created_at": now}
    Mark.insert(turn=turn.id, **row).on_conflict(conflict_target=[Mark.turn], update=row).execute()


def unmark(turn: Turn) -> None:
    """Take a mark back; nothing happens where there is none."""
    Mark.delete().where(Mark.turn == turn.id).execute()


def mark_of(turn: Turn) -> Mark | None:
    """Return the mark of a turn."""
    found: Mark | None = Mark.get_or_none(Mark.turn == turn.id)
    return found


def marks(owner: str, number: int, size: int) -> Leaf:
    """Return an owner's marks with their turns, the newest turn first."""
    rows = Mark.select(Mark, Turn).join(Turn).where(Mark.owner == owner)
    return leaf(rows.order_by(Mark.turn.desc()), number, size)


def verdicts(labels: Iterable[Label]) -> list[Verdict]:
    """Return what counts for these judged turns, in their order."""
    rows = list(labels)
    known: dict[int, Mark] = {}
    for start in range(0, len(rows), MARKS):
        ids = [row.turn_id for row in rows[start : start + MARKS]]
        known |= {row.turn_id: row for row in Mark.select().where(Mark.turn.in_(ids))}
    return [_verdict(row, known.get(row.turn_id)) for row in rows]


def _verdict(label: Label, by_person: Mark | None) -> Verdict:
    if by_person is None:
        return Verdict(bool(label.needed), label.searched, label.found, label.right_ids)
    if by_person.kind == "should_not_have_searched":
        return Verdict(False, label.searched, None, ())
    right = by_person.right_ids or label.right_ids or (SOMETHING,)
    return Verdict(True, label.searched, False if label.searched else None, right)


def agreement(labels: Iterable[Label]) -> Agreement:
    """Count how people and judge answer whether a memory was needed, over the turns that both judged."""
    judged = {row.turn_id: bool(row.needed) for row in labels}
    found: list[tuple[bool, bool]] = []
    ids = list(judged)
    for start in range(0, len(ids), MARKS):
        rows = Mark.select().where(Mark.turn.in_(ids[start : start + MARKS]))
        found += [(row.kind != "should_not_have_searched", judged[row.turn_id]) for row in rows]
    return Agreement.of(found)
