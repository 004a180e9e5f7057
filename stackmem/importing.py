"""Read JSON lines of utterances, or of an export, into sessions and turns. The same file twice adds nothing."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from stackmem import sessions
from stackmem.clock import read_time
from stackmem.database import transaction
from stackmem.exceptions import InvalidInput
from stackmem.ids import turn_uid
from stackmem.models import Owner, Session, Turn
from stackmem.restoring import Restore
from stackmem.text import clean

ROLES = ("user", "assistant")


@dataclass(frozen=True)
class Utterance:
    """One line of a log."""

    session: str
    at: datetime | None
    role: str
    text: str


@dataclass
class Imported:
    """What an import did: turns that are new, or were there already, lines skipped, sessions touched."""

    turns: int = 0
    known: int = 0
    memories: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)
    session_ids: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Importer:
    """Imports lines for one owner."""

    owner: str
    zone: tzinfo
    now: datetime
    both_speakers: bool = False

    def run(self, lines: Iterable[bytes]) -> Imported:
        """Import every valid line; the others are named in ``faults`` with their number."""
        result = Imported()
        talks: dict[str, list[Utterance]] = {}
        restore = Restore(self.owner, self.zone, self.now)
        for number, line in enumerate(lines, 1):
            try:
                value = _read_line(line, first=number == 1)
                if value is None:
                    continue
                if "kind" in value:
                    restore.take(value)
                else:
                    utterance = read_utterance(value, self.zone)
                    talks.setdefault(utterance.session, []).append(utterance)
            except InvalidInput as exc:
                result.faults.append({"line": number, "reason": str(exc)})
            except RecursionError:
                result.faults.append({"line": number, "reason": "The line is nested too deeply."})
        for name, talk in talks.items():
            for part, utterances in enumerate(split_by_gap(talk), 1):
                self._insert(name, part, utterances, result)
        restore.finish(result)
        return result

    def _insert(self, name: str, part: int, utterances: Sequence[Utterance], result: Imported) -> None:
        """Insert the turns of one imported session that are not there yet, in one transaction."""
        turns = list(pair_up(utterances, self.now))
        uids = [turn_uid(self.owner, name, f"import {part}", n, f"{t['user']}\0{t['reply']}") for n, t in turns]
        with transaction():
            known = {row.uid for row in Turn.select(Turn.uid).where(Turn.uid.in_(uids))}
            fresh = [(uid, turn) for uid, (_, turn) in zip(uids, turns, strict=True) if uid not in known]
            result.known += len(turns) - len(fresh)
            if not fresh:
                return
            session = self._session(name, part, turns[0][1]["at"])
            ordinal = sessions.next_ordinal(session)
            for step, (uid, turn) in enumerate(fresh):
                Turn.create(
                    uid=uid, session=session, ordinal=ordinal + step, owner=self.owner, received_at=self.now,
                    state="pending", imported=True, **turn,
                )  # fmt: skip
            result.turns += len(fresh)
            result.session_ids.append(session.id)

    def _session(self, name: str, part: int, started_at: datetime) -> Session:
        Owner.insert(name=self.owner).on_conflict_ignore().execute()
        key = f"{name}#{part}"
        session = Session.get_or_none(Session.owner == self.owner, Session.imported == key)
        return session or sessions.begin(
            self.owner, name, now=self.now, named=True, imported=key, both_speakers=self.both_speakers,
            started_at=started_at, ended_at=self.now,
        )  # fmt: skip


def _read_line(line: bytes, *, first: bool) -> dict[str, Any] | None:
    try:
        text = line.decode("utf-8-sig" if first else "utf-8").strip()
        value = json.loads(text) if text else None
    except UnicodeDecodeError as exc:
        raise InvalidInput("The line is not valid UTF-8.") from exc
    except ValueError as exc:
        raise InvalidInput("The line is not valid JSON.") from exc
    if value is not None and not isinstance(value, dict):
        raise InvalidInput("The line is not a JSON object.")
    return value


def read_utterance(value: dict[str, Any], zone: tzinfo) -> Utterance:
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
    return Utterance(clean(session), read_time(at, zone) if at is not None else None, role, clean(text))


def split_by_gap(talk: Sequence[Utterance]) -> list[list[Utterance]]:
    """Split a session where its own times leave a gap of more than the idle limit."""
    parts: list[list[Utterance]] = [[]]
    last: datetime | None = None
    for utterance in talk:
        if last and utterance.at and utterance.at - last > sessions.IDLE_LIMIT:
            parts.append([])
        parts[-1].append(utterance)
        last = utterance.at or last
    return parts


def pair_up(utterances: Sequence[Utterance], now: datetime) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (ordinal, turn): a user part and the assistant part that follows, each joined by newlines.

    A turn's time is that of its first utterance; where that is unknown, the nearest one known before or after it.
    """
    fallback = next((utterance.at for utterance in utterances if utterance.at), now)
    turns: list[dict[str, Any]] = []
    for utterance in utterances:
        fallback = utterance.at or fallback
        side = "user" if utterance.role == "user" else "reply"
        if not turns or (side == "user" and turns[-1]["reply"]):
            turns.append({"user": "", "reply": "", "at": fallback})
        turns[-1][side] += ("\n" if turns[-1][side] else "") + utterance.text
    yield from enumerate(turns, 1)
