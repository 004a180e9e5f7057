"""A look at a session: when it is due, which turns it sees, and what it leaves behind in one transaction."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from peewee import fn

from stackmem.answers import Segment
from stackmem.making import make_memory
from stackmem.models import ForgetRequest, Session, Turn, Window
from stackmem.naming import note_aliases
from stackmem.persona import language_of, prompt_version
from stackmem.prepared import Prepared
from stackmem.settling import forgotten_turns

LOOK_AFTER = 6  # turns not yet looked at
SILENCE = timedelta(minutes=2)  # after which even one such turn is looked at
TURNS = 40  # of one look at most
BEFORE = 3  # turns before a look's first that are shown with it
OPEN_TOPIC = 20  # turns of the open topic at most: then it is closed

_UNLOOKED = Prepared(
    lambda session, looked_to: Turn.select(fn.COUNT(Turn.id).alias("count")).where(
        Turn.session == session, Turn.state == "pending", Turn.id > looked_to
    )
)


@dataclass(frozen=True)
class Look:
    """What one look sees: turns, oldest first, and whether the session ended with them."""

    session: Session
    turns: Sequence[Turn]
    final: bool


def unlooked(session: Session) -> int:
    """Return how many pending turns no look has seen."""
    return int(_UNLOOKED.first(session=session.id, looked_to=session.looked_to).count)


def is_due(session: Session, now: datetime) -> bool:
    """Tell whether a look is due: six new turns, silence, the end, or another session of the owner."""
    if session.retry_at is not None and session.retry_at > now:
        return False
    if session.ended_at is not None:
        return bool(Turn.select().where(Turn.session == session, Turn.state == "pending").exists())
    new = unlooked(session)
    return new >= LOOK_AFTER or (new > 0 and (session.look_due or now - session.received_at >= SILENCE))


def next_look(session: Session) -> Look:
    """Return the session's pending turns, oldest first, as many as one look takes.

    After a bad answer it is the same turns again: newer ones must not fail with them.
    """
    waiting = Turn.select().where(Turn.session == session, Turn.state == "pending").order_by(Turn.ordinal)
    rows = list(waiting.limit(TURNS + 1))
    again = [turn for turn in rows if session.attempts_to is None or turn.id <= session.attempts_to]
    seen = (again or rows)[:TURNS]
    return Look(session, seen, final=session.ended_at is not None and len(seen) == len(rows))


def new_window(look: Look, model: str, now: datetime) -> Window:
    """Insert the row by which a look can be replayed."""
    language = language_of([turn.user + turn.reply for turn in look.turns])
    return Window.create(
        session=look.session,
        owner=look.session.owner,
        turn_ids=[turn.id for turn in look.turns],
        final=look.final,
        prompt_version=prompt_version(f"remember.{language}.md"),
        model=model,
        created_at=now,
    )


def write_look(look: Look, segments: Sequence[Segment], window: Window, now: datetime, zone: tzinfo) -> int:
    """Write what a look found, inside the caller's transaction: memories, sources, turn states; return how many.

    While the session lives, the last topic stays pending; turns that no closed segment keeps are skipped.
    """
    open_numbers = set() if look.final else open_topic(segments, len(look.turns))
    closed = [segment for segment in segments if not open_numbers.issuperset(segment.turn_ids)]
    kept: set[int] = set()
    of_same_turns: Counter[tuple[int, ...]] = Counter()
    made = 0
    for segment in closed:
        if segment.keep:
            same = tuple(segment.turn_ids)
            turns = [look.turns[number - 1] for number in same]
            made += make_memory(segment, turns, window, now, zone, ordinal=of_same_turns[same])
            of_same_turns[same] += 1
            kept.update(same)
    for segment in segments:
        _note(segment, [look.turns[number - 1] for number in segment.turn_ids], window, now)
    if not made:
        Window.update(compared=True).where(Window.id == window.id).execute()
    _set_states(look, kept, open_numbers)
    left = left_open(look, segments, open_numbers)
    looked(look, attempts=0, attempts_to=None, delays=0, retry_at=None, open_topic=left)
    return made


def left_open(look: Look, segments: Sequence[Segment], numbers: set[int]) -> dict[str, Any] | None:
    """Return what a look said of the turns it leaves pending, by their ids; None where it leaves none."""
    if not numbers:
        return None
    ids = {number: look.turns[number - 1].id for number in numbers}
    opened = [segment for segment in segments if numbers.issuperset(segment.turn_ids)]
    said = [segment.model_dump() | {"turn_ids": [ids[n] for n in segment.turn_ids]} for segment in opened]
    return {"turn_ids": sorted(ids.values()), "segments": said}


def carried(look: Look, open_topic: dict[str, Any] | None) -> list[Segment]:
    """Return what was said of these very turns before: the session ended and nothing was added, so nothing is asked."""
    ids = [turn.id for turn in look.turns]
    if not look.final or open_topic is None or open_topic["turn_ids"] != sorted(ids):
        return []
    numbers = {identity: number for number, identity in enumerate(ids, 1)}
    return [
        Segment.model_validate(said | {"turn_ids": sorted(numbers[identity] for identity in said["turn_ids"])})
        for said in open_topic["segments"]
    ]


def turns_before(look: Look) -> list[Turn]:
    """Return the few turns before a look's first: they are decided about, and tell what its words refer to."""
    rows = (
        Turn.select()
        .where(Turn.session == look.session, Turn.ordinal < look.turns[0].ordinal, Turn.state != "failed")
        .order_by(Turn.ordinal.desc())
    )
    turns = list(rows.limit(BEFORE))[::-1]
    gone = forgotten_turns([turn.id for turn in turns if turn.settled])
    return [turn for turn in turns if turn.id not in gone]


