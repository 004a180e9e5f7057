"""The judge within its calls a day; and left alone for a while after it did not answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo

from stackmem.asking import delay
from stackmem.exceptions import ContentRefused, PermanentError, TransientError
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest, Clock
from stackmem.score_models import JudgeDay


class Spent(TransientError):
    """Today's calls of the judge are spent: it goes on tomorrow, or raise STACKMEM_JUDGE_CALLS_PER_DAY."""


@dataclass(frozen=True)
class Allowance:
    """The calls of a day, counted in the database: every process draws on the same."""

    per_day: int
    clock: Clock
    zone: tzinfo

    def take(self) -> str:
        """Take one call and return the day it is counted on. Raises Spent where none is left."""
        day = self._today()
        JudgeDay.insert(day=day).on_conflict_ignore().execute()
        left = (JudgeDay.day == day) & (JudgeDay.calls < self.per_day)
        if not JudgeDay.update(calls=JudgeDay.calls + 1).where(left).execute():
            raise Spent
        return day

    def give_back(self, day: str) -> None:
        """Give back a call that was not answered, and leave the judge alone for 5 s, 10 s, … 15 min."""
        row = JudgeDay.get_by_id(day)
        delays = row.delays + 1
        JudgeDay.update(calls=JudgeDay.calls - 1, delays=delays, retry_at=self.clock.now() + delay(delays)).where(
            JudgeDay.day == day
        ).execute()

    def answered(self, day: str) -> None:
        """Note that the judge answered."""
        JudgeDay.update(delays=0, retry_at=None).where(JudgeDay.day == day, JudgeDay.delays > 0).execute()

    def used(self) -> int:
        """Return how many of today's calls are used."""
        row = JudgeDay.get_or_none(JudgeDay.day == self._today())
        return row.calls if row else 0

    def is_down(self) -> bool:
        """Tell whether the judge did not answer a moment ago."""
        row = JudgeDay.get_or_none(JudgeDay.day == self._today())
        return row is not None and row.retry_at is not None and row.retry_at > self.clock.now()

    def _today(self) -> str:
        return self.clock.now().astimezone(self.zone).date().isoformat()


class Metered:
    """A judge that is asked only within its allowance; a call it does not answer is not counted."""

    def __init__(self, inner: ChatModel, allowance: Allowance):
        self.name = inner.name
        self._inner, self._allowance = inner, allowance

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the judge's answer. Raises Spent, and what it raises."""
        day = self._allowance.take()  # before the call: one that a power cut swallowed is counted
        try:
            answer = self._inner.complete(request)
        except ContentRefused:
            raise  # that is an answer
        except (TransientError, PermanentError):
            self._allowance.give_back(day)
            raise
        self._allowance.answered(day)
        return answer

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield the whole answer: nobody listens."""
        yield self.complete(request)
