"""The background's use cases, one an id: what Celery's tasks call, what ``up`` repairs, what commands do themselves."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from stackmem import sessions
from stackmem.asking import ATTEMPTS
from stackmem.compare import Comparing, next_ready, next_uncompared
from stackmem.converse import give_up_open_turns
from stackmem.database import lease, scrub, transaction
from stackmem.drift import differs, drift_of, mend, sentence
from stackmem.embedder_change import measured, sample
from stackmem.exceptions import StackmemError, TransientError
from stackmem.forgetting import purge_due
from stackmem.index_handle import IndexHandle
from stackmem.indexing import Progress, index_owner
from stackmem.jobs import check_job, is_check_due, progress_of
from stackmem.kept_speech import KeptSpeech
from stackmem.looks import is_due
from stackmem.models import Job, Memory, Owner, PointDeletion, Session, Turn, Window
from stackmem.persona import Persona, Who
from stackmem.polling import drop_old
from stackmem.ports import Clock, Hint, Queue
from stackmem.rebuilding import rebuild_from_turns
from stackmem.reindexing import reindex
from stackmem.remember import Remembering
from stackmem.set_back import bring_to_the_present

log = logging.getLogger(__name__)

STALE = timedelta(seconds=60)  # after which a hint counts as lost
POLL = 0.2  # seconds


@dataclass(frozen=True)
class Work:
    """Everything that happens in the background."""

    remembering: Remembering
    comparing: Comparing
    index: IndexHandle
    who: Who
    clock: Clock
    queue: Queue
    turn_timeout_s: float
    speech: KeptSpeech | None = None

    @property
    def persona(self) -> Persona:
        """Who the robot is now."""
        return self.who.current()

    def run(self, hint: Hint) -> None:
        """Do one piece of work; nothing happens where there is nothing left to do."""
        if hint.task == "remember":
            self.remember(int(hint.id))
        elif hint.task == "index":
            self.index_memories(str(hint.id))
        elif hint.task == "compare":
            self.compare(str(hint.id))
        else:
            self.rebuild(int(hint.id))

    def remember(self, session_id: int) -> None:
        """Look at a session, as often as a look is due."""
        self.remembering.remember(session_id)

    def index_memories(self, owner: str) -> None:
        """Bring an owner's memories into the index; then they can be compared."""
        if self.index.store is None:
            return
        if self.index.is_missing():
            reindex(self.index)
        index_owner(self.index, owner)
        if next_uncompared(owner) is not None:
            self.queue.put(Hint("compare", owner))

    def compare(self, owner: str) -> None:
        """Set an owner's new memories against the older ones."""
        self.comparing.compare(owner)

    def rebuild(self, job_id: int) -> None:
        """Do the job of a ``reindex`` or ``doctor`` command, keeping its progress in the row."""
        with lease(f"job:{job_id}", self.clock) as held:
            job = Job.get_or_none(Job.id == job_id, Job.state.in_(["waiting", "running"]))
            if held is None or job is None or self.index.store is None:
                return
            Job.update(state="running").where(Job.id == job_id).execute()
            try:
                done = self._rebuild(job, progress_of(job_id))
                outcome = {"state": "done", "done": done, "total": done, "message": ""}
            except TransientError:
                Job.update(state="waiting", enqueued_at=self.clock.now()).where(Job.id == job_id).execute()
                raise
            except StackmemError as exc:
                outcome = {"state": "failed", "message": str(exc)}
            Job.update(finished_at=self.clock.now(), **outcome).where(Job.id == job_id).execute()

    def check_index(self) -> None:
        """Once a night, compare database and index and mend what differs; the log says what that was."""
        now = self.clock.now()
        if self.index.store is None:
            return
        with lease("check_index", self.clock) as held:  # beat may run twice
            job = check_job(True, now) if held and is_check_due(now, self.remembering.zone) else None
        if job is None:
            return
        self.rebuild(job.id)
        counts = Job.get_by_id(job.id).arguments.get("found")
        if counts:
            log.log(logging.WARNING if differs(counts) else logging.INFO, "%s", sentence(counts, mended=True))

    def _check(self, job: Job, progress: Progress) -> int:
        if self.index.is_missing():
            reindex(self.index)
        found = drift_of(self.index, progress)
        owners = mend(self.index, found) if job.arguments.get("mend") else []
        Job.update(arguments={**job.arguments, "found": found.counts()}).where(Job.id == job.id).execute()
        for owner in owners:
            self.index_memories(owner)
        return found.points

    def _rebuild(self, job: Job, progress: Progress) -> int:
        if job.kind == "check":
            return self._check(job, progress)
        if job.kind == "scrub":
            # An index keeps deleted points in its files until it is written anew.
            done = reindex(self.index, progress, embedder=self.index.searching)
            scrub()
            return done
        if job.arguments.get("from") == "turns":
            rebuild_from_turns(self.remembering, progress)
        done = reindex(self.index, progress)
        for owner in list(Owner.select()):
            self.index_memories(owner.name)
        return done

    def start(self) -> None:
        """At start-up: load the embedder in the background, open the index, find all that waits and enqueue it.

        A look becomes due at every session left with new turns.
        """
        if self.index.store is not None:
            self.index.loading.begin()
        if self.index.change:
            log.warning(self.index.change.sentence())
            threading.Thread(target=self._measure, args=(sample(),), name="measure", daemon=True).start()
        if self.index.store is not None and self.index.current is None:
            if not Memory.select().exists():
                self._begin_index()
            elif (owner := Owner.select().first()) is not None:
                self.queue.put(Hint("index", owner.name))
        rows = Session.select(Session.id).join(Turn).where(Turn.state == "pending", Turn.id > Session.looked_to)
        ids = {row.id for row in rows}
        if ids:
            Session.update(look_due=True).where(Session.id.in_(ids)).execute()
        Session.update(enqueued_at=None).execute()
        Owner.update(index_enqueued_at=None, compare_enqueued_at=None).execute()
        Job.update(enqueued_at=None).where(Job.state.in_(["waiting", "running"])).execute()
        self.sweep()

    def _begin_index(self) -> None:
        try:
            reindex(self.index)
        except TransientError as exc:  # of a server that others use too: whoever is first begins it
            log.warning("%s", exc)

    def _measure(self, texts: Sequence[str]) -> None:
        """Find out how long the change of embedder will take, by embedding a few texts, and say so."""
        change = self.index.change
        try:
            found = measured(change, self.index.embedder, texts) if change and change.texts and texts else None
        except StackmemError as exc:
            log.warning("How long that takes could not be measured: %s", exc)
            return
        if found and self.index.change is change:
            self.index.change = found
            log.warning(found.sentence())

    def sweep(self) -> int:
        """Find what a lost hint, a dead worker or the clock left waiting, and enqueue it; return how many hints."""
        now = self.clock.now()
        bring_to_the_present(now)
        purge_due(now)
        drop_old(now)
        if self.speech:
            self.speech.prune(now)
        give_up_open_turns(now, timedelta(seconds=2 * self.turn_timeout_s), self.persona.fallback_line)
        sessions.end_idle(now)
        hints = list(self.waiting(now, now - STALE))
        for hint in hints:
            self.queue.put(hint)
        return len(hints)

    def retry(self, owner: str) -> dict[str, int]:
        """Bring back an owner's failed turns and comparisons, and try at once what waits for the model; count them."""
        with transaction():
            found = retry(owner)
        self.sweep()
        return found

    def waiting(self, now: datetime, stale: datetime) -> Iterator[Hint]:
        """Yield a hint for all work that is due and not enqueued since ``stale``; mark it as enqueued."""
        for session in due_sessions(now, stale):
            Session.update(enqueued_at=now).where(Session.id == session.id).execute()
            yield Hint("remember", session.id)
        for name in _owners_to_index(stale):
            Owner.update(index_enqueued_at=now).where(Owner.name == name).execute()
            yield Hint("index", name)
        for name in _owners_to_compare(now, stale):
            Owner.update(compare_enqueued_at=now).where(Owner.name == name).execute()
            yield Hint("compare", name)
        jobs = Job.select().where(Job.state.in_(["waiting", "running"]), _stale(Job.enqueued_at, stale))
        for job in list(jobs):  # SQLite does not let who is still reading write after somebody else did
            Job.update(enqueued_at=now).where(Job.id == job.id).execute()
            yield Hint("reindex", job.id)

    def catch_up(self) -> None:
        """Do in this thread what is due now; what then waits for a delay is left."""
        while hints := list(self.waiting(self.clock.now(), self.clock.now())):
            for hint in hints:
                self.run(hint)
            time.sleep(POLL)  # where another worker holds what is due

    def drain(self, until: Callable[[], bool]) -> None:
        """Do the waiting work in this thread until ``until()`` holds; for commands that run without a server."""
        while not until():
            now = self.clock.now()
            hints = list(self.waiting(now, now))
            for hint in hints:
                self.run(hint)
                if until():
                    return
            if not hints:
                time.sleep(POLL)


