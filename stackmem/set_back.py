"""A clock that was set back: what then waits for a time that nobody promised is brought to the present."""

import logging
from datetime import datetime, timedelta
from typing import Any

from stackmem.asking import LONGEST_DELAY
from stackmem.database import LEASE
from stackmem.models import Job, Lease, Owner, Session, Turn
from stackmem.score_models import JudgeDay, Label
from stackmem.witness import PREFIX

log = logging.getLogger(__name__)

SLACK = timedelta(minutes=1)  # that the clocks of several machines may differ

_HINTS = (Session.enqueued_at, Owner.index_enqueued_at, Owner.compare_enqueued_at, Job.enqueued_at)
_DELAYS = (Session.retry_at, Owner.retry_at, Label.retry_at, JudgeDay.retry_at)


def bring_to_the_present(now: datetime) -> int:
    """Mend the rows whose times lie further ahead than any that is ever written; return how many there were.

    Without it an hour of the clock is an hour in which nothing is remembered. When a turn was said stays as it is.
    """
    ahead = now + SLACK
    held = ~Lease.name.startswith(PREFIX)  # the others tell who was seen when, some for longer
    count = Lease.delete().where(held, Lease.until > ahead + timedelta(seconds=LEASE)).execute()
    count += sum(_set(column, None, column > ahead) for column in _HINTS)
    count += sum(_set(column, None, column > ahead + LONGEST_DELAY) for column in _DELAYS)
    count += _set(Session.received_at, now, (Session.received_at > ahead) & Session.ended_at.is_null())
    count += _set(Turn.received_at, now, (Turn.received_at > ahead) & (Turn.state == "open"))
    if count:
        log.warning("the clock was set back: %d times that lay ahead are mended", count)
    return int(count)


def _set(column: Any, value: datetime | None, where: Any) -> int:
    return int(column.model.update({column: value}).where(where).execute())
