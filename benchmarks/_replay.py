"""Bring a real log into a store of its own, imported or as live turns."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from benchmarks._counting import CALLS_FILE, CountingChat
from benchmarks.offline_rules import Turn as LogTurn
from stackmem import sessions
from stackmem.bootstrap import Runtime, build
from stackmem.clock import SystemClock, read_time
from stackmem.config import load_settings
from stackmem.converse import due_looks
from stackmem.database import transaction
from stackmem.ids import turn_uid
from stackmem.importing import Importer
from stackmem.indexing import reindex
from stackmem.looks import SILENCE
from stackmem.models import Memory, MemorySource, Owner, Session, Turn, Window
from stackmem.ports import ChatModel, Clock, Hint
from stackmem.status import pending
from stackmem.text import clean
from stackmem.work import STALE

SECOND = timedelta(seconds=1)

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Made:
    """One memory: ``turns`` are the places, counted from 0, of its source turns in the log's list of turns."""

    topic: str
    summary: str
    turns: tuple[int, ...]
    status: str = "active"


class SetClock:
    """A clock that only the replay moves, never back."""

    def __init__(self, start: datetime):
        self._now = start

    def now(self) -> datetime:
        """Return the time set last."""
        return self._now

    def move_to(self, moment: datetime) -> None:
        """Set the time, unless it has passed."""
        self._now = max(self._now, moment)


class Hints:
    """A queue of hints in memory."""

    def __init__(self) -> None:
        self.waiting: list[Hint] = []

    def put(self, hint: Hint) -> None:
        """Keep it."""
        self.waiting.append(hint)


@contextmanager
def opened(
    home: Path, clock: Clock, queue: Hints, *, model: ChatModel | None = None, **settings: Any
) -> Iterator[Runtime]:
    """Open the store in ``home``; its background calls, of ``model`` or that of the environment, are counted."""
    given = load_settings(**{"home": home, "database_url": "", "index_url": "edge:", **settings})
    runtime = build(given, owns_index=True, clock=clock, queue=queue)
    work = runtime.work
    chat = CountingChat(model or work.remembering.model, home / CALLS_FILE)
    runtime.work = replace(
        work, remembering=replace(work.remembering, model=chat), comparing=replace(work.comparing, model=chat)
    )
    try:
        with runtime.database.connection_context():
            if runtime.index.current is None:
                reindex(runtime.index)
            yield runtime
    finally:
        runtime.close()


# --- as an import ----------------------------------------------------------------------------------------------------


def import_log(runtime: Runtime, owner: str, rows: Sequence[dict[str, Any]], report: Report) -> None:
    """Import the utterances as the command does, then remember, index and compare until nothing waits."""
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    imported = Importer(owner, runtime.settings.zone, SystemClock().now(), both_speakers=True).run(lines)
    if imported.faults:
        raise click.ClickException(f"A line of the log was skipped: {imported.faults[0]}")
    total = Turn.select().count() + 1

    def done() -> bool:
        left = left_to_do(owner)
        report(max(0, total - left), total)
        return left == 0

    runtime.work.drain(done)


def left_to_do(owner: str) -> int:
    """Return how many turns wait for a look, memories for the index and windows for their comparison."""
    turns = Turn.select().where(Turn.state == "pending").count()
    return int(turns) + pending(owner) + int(Window.select().where(~Window.compared).count())


# --- as live turns ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Live:
    """A log replayed as live turns at its own times; the sweep comes whenever it would find something.

    A session ends by itself after the idle limit or, with ``closes``, with its last turn: the client says so.
    """

    runtime: Runtime
    clock: SetClock
    queue: Hints
    owner: str
    closes: bool = False

    def run(self, turns: Sequence[LogTurn], rows: Sequence[dict[str, Any]], report: Report) -> None:
        """Say all turns that the store does not hold yet, then let time pass until nothing waits."""
        stored = Counter(row.session.name for row in Turn.select(Turn, Session).join(Session))
        if stored:
            self._go_on()
        said: Counter[str] = Counter()
        for number, turn in enumerate(turns, 1):
            said[turn.session] += 1
            if said[turn.session] > stored[turn.session]:
                is_last = number == len(turns) or turns[number].session != turn.session
                self._say(turn, *times(turn, rows, self.clock.now()), is_last=is_last)
            report(number, len(turns))
        self._pass_until(datetime.max.replace(tzinfo=UTC))

    def _say(self, turn: LogTurn, start: datetime, end: datetime, *, is_last: bool) -> None:
        """Store one answered turn as ``converse`` does, and do the work that it makes due."""
        self._pass_until(start)
        self.clock.move_to(end)
        now = self.clock.now()
        with transaction():
            session = sessions.session_for_turn(self.owner, turn.session, None, now)
            ordinal = sessions.next_ordinal(session)
            Session.update(received_at=now, both_speakers=True).where(Session.id == session.id).execute()
            user, reply = spoken(turn)
            row = Turn.create(
                uid=turn_uid(self.owner, session.name, session.seq, ordinal, user), session=session, ordinal=ordinal,
                owner=self.owner, at=start, received_at=now, user=user, reply=reply, state="pending",
            )  # fmt: skip
            hints = due_looks(row, now)
        for hint in hints:
            self.queue.put(hint)
        self._work()
        if is_last and self.closes:
            sessions.close(self.owner, turn.session, now)
            self._sweep()

    def _go_on(self) -> None:
        """Go on where an earlier run stopped, as a server does at its start."""
        known = [moment for row in Session.select() for moment in (row.received_at, row.ended_at) if moment]
        for moment in (*known, *(row.created_at for row in Window.select())):
            self.clock.move_to(moment)
        self.runtime.work.start()
        self._work()

    def _pass_until(self, end: datetime) -> None:
        """Let time pass, with a sweep at every moment before ``end`` at which something falls due."""
        while (moment := next_moment(self.clock.now())) is not None and moment < end:
            self.clock.move_to(moment)
            self._sweep()

    def _sweep(self) -> None:
        self.runtime.work.sweep()
        self._work()

    def _work(self) -> None:
        while self.queue.waiting:
            self.runtime.work.run(self.queue.waiting.pop(0))


