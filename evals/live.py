"""Each live turn is judged once, in the background or by a command; never while somebody waits for an answer."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from evals.allowance import Allowance, Metered, Spent
from evals.judge.turn import PROMPT_VERSION, Case, Verdict, judge_turn
from evals.live_turns import LIVE, OPEN, case_of, due_turns, last_turns, unfinished
from evals.nearest import NotEmbedded
from evals.windows import write_windows
from stackmem.asking import ATTEMPTS, delay
from stackmem.bootstrap import Runtime
from stackmem.config import Settings
from stackmem.database import Held, lease, transaction
from stackmem.exceptions import BadAnswer, ContentRefused, PermanentError, TransientError
from stackmem.models import Memory, Turn
from stackmem.ports import ChatModel, Clock, Embedder
from stackmem.score_models import Label

log = logging.getLogger(__name__)

BATCH = 50  # turns of one run in the background

Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Outcome:
    """How many turns were judged, and why it ended before all were ("": it did not)."""

    judged: int
    stopped: str = ""


def _tell_nobody(done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class LiveScoring:
    """The use case over its parts."""

    judge: ChatModel
    allowance: Allowance
    embedder: Embedder
    clock: Clock
    zone: tzinfo
    timeout_s: float

    @classmethod
    def over(cls, runtime: Runtime) -> "LiveScoring":
        """Return it over a process's runtime; it needs no index."""
        return cls.of(runtime.settings, runtime.judge, runtime.index.searching, runtime.clock)

    @classmethod
    def of(cls, settings: Settings, judge: ChatModel, embedder: Embedder, clock: Clock) -> "LiveScoring":
        """Return it over its parts, with the day's allowance around the judge."""
        allowance = Allowance(settings.judge_calls_per_day, clock, settings.zone)
        return cls(Metered(judge, allowance), allowance, embedder, clock, settings.zone, settings.judge_timeout_s)

    def run(self) -> Outcome:
        """Judge what is due, of every owner, oldest first; stop where somebody waits, and at the end of the calls."""
        if self.allowance.is_down():
            return Outcome(0, "The judge did not answer a moment ago.")
        return self._judge_all(due_turns(self.clock.now(), BATCH), _somebody_waits, _tell_nobody)

    def run_now(self, owner: str, last: int, tell: Tell = _tell_nobody) -> Outcome:
        """Judge those of the owner's last turns that are not judged yet, whatever they wait for."""
        left = Turn.select(Turn.id).where(Turn.id.in_(last_turns(owner, last)), unfinished()).order_by(Turn.id)
        return self._judge_all([row.id for row in left], lambda: False, tell)

    def _judge_all(self, ids: Sequence[int], must_stop: Callable[[], bool], tell: Tell) -> Outcome:
        judged, stopped = 0, ""
        for done, turn_id in enumerate(ids):
            tell(done, len(ids))
            if must_stop():
                stopped = "Somebody waits for an answer."
                break
            try:
                judged += self._judge_one(turn_id)
            except NotEmbedded as exc:
                stopped = str(exc)  # another owner's may have theirs
            except Spent as exc:
                stopped = str(exc)
                break
            except (TransientError, PermanentError) as exc:
                stopped = f"The judge did not answer: {exc}"
                log.warning("live turns are judged later: %s", exc)
                break
        tell(len(ids), len(ids))
        for row in list(Label.select(Label.owner).distinct()):
            write_windows(row.owner, self.clock.now())
        return Outcome(judged, stopped)

    def _judge_one(self, turn_id: int) -> bool:
        with lease(f"judge:{turn_id}", self.clock) as held:
            turn = Turn.get_or_none(Turn.id == turn_id, unfinished())
            if held is None or turn is None:
                return False  # somebody else judges it, has judged it, or it was forgotten
            asked_at, case = self.clock.now(), case_of(turn, self.embedder, self.zone)
            try:
                verdict = judge_turn(self.judge, case, self.timeout_s)
            except (BadAnswer, ContentRefused) as exc:
                self._bad_answer(turn, held, exc)
                return False
            except Spent as exc:
                # The day ended between a bad answer and its repair: uncounted, one call a day would never get past it.
                if isinstance(exc.__context__, BadAnswer):
                    self._bad_answer(turn, held, exc.__context__)
                raise
            with transaction():
                held.check()
                if Turn.select().where(Turn.id == turn_id, LIVE).exists():
                    self._write(turn, _columns(turn, case, verdict, asked_at))
            return True

    def _bad_answer(self, turn: Turn, held: Held, fault: Exception) -> None:
        with transaction():
            held.check()
            known = Label.get_or_none(Label.turn == turn)
            # A service that refuses these words refuses them tomorrow as well.
            attempts = ATTEMPTS if isinstance(fault, ContentRefused) else (known.attempts if known else 0) + 1
            state = "waiting" if attempts < ATTEMPTS else "unjudgeable"
            retry_at = self.clock.now() + delay(attempts) if state == "waiting" else None
            self._write(turn, {"state": state, "attempts": attempts, "retry_at": retry_at})
        log.warning("turn %s: the judge's answer was bad (attempt %d): %s", turn.id, attempts, fault)

    def _write(self, turn: Turn, columns: dict[str, Any]) -> None:
        row = {
            "owner": turn.owner,
            "judge": self.judge.name,
            "prompt_version": PROMPT_VERSION,
            "searched": turn.searched,
            "created_at": self.clock.now(),
            **columns,
        }
        Label.insert(turn=turn.id, **row).on_conflict(conflict_target=[Label.turn], update=row).execute()


def _columns(turn: Turn, case: Case, verdict: Verdict, asked_at: datetime) -> dict[str, Any]:
    # The reason may repeat what somebody made the robot forget while the judge thought.
    forgotten = Memory.select().where(Memory.owner == turn.owner, Memory.forgotten_at >= asked_at).exists()
    return {
        "state": "judged",
        "retry_at": None,
        "needed": verdict.needed,
        "found": verdict.found(case),
        "right_ids": list(verdict.right),
        "shown_ids": [memory.id for memory in case.memories],
        "reason": "" if forgotten else verdict.reason,
    }


def _somebody_waits() -> bool:
    """Tell whether a turn is being answered: the judge is often the very server that answers it."""
    return bool(Turn.select().where(OPEN).exists())
