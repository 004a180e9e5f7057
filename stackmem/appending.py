"""What of a log is stored already. A log that has grown adds what is new, and lengthens the turn it broke off in."""

from collections.abc import Sequence
from datetime import datetime

from stackmem.ids import turn_uid
from stackmem.making import changed
from stackmem.models import Memory, MemorySource, Session, Turn
from stackmem.sessions import IDLE_LIMIT
from stackmem.turn_rows import turns_by_uid
from stackmem.utterances import Exchange

Pair = tuple[Exchange, Turn | None]


def session_key(name: str, part: int) -> str:
    """Return the key of an imported session: its name in the log, and the how-manyth part of it."""
    return f"{name}#{part}"


class StoredLog:
    """The imported turns of one owner under one name of a log, as they were before this import."""

    def __init__(self, owner: str, name: str):
        self._owner, self.name = owner, name
        self._at: dict[datetime, list[Turn]] = {}  # by the second
        self._place: dict[tuple[str, int], list[Turn]] = {}  # by session key and ordinal
        self._taken: set[int] = set()
        of_name = (Session.owner == owner) & (Session.name == name) & Session.imported.is_null(False)
        for row in Turn.select(Turn, Session).join(Session).where(of_name).order_by(Turn.id):
            self._at.setdefault(row.at.replace(microsecond=0), []).append(row)
            self._place.setdefault(((row.session.imported or "").removesuffix(" export"), row.ordinal), []).append(row)

    def pairs(self, part: int, exchanges: Sequence[Exchange]) -> tuple[list[Pair], list[str]]:
        """Return each exchange of a part with its row, None where it is new, and the uid it has or gets.

        The row may be another owner's: then the exchange belongs to them.
        """
        uids = [self._uid(part, exchange) for exchange in exchanges]
        stored = turns_by_uid(uids)
        rows = [self._same(stored.get(uid), exchange) for uid, exchange in zip(uids, exchanges, strict=True)]
        self._taken |= {row.id for row in rows if row is not None}
        for place, exchange in enumerate(exchanges):
            row = rows[place] or self._earlier(part, exchange, last=place == len(exchanges) - 1)
            if row is None and uids[place] in stored:  # the same words at another time: another day's file
                uids[place] = self._uid(part, exchange, exchange.said_at)
                row = turns_by_uid([uids[place]]).get(uids[place])
            if row is not None:
                self._taken.add(row.id)
            rows[place] = row
        return list(zip(exchanges, rows, strict=True)), uids

    def _uid(self, part: int, exchange: Exchange, at: datetime | None = None) -> str:
        seq = f"import {part}" + (f" {at.isoformat()}" if at else "")
        return turn_uid(self._owner, self.name, seq, exchange.ordinal, f"{exchange.user}\0{exchange.reply}")

    @staticmethod
    def _same(row: Turn | None, exchange: Exchange) -> Turn | None:
        """Return the row unless it has the exchange's words, but was said at another time."""
        if row is None or exchange.said_at is None or row.at.replace(microsecond=0) == exchange.said_at:
            return row
        return None

    def _earlier(self, part: int, exchange: Exchange, *, last: bool) -> Turn | None:
        """Return the row of the same utterances where the log was shorter or longer then, or is cut otherwise."""
        at = exchange.said_at
        rows = self._at.get(at, []) if at else self._place.get((session_key(self.name, part), exchange.ordinal), [])
        for row in rows:
            if row.id not in self._taken and self._continues(row, part, exchange, last):
                return row
        return None

    def _continues(self, row: Turn, part: int, exchange: Exchange, last: bool) -> bool:
        words = (exchange.user, exchange.reply)
        if row.settled and not row.user and not row.reply:  # its words are gone, its time and uid are not
            return exchange.said_at is not None or row.uid in {self._uid(part, one) for one in exchange.beginnings()}
        return begins((row.user, row.reply), words) or (last and begins(words, (row.user, row.reply)))


def begins(short: tuple[str, str], long: tuple[str, str]) -> bool:
    """Tell whether ``long``, what the user said and the reply, is ``short`` with more lines after it, or the same."""
    if short[1]:
        return short[0] == long[0] and _lines_begin(short[1], long[1])
    return _lines_begin(short[0], long[0])


def _lines_begin(short: str, long: str) -> bool:
    return short == long or not short or long.startswith(short + "\n")


def grow(row: Turn, exchange: Exchange) -> bool:
    """Give a row the lines its log has gained; tell whether there were any.

    It is looked at again, unless memories were made of it: those are indexed with the reply it gained, and what the
    user said besides is a turn of its own (``rest``).
    """
    stored, words = (row.user, row.reply), (exchange.user, exchange.reply)
    is_kept = row.state == "kept"
    if row.settled or stored == words or not begins(stored, words) or (is_kept and row.user != exchange.user):
        return False
    state = "kept" if is_kept else "pending"
    Turn.update(user=words[0], reply=words[1], state=state).where(Turn.id == row.id).execute()
    of_row = MemorySource.select(MemorySource.memory).where(MemorySource.turn == row.id)
    Memory.update(**changed()).where(Memory.id.in_(of_row), Memory.status != "forgotten").execute()
    return True


def rest(row: Turn, exchange: Exchange) -> tuple[str, Exchange] | None:
    """Return what a log added to a turn that is a memory already, with its uid; None where that is nothing new."""
    if row.state != "kept" or not row.user or row.user == exchange.user:
        return None
    said = exchange.utterances
    for count in range(1, len(said)):
        begun = Exchange(exchange.ordinal, exchange.at, said[:count])
        if (begun.user, begun.reply) == (row.user, row.reply):
            added = Exchange(exchange.ordinal, said[count].at or exchange.at, said[count:])
            uid = turn_uid(row.owner, row.uid, "rest", exchange.ordinal, f"{added.user}\0{added.reply}")
            return None if turns_by_uid([uid]) else (uid, added)
    return None


def session_of_part(
    owner: str, name: str, part: int, began: datetime | None, rows: Sequence[Turn]
) -> tuple[Session | None, str]:
    """Return the session that takes a part's new turns, None where one must begin, and its key.

    That is the session of the part's stored turns. A file that has none of them continues the session of the same
    part, unless its own time says that the talk paused for longer than the idle limit between the two.
    """
    key = session_key(name, part)
    if rows:
        return rows[-1].session, key
    found = Session.get_or_none(Session.owner == owner, Session.imported == key)
    if found is None or began is None or _is_near(found, began):
        return found, key
    key = f"{key} {began.isoformat()}"
    return Session.get_or_none(Session.owner == owner, Session.imported == key), key


def _is_near(session: Session, began: datetime) -> bool:
    times = [row.at for row in Turn.select(Turn.at).where(Turn.session == session)]
    return not times or min(times) - IDLE_LIMIT <= began <= max(times) + IDLE_LIMIT
