"""A store of its own in which time is what the script says: past turns are replayed, new ones are said."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stackmem import sessions
from stackmem.bootstrap import Runtime, build
from stackmem.config import load_settings
from stackmem.converse import due_looks
from stackmem.database import transaction
from stackmem.ids import turn_uid
from stackmem.looks import SILENCE
from stackmem.models import Owner, Session, Turn
from stackmem.ports import ChatModel, Clock, Hint
from stackmem.reindexing import reindex
from stackmem.work import STALE

SECOND = timedelta(seconds=1)
END = datetime.max.replace(tzinfo=UTC)


class SetClock:
    """A clock that only the script moves, never back."""

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
def opened(home: Path, clock: Clock, queue: Hints, **settings: Any) -> Iterator[Runtime]:
    """Open the store in ``home``, with an index of its own; the other settings are those of the environment."""
    given = load_settings(**{"home": home, "database_url": "", "index_url": "edge:", **settings})
    runtime = build(given, owns_index=True, clock=clock, queue=queue)
    _wait_for_every_answer(runtime)
    try:
        if runtime.llama:
            runtime.llama.address(wait_s=None)
        with runtime.database.connection_context():
            if runtime.index.current is None:
                reindex(runtime.index)
            yield runtime
    finally:
        runtime.close()


def _wait_for_every_answer(runtime: Runtime) -> None:
    """Ask the chat model without a circuit.

    That one spares the turns of the next real seconds the wait: here, where minutes pass in milliseconds, one slow
    answer would take many turns with it.
    """
    talk = runtime.conversation
    runtime.conversation = replace(talk, thinker=replace(talk.thinker, chat=runtime.chat))


def use_memory_model(runtime: Runtime, model: ChatModel) -> None:
    """Let this model remember and compare."""
    work = runtime.work
    runtime.work = replace(
        work, remembering=replace(work.remembering, model=model), comparing=replace(work.comparing, model=model)
    )


@contextmanager
def own_folder() -> Iterator[Path]:
    """Yield a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="stackmem-eval-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class Stage:
    """Turns at their own times; the sweep comes whenever it would find something."""

    runtime: Runtime
    clock: SetClock
    queue: Hints
    owner: str

    def past_turn(
        self, session: str, user: str, reply: str, start: datetime, end: datetime, *, both_speakers: bool = False
    ) -> Turn:
        """Store one answered turn as ``converse`` does, and do the work that it makes due."""
        self.pass_until(start)
        self.clock.move_to(end)
        now = self.clock.now()
        with transaction():
            row = sessions.session_for_turn(self.owner, session, None, now)
            ordinal = sessions.next_ordinal(row)
            Session.update(received_at=now, both_speakers=both_speakers).where(Session.id == row.id).execute()
            turn = Turn.create(
                uid=turn_uid(self.owner, row.name, row.seq, ordinal, user), session=row, ordinal=ordinal,
                owner=self.owner, at=start, received_at=now, user=user, reply=reply, state="pending",
            )  # fmt: skip
            hints = due_looks(turn, now)
        for hint in hints:
            self.queue.put(hint)
        self.work()
        return turn

    def close(self, session: str) -> None:
        """End a session, as its client would."""
        sessions.close(self.owner, session, self.clock.now())
        self.sweep()

    def go_on(self) -> None:
        """Go on where an earlier run stopped, as a server does at its start."""
        self.runtime.work.start()
        self.work()

    def pass_until(self, end: datetime = END) -> None:
        """Let time pass, with a sweep at every moment before ``end`` at which something falls due."""
        while (moment := next_moment(self.clock.now())) is not None and moment < end:
            self.clock.move_to(moment)
            self.sweep()

    def sweep(self) -> None:
        """Find what waits, and do it."""
        self.runtime.work.sweep()
        self.work()

    def work(self) -> None:
        """Do what was hinted at."""
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