def _note(segment: Segment, turns: Sequence[Turn], window: Window, now: datetime) -> None:
    """Note what the segment says beside its memory: a wish to forget (it deletes nothing), other names of things."""
    note_aliases(window.owner, segment.aliases, turns, now)
    if segment.forget and not segment.keep and not window.session.both_speakers:
        ForgetRequest.insert(
            owner=window.owner, turn=turns[-1].id, what=segment.forget, created_at=now
        ).on_conflict_ignore().execute()


def open_topic(segments: Sequence[Segment], count: int) -> set[int]:
    """Return the numbers of the turns that stay pending: the last topic's, and those after it that no segment names."""
    if not segments:
        return set()
    last = max(segments, key=lambda segment: segment.turn_ids[-1])
    numbers = set(last.turn_ids) | set(range(last.turn_ids[-1] + 1, count + 1))
    kept_elsewhere = {n for segment in segments if segment is not last and segment.keep for n in segment.turn_ids}
    numbers -= kept_elsewhere
    if last.keep and not numbers.issuperset(last.turn_ids):
        numbers -= set(last.turn_ids)  # it shares a kept turn: it is closed whole, never half of it left pending
    return numbers if len(numbers) < OPEN_TOPIC else set()


def _set_states(look: Look, kept: set[int], still_open: set[int]) -> None:
    for state, numbers in (
        ("kept", kept),
        ("skipped", set(range(1, len(look.turns) + 1)) - kept - still_open),
    ):
        ids = [look.turns[number - 1].id for number in numbers]
        if ids:
            Turn.update(state=state).where(Turn.id.in_(ids)).execute()


def looked(look: Look, **more: object) -> None:
    """Note how far the session was looked at, with what else the look changes in its row."""
    last = max(turn.id for turn in look.turns)
    newer = Turn.select().where(Turn.session == look.session, Turn.id > last).exists()
    Session.update(looked_to=last, enqueued_at=None, look_due=look.session.look_due and newer, **more).where(
        Session.id == look.session.id
    ).execute()
