"""The lines of a log: read, split where the talk paused, and paired into exchanges."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from stackmem import sessions
from stackmem.clock import read_time
from stackmem.exceptions import InvalidInput
from stackmem.text import clean

ROLES = ("user", "assistant")


@dataclass(frozen=True)
class Utterance:
    """One line of a log; ``line`` is its number in the file."""

    session: str
    at: datetime | None
    role: str
    text: str
    line: int


@dataclass
class Exchange:
    """What becomes one turn: a user part and the assistant part that follows, either may be empty."""

    ordinal: int
    at: datetime
    utterances: list[Utterance] = field(default_factory=list)

    @property
    def user(self) -> str:
        """The user's utterances, joined by newlines."""
        return self._side("user")

    @property
    def reply(self) -> str:
        """The assistant's utterances, joined by newlines."""
        return self._side("assistant")

    @property
    def said_at(self) -> datetime | None:
        """Its time to the second, as exports keep it; None where its first utterance has none of its own."""
        first = self.utterances[0].at
        return first.replace(microsecond=0) if first else None

    def beginnings(self) -> Iterator["Exchange"]:
        """Yield it as it was while the log was shorter: its first utterance, its first two, … all."""
        for count in range(1, len(self.utterances) + 1):
            yield Exchange(self.ordinal, self.at, self.utterances[:count])

    def _side(self, role: str) -> str:
        return "\n".join(utterance.text for utterance in self.utterances if utterance.role == role)


def read_utterance(value: dict[str, Any], zone: tzinfo, line: int) -> Utterance:
    """Read one line of a log. Raises InvalidInput with what is wrong with it."""
    session, role, text = value.get("session"), value.get("role"), value.get("text")
    if not isinstance(session, str) or not session.strip() or len(session) > sessions.NAME_LIMIT:
        raise InvalidInput(f'"session" must be a name of 1 to {sessions.NAME_LIMIT} characters.')
    if role not in ROLES:
        raise InvalidInput('"role" must be "user" or "assistant".')
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput('"text" must be text that is not empty.')
    at = value.get("at")
    if at is not None and not isinstance(at, str):
        raise InvalidInput('"at" must be a time as text, or null.')
    return Utterance(clean(session), read_time(at, zone) if at is not None else None, role, clean(text), line)


def split_by_gap(talk: Sequence[Utterance]) -> list[list[Utterance]]:
    """Split a session where its times leave a gap of more than the idle limit after the latest so far."""
    parts: list[list[Utterance]] = [[]]
    latest: datetime | None = None
    for utterance in talk:
        if latest and utterance.at and utterance.at - latest > sessions.IDLE_LIMIT:
            parts.append([])
        parts[-1].append(utterance)
        latest = max(latest, utterance.at) if latest and utterance.at else utterance.at or latest
    return parts


def pair_up(utterances: Sequence[Utterance], now: datetime) -> list[Exchange]:
    """Return the exchanges, numbered from 1.

    A time is that of the first utterance; where that is unknown, the nearest one known before or after it.
    """
    nearest = next((utterance.at for utterance in utterances if utterance.at), now)
    exchanges: list[Exchange] = []
    for utterance in utterances:
        nearest = utterance.at or nearest
        before = exchanges[-1].utterances[-1].role if exchanges else ""
        if not exchanges or (utterance.role == "user" and before == "assistant"):
            exchanges.append(Exchange(len(exchanges) + 1, nearest))
        exchanges[-1].utterances.append(utterance)
    return exchanges