def next_moment(now: datetime) -> datetime | None:
    """Return when the sweep will next find something: a silence, an end, a hint that was lost, a retry."""
    moments: set[datetime] = set()
    unfinished = Turn.select(Turn.session).where(Turn.state == "pending")
    for row in Session.select().where(Session.ended_at.is_null() | Session.id.in_(unfinished)):
        moments |= {row.received_at + SILENCE, row.received_at + sessions.IDLE_LIMIT + SECOND}
        moments |= {row.enqueued_at + STALE + SECOND} if row.enqueued_at else set()
        moments |= {row.retry_at} if row.retry_at else set()
    moments |= {row.retry_at for row in Owner.select().where(Owner.retry_at.is_null(False))}
    return min((moment for moment in moments if moment > now), default=None)


def times(turn: LogTurn, rows: Sequence[dict[str, Any]], now: datetime) -> tuple[datetime, datetime]:
    """Return when a turn began and ended; what the log does not know, or has before ``now``, is ``now``."""
    known = [read_time(rows[line - 1]["at"], UTC) for line in turn.lines if rows[line - 1]["at"]]
    return (max(now, known[0]), max(now, *known)) if known else (now, now)


# --- what became of it -----------------------------------------------------------------------------------------------


def spoken(turn: LogTurn) -> tuple[str, str]:
    """Return a turn's two sides as the rows hold them."""
    return clean("\n".join(turn.user)), clean("\n".join(turn.robot))


def places(turns: Sequence[LogTurn]) -> dict[int, int]:
    """Return the stored turns' ids with their places among ``turns``. Raises ClickException where the words differ."""
    of_session: dict[str, list[int]] = {}
    for place, turn in enumerate(turns):
        of_session.setdefault(turn.session, []).append(place)
    found: dict[int, int] = {}
    rows = Turn.select(Turn, Session).join(Session).order_by(Session.id, Turn.ordinal)
    for row in rows.where(Session.name.in_(list(of_session))):
        place = of_session[row.session.name].pop(0)
        if (row.user, row.reply) != spoken(turns[place]):
            raise click.ClickException(f"The store's turn {row.id} is not the log's: was it made from another log?")
        found[row.id] = place
    return found


def look_counts() -> dict[str, int]:
    """Return how many looks the store has seen, and of which kind."""
    seen: set[int] = set()
    counts = {"looks": 0, "looks at an open session": 0, "looks that saw no new turn": 0}
    for window in Window.select().order_by(Window.id):
        counts["looks"] += 1
        counts["looks at an open session"] += not window.final
        counts["looks that saw no new turn"] += seen.issuperset(window.turn_ids)
        seen.update(window.turn_ids)
    return counts | {"turns failed": Turn.select().where(Turn.state == "failed").count()}


def made_memories(turns: Sequence[LogTurn]) -> list[Made]:
    """Return the store's active and superseded memories in the order they were made."""
    place_of = places(turns)
    sources: dict[str, list[int]] = {}
    for source in MemorySource.select().order_by(MemorySource.turn):
        if source.turn_id in place_of:
            sources.setdefault(source.memory_id, []).append(place_of[source.turn_id])
    rows = Memory.select().where(Memory.status.in_(["active", "superseded"])).order_by(Memory.window, Memory.id)
    return [Made(row.topic, row.summary, tuple(sources[row.id]), row.status) for row in rows if row.id in sources]
