"""A turn for a robot that polls: its words are stored, it gets a number and asks under it until the reply is there.

The row is a hint as well: whatever became of the thread that answers, the state of the turn says what is left to do,
and the next poll, or the next start, goes on with it.
"""

import logging
import queue
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from peewee import DatabaseError, InterfaceError

from stackmem.aloud import Aloud
from stackmem.converse import Conversation, Said
from stackmem.exceptions import Conflict, NotFound, StackmemError
from stackmem.models import Turn, TurnJob, proxy
from stackmem.ports import Clock

log = logging.getLogger(__name__)

KEPT = timedelta(hours=1)  # for which a result can be asked for, again and again
THREADS = 8  # that answer at once; more turns wait in order
UNFINISHED = ("waiting", "running")


@dataclass
class _Running:
    """What this process has in hand."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    jobs: set[int] = field(default_factory=set)
    waiting: "queue.SimpleQueue[tuple[int, bool]]" = field(default_factory=queue.SimpleQueue)
    threads: int = 0


@dataclass(frozen=True)
class Polling:
    """Turns that are answered in threads of this process."""

    conversation: Conversation | Aloud
    clock: Clock
    _running: _Running = field(default_factory=_Running)

    def begin(self, said: Said) -> TurnJob:
        """Store the words, begin to answer them, and return the job; the same key gets the same one.

        Raises InvalidInput for empty words.
        """
        turn, is_new = self.conversation.begin(said)
        row = {"owner": turn.owner, "turn": turn.id, "key": f"turn {turn.id}", "created_at": self.clock.now()}
        TurnJob.insert(row).on_conflict_ignore().execute()
        job = TurnJob.get(TurnJob.key == row["key"])
        self._go_on(job, is_new)
        return job

    def look(self, owner: str, job_id: str) -> tuple[TurnJob, Turn | None]:
        """Return a job and, where it is done, its turn; go on with one that nobody works at. Raises NotFound."""
        number = int(job_id) if job_id.isascii() and job_id.isdigit() and len(job_id) < 19 else -1
        job = TurnJob.get_or_none(TurnJob.id == number, TurnJob.owner == owner)
        turn = Turn.get_or_none(Turn.id == job.turn) if job else None
        if job is None or turn is None:
            raise NotFound(f"There is no job {job_id[:40]}; results are kept for an hour.")
        if job.state in UNFINISHED and turn.state != "open":  # the sweep, or another process, answered it
            job.state = _end(job, "done", self.clock.now())
        self._go_on(job, is_new=False)
        return job, turn if job.state == "done" else None

    def resume(self, *, alone: bool = False) -> None:
        """At start-up: go on with what an earlier process left; ``alone``: nobody else can be answering it."""
        for job in list(TurnJob.select().where(TurnJob.state.in_(UNFINISHED)).order_by(TurnJob.id)):
            self._go_on(job, is_new=alone)

    def _go_on(self, job: TurnJob, is_new: bool) -> None:
        running = self._running
        if job.state not in UNFINISHED:
            return
        with running.lock:
            if job.id in running.jobs:
                return
            running.jobs.add(job.id)
            running.waiting.put((job.id, is_new))
            if running.threads < min(THREADS, len(running.jobs)):
                running.threads += 1
                threading.Thread(target=self._answer_all, name=f"polled-{running.threads}", daemon=True).start()

    def _answer_all(self) -> None:
        while True:
            job_id, is_new = self._running.waiting.get()
            try:
                with proxy.connection_context():
                    self._answer(job_id, is_new)
            except Conflict as exc:
                log.info("job %s: %s", job_id, exc)  # the next poll looks again
            except (StackmemError, DatabaseError, InterfaceError) as exc:
                log.warning("job %s was not answered (the next poll tries again): %s", job_id, exc)
            except Exception:  # the edge of this thread
                log.exception("job %s failed", job_id)
            finally:
                with self._running.lock:
                    self._running.jobs.discard(job_id)

    def _answer(self, job_id: int, is_new: bool) -> None:
        job = TurnJob.get_or_none(TurnJob.id == job_id, TurnJob.state.in_(UNFINISHED))
        turn = Turn.get_or_none(Turn.id == job.turn) if job else None
        if job is None or turn is None:
            return
        TurnJob.update(state="running").where(TurnJob.id == job_id).execute()
        self.conversation.finish(turn, is_new)
        _end(job, "done", self.clock.now())


def _end(job: TurnJob, state: str, now: datetime) -> str:
    TurnJob.update(state=state, finished_at=now).where(TurnJob.id == job.id, TurnJob.finished_at.is_null()).execute()
    return state


def drop_old(now: datetime) -> None:
    """Drop the jobs whose results have been kept long enough, and those that never ended; their turns stay."""
    never_ended = TurnJob.finished_at.is_null() & (TurnJob.created_at < now - 2 * KEPT)
    TurnJob.delete().where((TurnJob.finished_at < now - KEPT) | never_ended).execute()
