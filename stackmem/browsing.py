"""What people leaf through: sessions with their turns, turns by state, and when a memory was recalled. All paged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from peewee import fn

from stackmem.exceptions import NotFound
from stackmem.models import Memory, MemorySource, Session, ToolTrace, Turn

STATES = ("failed", "pending", "open", "skipped")  # of turns that are in no memory


@dataclass(frozen=True)
class Leaf:
    """One page of rows. ``number`` counts from 1; ``more``: there is a next page."""

    rows: Sequence[Any]
    number: int
    more: bool


@dataclass(frozen=True)
class Talk:
    """A session with how many turns it has, and the first words said in it."""

    session: Session
    turns: int
    first: str


@dataclass(frozen=True)
class Recalled:
    """A turn that was given a memory, and for which queries."""

    turn: Turn
    queries: Sequence[str]


def leaf(rows: Any, number: int, size: int) -> Leaf:
    """Return a page of ``size`` rows of a query."""
    found = list(rows.limit(size + 1).offset((number - 1) * size))
    return Leaf(found[:size], number, len(found) > size)


def talks(owner: str, number: int, size: int) -> Leaf:
    """Return sessions as ``Talk``, the newest first."""
    page = leaf(Session.select().where(Session.owner == owner).order_by(Session.id.desc()), number, size)
    ids = [session.id for session in page.rows]
    rows: Any = Turn.select(Turn.session, fn.COUNT(Turn.id), fn.MIN(Turn.ordinal)).where(Turn.session.in_(ids))
    counts = {session: (count, first) for session, count, first in rows.group_by(Turn.session).tuples()}
    words = {
        session: Turn.select(Turn.user).where(Turn.session == session, Turn.ordinal == first).scalar()
        for session, (_, first) in counts.items()
    }
    shown = [Talk(row, counts.get(row.id, (0, 0))[0], words.get(row.id) or "") for row in page.rows]
    return Leaf(shown, number, page.more)


def session_of(owner: str, identity: int) -> Session:
    """Return a session of this owner. Raises NotFound."""
    session = Session.get_or_none(Session.id == identity, Session.owner == owner)
    if session is None:
        raise NotFound(f"There is no session {identity}.")
    return session


def turns_of(session: Session, number: int, size: int) -> Leaf:
    """Return turns of a session, in the order they were said."""
    return leaf(Turn.select().where(Turn.session == session).order_by(Turn.ordinal), number, size)


def page_of(turn: Turn, size: int) -> int:
    """Return the page of its session on which a turn stands."""
    before = Turn.select().where(Turn.session == turn.session_id, Turn.ordinal < turn.ordinal).count()
    return int(before) // size + 1


def turns_in(owner: str, state: str, number: int, size: int) -> Leaf:
    """Return an owner's turns in a state, the newest first."""
    rows = Turn.select().where(Turn.owner == owner, Turn.state == state)
    return leaf(rows.order_by(Turn.id.desc()), number, size)


def counts_by_state(owner: str) -> dict[str, int]:
    """Return how many turns of an owner are in each state; states without one are left out."""
    rows: Any = Turn.select(Turn.state, fn.COUNT(Turn.id)).where(Turn.owner == owner)
    return dict(rows.group_by(Turn.state).tuples())


def memory_of(owner: str, identity: str) -> Memory:
    """Return a memory of this owner, a forgotten one too while its words are there. Raises NotFound."""
    memory = Memory.get_or_none(Memory.id == identity, Memory.owner == owner)
    if memory is None or (memory.status == "forgotten" and memory.purge_at is None):
        raise NotFound(f"There is no memory {identity[:40]}.")
    return memory


def has_words() -> Any:
    """Return the condition that leaves out tombstones: of what was purged nothing is left to show."""
    return (Memory.status != "forgotten") | Memory.purge_at.is_null(False)


def memories_of(turns: Sequence[Turn]) -> dict[int, list[Memory]]:
    """Return the memories that were made of each turn; those whose words are gone are left out."""
    rows = (
        MemorySource.select(MemorySource.turn, Memory)
        .join(Memory)
        .where(MemorySource.turn.in_([turn.id for turn in turns]))
        .where(has_words())
        .order_by(Memory.id)
    )
    found: dict[int, list[Memory]] = {turn.id: [] for turn in turns}
    for row in rows:
        found[row.turn_id].append(row.memory)
    return found


def recalls(memory: Memory, number: int, size: int) -> Leaf:
    """Return the turns that were given a memory as ``Recalled``, the newest first."""
    named = f'%"{memory.id}"%'
    rows = Turn.select().where(Turn.owner == memory.owner, Turn.searched, Turn.memory_ids.cast("text") ** named)
    page = leaf(rows.order_by(Turn.id.desc()), number, size)
    calls: Any = ToolTrace.select().where(ToolTrace.turn.in_([turn.id for turn in page.rows])).order_by(ToolTrace.id)
    queries: dict[int, list[str]] = {}
    for call in calls:
        if any(hit["memory_id"] == memory.id for hit in call.hits) and (query := call.arguments.get("query")):
            queries.setdefault(call.turn_id, []).append(str(query))
    return Leaf([Recalled(turn, queries.get(turn.id, [])) for turn in page.rows], number, page.more)


def open_talk(owner: str, name: str, size: int) -> list[Turn]:
    """Return the newest turns of the open session of a name, oldest first; none where none is open."""
    rows = Session.select().where(Session.owner == owner, Session.name == name, Session.ended_at.is_null())
    session = rows.order_by(Session.seq.desc()).first()
    if session is None:
        return []
    newest = Turn.select().where(Turn.session == session).order_by(Turn.ordinal.desc()).limit(size)
    return list(newest)[::-1]
