"""Make the memories again from the turns, by replaying the stored windows; what a person decided stays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stackmem.answers import Segment
from stackmem.database import transaction
from stackmem.indexing import Progress
from stackmem.looks import Look, carried, left_open, open_topic, write_look
from stackmem.making import changed, supersede
from stackmem.models import Alias, Memory, Owner, PointDeletion, Session, Turn, Window
from stackmem.remember import Remembering

Replayed = list[tuple[Window, Look, list[Segment]]]
Answers = dict[tuple[int, ...], list[Segment]]  # of the model, by window and the turns it was shown


@dataclass
class _Replay:
    """What replaying an owner's windows gave."""

    looks: Replayed = field(default_factory=list)
    still_open: dict[int, list[Turn]] = field(default_factory=dict)  # by session
    last: int = 0  # window


def rebuild_from_turns(remembering: Remembering, progress: Progress | None = None) -> int:
    """Replay every owner's windows in order; return how many were.

    One model call a window. Nothing is written before an owner's last answer is there: a failure changes nothing.

    Raises BadAnswer, TransientError or PermanentError where the model does not answer well.
    """
    done = 0

    def note(more: int) -> None:
        if progress:
            progress(done + more, max(Window.select().count(), done + more))

    for owner in list(Owner.select().order_by(Owner.name)):
        answers: Answers = {}
        written = False
        while not written:  # the talk may go on meanwhile, or something be forgotten: then once more
            replay = _replay(owner.name, remembering, answers, note)
            with transaction():
                written = _is_current(owner.name, replay)
                if written:
                    _write(owner.name, replay, remembering)
        done += Window.select().where(Window.owner == owner.name, Window.id <= replay.last).count()
    return done


def model_calls() -> int:
    """Return how many calls of the model a rebuild from the turns takes at most: one for every stored look."""
    return int(Window.select().count())


def _replay(owner: str, remembering: Remembering, answers: Answers, note: Callable[[int], None]) -> _Replay:
    """Replay an owner's windows; the model is asked only about looks that have no answer yet."""
    replay = _Replay()
    said: dict[int, dict[str, Any] | None] = {}  # of the turns still open, by session
    for number, window in enumerate(_windows(owner), 1):
        look = _look(window, replay.still_open)
        if look.turns:
            key = (window.id, *(turn.id for turn in look.turns))
            if key not in answers:
                answers[key] = carried(look, said.get(look.session.id)) or remembering.ask(look)
            segments = answers[key]
            replay.still_open[look.session.id], said[look.session.id] = _open_after(look, segments)
            replay.looks.append((window, look, segments))
        replay.last = window.id
        note(number)
    return replay


def _is_current(owner: str, replay: _Replay) -> bool:
    """Tell whether nothing came to the windows since, and no turn in them was settled by a person."""
    newer = Window.select().where(Window.owner == owner, Window.id > replay.last)
    settled = Turn.select(Turn.id).where(Turn.owner == owner, Turn.settled)
    return not newer.exists() and {row.id for row in settled}.isdisjoint(_replayed(replay.looks))


def _windows(owner: str) -> list[Window]:
    return list(Window.select().where(Window.owner == owner).order_by(Window.id))


def _look(window: Window, still_open: dict[int, list[Turn]]) -> Look:
    earlier = still_open.get(window.session_id, [])
    known = {turn.id for turn in earlier}
    free = (Turn.state != "failed") & ~Turn.settled  # about settled ones a person decided
    rows = Turn.select().where(Turn.id.in_(window.turn_ids), free).order_by(Turn.ordinal)
    decided = Window.select().where(Window.session == window.session, Window.id < window.id)
    seen = {turn_id for row in decided for turn_id in row.turn_ids}
    fresh = [turn for turn in rows if turn.id not in seen and turn.id not in known]
    return Look(window.session, [*earlier, *fresh], window.final)


def _open_after(look: Look, segments: Sequence[Segment]) -> tuple[list[Turn], dict[str, Any] | None]:
    """Return the turns that stay open after a look, and what it said of them."""
    numbers = set() if look.final else open_topic(segments, len(look.turns))
    turns = [turn for number, turn in enumerate(look.turns, 1) if number in numbers]
    return turns, left_open(look, segments, numbers)


def _write(owner: str, replay: _Replay, remembering: Remembering) -> None:
    """Replace an owner's made memories by the replayed ones, in the caller's transaction."""
    rows = {row.id: row for row in Memory.select().where(Memory.owner == owner)}
    made = {row.id: row for row in rows.values() if _is_derived(row)}
    links = _links_to_a_persons(made, rows.keys() - made.keys())
    before = set(made)
    Memory.delete().where(Memory.id.in_(before)).execute()
    Alias.delete().where(
        Alias.owner == owner, Alias.turn.is_null(False), Alias.turn.in_(_replayed(replay.looks))
    ).execute()
    now = remembering.clock.now()
    for window, look, segments in replay.looks:
        Window.update(compared=False, compare_attempts=0, turn_ids=[turn.id for turn in look.turns]).where(
            Window.id == window.id
        ).execute()
        write_look(look, segments, window, now, remembering.zone)
    for old_id, new_id in links.items():
        old = Memory.get_or_none(Memory.id == old_id)
        if old is not None:
            supersede(old, new_id)
    _wake(owner)
    _leave(owner, before)
    for session_id, turns in replay.still_open.items():
        if turns:
            Turn.update(state="pending").where(Turn.id.in_([turn.id for turn in turns])).execute()
            Session.update(look_due=True).where(Session.id == session_id).execute()


def _is_derived(row: Memory) -> bool:
    return row.origin == "made" and row.window_id is not None and row.status != "forgotten"


def _replayed(replayed: Replayed) -> list[int]:
    return sorted({turn.id for _, look, _ in replayed for turn in look.turns})


def _links_to_a_persons(made: dict[str, Memory], persons: set[str]) -> dict[str, str]:
    """Return the links of made memories whose history leads to one that a person decided about, over any steps."""
    links: dict[str, str] = {}
    for row in made.values():
        step, chain = row, list[Memory]()
        while step.superseded_by in made and step not in chain:
            chain.append(step)
            step = made[step.superseded_by]
        if step.superseded_by in persons:
            links |= {one.id: str(one.superseded_by) for one in [*chain, step]}
    return links


def _wake(owner: str) -> None:
    """Make active again what a person decided about and a memory that was not made again had replaced."""
    ids = Memory.select(Memory.id)
    Memory.update(**changed(status="active", superseded_by=None)).where(
        Memory.owner == owner,
        Memory.status == "superseded",
        Memory.superseded_by.is_null(False),
        Memory.superseded_by.not_in(ids),
        Memory.window.is_null() | (Memory.origin != "made"),
        Memory.origin != "imported",  # what replaced it may have stayed in the store it came from
    ).execute()


def _leave(owner: str, before: set[str]) -> None:
    """Have the points of memories that were not made again removed from the index."""
    after = {row.id for row in Memory.select(Memory.id).where(Memory.owner == owner)}
    for memory_id in sorted(before - after):
        PointDeletion.insert(memory_id=memory_id, owner=owner).on_conflict_ignore().execute()