def retry(owner: str) -> dict[str, int]:
    """Make failed turns pending again, inside the caller's transaction; return how many turns and comparisons."""
    failed = list(Turn.select().where(Turn.owner == owner, Turn.state == "failed", ~Turn.settled))
    Turn.update(state="pending").where(Turn.id.in_([turn.id for turn in failed])).execute()
    for session_id in {turn.session_id for turn in failed}:
        before = min(turn.id for turn in failed if turn.session_id == session_id) - 1
        looked_to = min(before, Session.get_by_id(session_id).looked_to)
        Session.update(look_due=True, looked_to=looked_to).where(Session.id == session_id).execute()
    Session.update(attempts=0, attempts_to=None, delays=0, retry_at=None, enqueued_at=None).where(
        Session.owner == owner
    ).execute()
    Owner.update(delays=0, retry_at=None, compare_enqueued_at=None).where(Owner.name == owner).execute()
    given_up = Window.update(compared=False, compare_attempts=0).where(
        Window.owner == owner, Window.compared, Window.compare_attempts >= ATTEMPTS
    )
    return {"turns": len(failed), "comparisons": given_up.execute()}


def _stale(column: Any, stale: datetime) -> Any:
    return column.is_null() | (column <= stale)


def due_sessions(now: datetime, stale: datetime) -> list[Session]:
    """Return the sessions at which a look is due and not enqueued since ``stale``, oldest first."""
    pending = Turn.select(Turn.session).where(Turn.state == "pending")
    rows = Session.select().where(Session.id.in_(pending), _stale(Session.enqueued_at, stale)).order_by(Session.id)
    return [session for session in rows if is_due(session, now)]


def _owners_to_index(stale: datetime) -> list[str]:
    outdated = Memory.select(Memory.owner).where(Memory.outdated)
    leaving = PointDeletion.select(PointDeletion.owner)
    rows = Owner.select().where(
        Owner.name.in_(outdated) | Owner.name.in_(leaving), _stale(Owner.index_enqueued_at, stale)
    )
    return [row.name for row in rows]


def _owners_to_compare(now: datetime, stale: datetime) -> list[str]:
    waiting = Window.select(Window.owner).where(~Window.compared)
    rows = Owner.select().where(
        Owner.name.in_(waiting),
        Owner.retry_at.is_null() | (Owner.retry_at <= now),
        _stale(Owner.compare_enqueued_at, stale),
    )
    return [row.name for row in rows if next_ready(row.name) is not None]


def is_indexed() -> bool:
    """Tell whether no memory of anybody waits for the index."""
    return not (Memory.select().where(Memory.outdated).exists() or PointDeletion.select().exists())


def is_compared() -> bool:
    """Tell whether no memory of anybody waits for its comparison."""
    return not Window.select().where(~Window.compared).exists()
