"""Sessions: which one a turn belongs to, and when one ends."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from peewee import fn

from stackmem.database import lock_row
from stackmem.exceptions import InvalidInput, NotFound
from stackmem.ids import session_name
from stackmem.models import Owner, Session, Turn
from stackmem.prepared import Prepared, slots

IDLE_LIMIT = timedelta(minutes=10)  # without a turn received, a session has ended
NAME_LIMIT = 200  # characters


def _open_sessions(owner: Any) -> Any:
    # Only open ones: an export taken back meanwhile may hold later sequences, and those have ended.
    return Session.select().where(Session.owner == owner, Session.imported.is_null(), Session.ended_at.is_null())


_NAMED = Prepared(
    lambda owner, name: _open_sessions(owner).where(Session.name == name).order_by(Session.seq.desc()).limit(1)
)
_OF_DEVICE = Prepared(
    lambda owner, device: (
        _open_sessions(owner).where(~Session.named, Session.device == device).order_by(Session.id.desc()).limit(1)
    )
)
_OF_NO_DEVICE = Prepared(
    lambda owner: (
        _open_sessions(owner).where(~Session.named, Session.device.is_null()).order_by(Session.id.desc()).limit(1)
    )
)
_RECEIVED = Prepared(
    lambda session, received_at: Session.update(slots(Session.received_at)).where(Session.id == session)
)
_LAST_ORDINAL = Prepared(lambda session: Turn.select(fn.MAX(Turn.ordinal).alias("last")).where(Turn.session == session))


def session_for_turn(owner: str, name: str | None, device: str | None, now: datetime) -> Session:
    """Return the open session a turn belongs to, beginning one where needed; call it inside a transaction.

    A new one makes a look at the owner's other sessions due, and ends none of them.
    """
    latest = _latest_open(owner, name, device)
    if latest is None or _is_idle(latest, now):
        # Of an owner's turns one begins a session at a time: the others find it here.
        Owner.insert(name=owner).on_conflict_ignore().execute()
        lock_row(Owner(name=owner))
        latest = _latest_open(owner, name, device)
    if latest is not None:
        if not _is_idle(latest, now):
            lock_row(latest)  # its turns get their ordinals one after the other
            return latest
        end(latest, now)
    Session.update(look_due=True).where(Session.owner == owner, Session.ended_at.is_null()).execute()
    return begin(owner, name or session_name(), now=now, named=name is not None, device=device)


def _is_idle(session: Session, now: datetime) -> bool:
    return bool(now - session.received_at >= IDLE_LIMIT)


def _latest_open(owner: str, name: str | None, device: str | None) -> Session | None:
    if name is not None:
        row = _NAMED.first(owner=owner, name=name)
    elif device is not None:
        row = _OF_DEVICE.first(owner=owner, device=device)
    else:
        row = _OF_NO_DEVICE.first(owner=owner)
    return None if row is None else Session(**row._asdict())


def check_name(name: str) -> None:
    """Raise InvalidInput where it cannot be a session's name."""
    if len(name) > NAME_LIMIT or not name.strip():
        raise InvalidInput(f"A session id has 1 to {NAME_LIMIT} characters.")


def begin(owner: str, name: str, *, now: datetime, named: bool, device: str | None = None, **more: object) -> Session:
    """Insert the next sequence of ``name``."""
    check_name(name)
    newest = (
        Session.select(Session.seq).where(Session.owner == owner, Session.name == name).order_by(Session.seq.desc())
    )
    row = newest.first()
    return Session.create(
        owner=owner,
        name=name,
        seq=(row.seq if row else 0) + 1,
        named=named,
        device=device,
        **{"started_at": now, "received_at": now, **more},
    )


def end(session: Session, now: datetime) -> None:
    """Mark a session as ended."""
    Session.update(ended_at=now).where(Session.id == session.id, Session.ended_at.is_null()).execute()


def close(owner: str, name: str, now: datetime) -> Sequence[int]:
    """End the open sequence of a session; return the ids ended (none when it had ended). Raises NotFound."""
    rows = list(Session.select().where(Session.owner == owner, Session.name == name))
    if not rows:
        raise NotFound(f"There is no session {name[:40]!r}.")
    open_rows = [row for row in rows if row.ended_at is None]
    for row in open_rows:
        end(row, now)
    return [row.id for row in open_rows]


def end_idle(now: datetime) -> int:
    """End every session that was silent for the idle limit; return how many."""
    silent = (Session.ended_at.is_null()) & (Session.received_at < now - IDLE_LIMIT)
    return int(Session.update(ended_at=now).where(silent).execute())


def next_ordinal(session: Session) -> int:
    """Return the ordinal of the session's next turn, counted from 1."""
    return (_LAST_ORDINAL.first(session=session.id).last or 0) + 1


def received(session: Session, now: datetime) -> None:
    """Note that something was said in a session: its idle limit counts from now."""
    _RECEIVED.update(session=session.id, received_at=now)
