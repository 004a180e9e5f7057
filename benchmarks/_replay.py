"""Bring a real log into a store of its own, imported or as live turns."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from benchmarks._counting import CALLS_FILE, CountingChat
from benchmarks.offline_rules import Turn as LogTurn
from evals import stage
from evals.stage import Hints, SetClock, Stage
from stackmem.bootstrap import Runtime
from stackmem.clock import SystemClock, read_time
from stackmem.importing import Importer
from stackmem.models import Memory, MemorySource, Session, Turn, Window
from stackmem.ports import ChatModel, Clock
from stackmem.status import pending
from stackmem.text import clean

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Made:
    """One memory: ``turns`` are the places, counted from 0, of its source turns in the log's list of turns."""

    topic: str
    summary: str
    turns: tuple[int, ...]
    status: str = "active"


@contextmanager
def opened(
    home: Path, clock: Clock, queue: Hints, *, model: ChatModel | None = None, **settings: Any
) -> Iterator[Runtime]:
    """Open the store in ``home``; its background calls, of ``model`` or that of the environment, are counted."""
    with stage.opened(home, clock, queue, **settings) as runtime:
        chat = model or runtime.work.remembering.model
        stage.use_memory_model(runtime, CountingChat(chat, home / CALLS_FILE))
        yield runtime


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

    @property
    def _stage(self) -> Stage:
        return Stage(self.runtime, self.clock, self.queue, self.owner)

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
        self._stage.pass_until()

    def _say(self, turn: LogTurn, start: datetime, end: datetime, *, is_last: bool) -> None:
        user, reply = spoken(turn)
        self._stage.past_turn(turn.session, user, reply, start, end, both_speakers=True)
        if is_last and self.closes:
            self._stage.close(turn.session)

    def _go_on(self) -> None:
        """Go on where an earlier run stopped, as a server does at its start."""
        known = [moment for row in Session.select() for moment in (row.received_at, row.ended_at) if moment]
        for moment in (*known, *(row.created_at for row in Window.select())):
            self.clock.move_to(moment)
        self._stage.go_on()


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
