"""Where a conversation that its client keeps goes on: the session it belongs to, and which turns of it are stored.

A client's window loses its beginning, so a session is found by the last exchange the client sends, and by those before
it as far as they go; never by the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from peewee import fn

from stackmem.chat_body import Pair
from stackmem.models import Session, Turn
from stackmem.sessions import IDLE_LIMIT
from stackmem.text import letters

PREFIX = "chat-"  # of sessions begun for clients that name none
LOOKED_AT = 200  # newest turns of a session
REACH = 20_000  # newest turns of all in which the last exchange is looked for
CANDIDATES = 50  # turns in which the user said the same


@dataclass(frozen=True)
class Place:
    """A session by its name (None: it is a new one), the stored turns of the client's exchanges, by their place.

    ``again`` is the stored turn of the very words, where its reply is to be replaced.
    """

    session: str | None = None
    again: Turn | None = None
    stored: dict[int, Turn] = field(default_factory=dict)
    is_sure: bool = False  # the exchanges end where the session does, and two of them are stored, or all just now


@dataclass(frozen=True)
class Asking:
    """Whose conversation is looked for, and what it is."""

    owner: str
    device: str | None
    pairs: Sequence[Pair]
    words: str
    now: datetime


def find_place(asking: Asking, name: str | None = None) -> Place:
    """Return where the conversation goes on; ``name`` is the session's, where the client gave it."""
    if name is not None:
        return _within(asking, name)[1]
    fits = [_within(asking, found) for found in _sessions_with(asking)]
    found = max((fit for fit in fits if fit[0][0] or fit[1].again), key=lambda fit: fit[0], default=None)
    return found[1] if found else Place()


# How many exchanges are stored one behind the other, whether those are all of both, what follows there (nothing, the
# very words, others), the last one's id.
Rank = tuple[int, bool, int, int]
_NOTHING: Rank = (0, False, 0, 0)


def _within(asking: Asking, name: str) -> tuple[Rank, Place]:
    """Return how well the exchanges sent fit to a session's turns, and where they do best."""
    turns, pairs = _turns_of(asking.owner, name), asking.pairs
    if not pairs:
        return _without_history(asking, name, turns)
    best: tuple[Rank, Place] = (_NOTHING, Place(name))
    for last in range(len(turns)):
        run = _run(turns, last, pairs)
        again = _again(turns[last + 1 :], asking.words)
        follows = 2 if last + 1 == len(turns) else int(again is not None)
        rank = (run, run == len(pairs) == last + 1, follows, turns[last].id)
        if run and rank > best[0]:
            stored = {len(pairs) - 1 - back: turns[last - back] for back in range(run)}
            is_fresh = run == len(pairs) and asking.now - turns[last].received_at < IDLE_LIMIT
            best = rank, Place(name, again, stored, is_sure=follows > 0 and (run > 1 or is_fresh))
    return best


def _without_history(asking: Asking, name: str, turns: Sequence[Turn]) -> tuple[Rank, Place]:
    """The first words of a talk, said again at once: its reply is asked for anew."""
    newest = turns[-1] if turns else None
    is_first = newest is not None and newest.ordinal == 1 and newest.user == asking.words
    if newest is None or not is_first or asking.now - newest.received_at >= IDLE_LIMIT:
        return _NOTHING, Place(name)
    return (0, True, 1, newest.id), Place(name, again=newest)


def _again(following: Sequence[Turn], words: str) -> Turn | None:
    """Return the one turn that follows, where it holds the very words: its reply is asked for anew."""
    return following[0] if len(following) == 1 and following[0].user == words else None


def _run(turns: Sequence[Turn], last: int, pairs: Sequence[Pair]) -> int:
    """Return how many of the last pairs are stored as ``turns[last]`` and the turns before it."""
    run = 0
    while run < len(pairs) and run <= last and _is_stored(pairs[-1 - run], turns[last - run]):
        run += 1
    return run


def _is_stored(pair: Pair, turn: Turn) -> bool:
    """Tell whether a turn holds this exchange; the client may have only the reply's beginning, or have tidied it up."""
    return bool(turn.user) and turn.user in pair.may_be and letters(turn.reply).startswith(letters(pair.reply))


def _turns_of(owner: str, name: str) -> list[Turn]:
    rows = (
        Turn.select(
            Turn.id, Turn.user, Turn.reply, Turn.emotion, Turn.action, Turn.withheld, Turn.ordinal, Turn.received_at
        )
        .join(Session)
        .where(Turn.owner == owner, Session.name == name, Session.imported.is_null())
        .order_by(Turn.id.desc())
        .limit(LOOKED_AT)
    )
    return list(rows)[::-1]


def _sessions_with(asking: Asking) -> list[str]:
    """Return the names of the device's sessions in which the last exchange, or else the first words, may be stored."""
    mine = Session.device.is_null() if asking.device is None else Session.device == asking.device
    said: Any = Turn.user.in_(asking.pairs[-1].may_be) if asking.pairs else Turn.user == asking.words
    if not asking.pairs:  # only a talk that was begun here can be begun here again
        said &= Session.name.startswith(PREFIX) & (Turn.ordinal == 1) & Session.ended_at.is_null()
    newest = Turn.select(fn.MAX(Turn.id)).scalar() or 0
    rows: Any = (
        Turn.select(Session.name)
        .join(Session)
        .where(Turn.owner == asking.owner, Turn.id > newest - REACH, mine, Session.imported.is_null(), said)
        .order_by(Turn.id.desc())
        .limit(CANDIDATES)
    )
    return list(dict.fromkeys(name for (name,) in rows.tuples()))
