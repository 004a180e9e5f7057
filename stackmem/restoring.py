"""Take back what ``export`` wrote: sessions, turns and memories keep their names, uids, ids and states."""

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Any, Protocol

from stackmem.clock import read_time
from stackmem.exported import (
    KINDS,
    AliasLine,
    ForgetRequestLine,
    MemoryLine,
    SessionLine,
    TurnLine,
    read_exported,
)
from stackmem.ids import turn_uid
from stackmem.making import add_sources, entity_columns, set_entities, supersede
from stackmem.models import Alias, ForgetRequest, Memory, Owner, Session, Turn
from stackmem.refusing import Refused
from stackmem.settling import forgotten_turns
from stackmem.text import entity_key
from stackmem.turn_rows import insert_turns, turns_by_uid

Place = tuple[str, int]  # session_id and session_seq

# What is stored just as the line says it.
_TURN_COLUMNS = {"user", "reply", "emotion", "action", "settled", "searched", "memory_ids", "degraded", "model"}
_MEMORY_COLUMNS = {"topic", "summary", "memory_type", "status", "superseded_by", "revision", "origin"}


class Counts(Protocol):
    """Where a restore counts."""

    turns: int
    known: int
    memories: int
    session_ids: list[int]
    refused: Refused


class Restore:
    """Collects the lines of an export; ``finish`` writes them in the caller's transaction."""

    def __init__(self, owner: str, zone: tzinfo, now: datetime):
        self._owner, self._zone, self._now = owner, zone, now
        self._lines: dict[str, list[tuple[int, Any]]] = {kind: [] for kind in KINDS}
        self._stored: dict[str, Turn] = {}  # by uid
        self._turns: dict[int, Turn] = {}  # by their number in the file
        self._settled: set[int] = set()  # ids of turns that were settled here before
        self._sessions: dict[Place, Session] = {}
        self._memory_ids: set[str] = set()  # that the file holds

    def take(self, value: dict[str, Any], number: int) -> None:
        """Take one line. Raises InvalidInput with what is wrong with it."""
        kind, line = read_exported(value, self._zone)
        self._lines[kind].append((number, line))

    def finish(self, counts: Counts) -> None:
        """Write everything that is not there yet; what must not come is counted in ``counts.refused``."""
        if not any(self._lines.values()):
            return
        Owner.insert(name=self._owner).on_conflict_ignore().execute()
        lines = list(self._own_turns(counts.refused))
        self._restore_sessions(lines)
        self._restore_turns(lines, counts)
        self._memory_ids = {line.memory_id for _, line in self._lines["memory"]}
        for number, line in self._lines["memory"]:
            self._memory(number, line, counts)
        for number, line in self._lines["alias"]:
            self._alias(number, line, counts.refused)
        for number, line in self._lines["forget_request"]:
            self._request(number, line, counts.refused)

    def _time(self, text: str | None, default: datetime | None = None) -> datetime:
        return read_time(text, self._zone) if text else default or self._now

    def _own_turns(self, refused: Refused) -> Iterator[tuple[TurnLine, str]]:
        """Yield each turn's line and its uid, without those of another owner."""
        uids = [self._uid(line) for _, line in self._lines["turn"]]
        self._stored = turns_by_uid(uids)
        self._settled = {row.id for row in self._stored.values() if row.settled}
        for (number, line), uid in zip(self._lines["turn"], uids, strict=True):
            if uid in self._stored and self._stored[uid].owner != self._owner:
                refused.add("foreign turn", number)
            else:
                yield line, uid

    def _uid(self, line: TurnLine) -> str:
        return line.uid or turn_uid(self._owner, line.session_id, line.session_seq, line.turn_id, line.user)

    def _restore_sessions(self, lines: Sequence[tuple[TurnLine, str]]) -> None:
        """Restore the sessions of the file, without those all of whose turns belong to another owner."""
        given: dict[Place, SessionLine] = {}
        for _, line in self._lines["session"]:
            given.setdefault((line.session_id, line.session_seq), line)
        own: dict[Place, Session | None] = {}
        for turn, uid in lines:
            stored = self._stored.get(uid)
            place = (turn.session_id, turn.session_seq)
            own[place] = own.get(place) or (stored.session if stored is not None else None)
        foreign = {(line.session_id, line.session_seq) for _, line in self._lines["turn"]} - own.keys()
        for place in dict.fromkeys([*given, *own]):
            if place not in foreign:
                line = given.get(place) or SessionLine(session_id=place[0], session_seq=place[1])
                self._sessions[place] = own.get(place) or self._session(line, has_turns=place in own)

    def _session(self, line: SessionLine, *, has_turns: bool) -> Session:
        """Return the session of this name and sequence; where another talk has it, begin the next sequence."""
        name, seq = line.session_id, line.session_seq
        same_name = Session.select().where(Session.owner == self._owner, Session.name == name)
        found = same_name.where(Session.seq == seq).first()
        if found is not None:
            begun_here = found.id in {row.id for row in self._sessions.values()}
            if not begun_here and not (has_turns and Turn.select().where(Turn.session == found).exists()):
                return found  # type: ignore[no-any-return]
            seq = same_name.order_by(Session.seq.desc()).first().seq + 1
        return Session.create(
            owner=self._owner, name=name, seq=seq, named=line.named, device=line.device,
            imported=f"{name}#{seq} export" if line.imported else None, both_speakers=line.both_speakers,
            started_at=self._time(line.started_at), received_at=self._time(line.received_at),
            ended_at=self._time(line.ended_at),
        )  # fmt: skip

    def _restore_turns(self, lines: Sequence[tuple[TurnLine, str]], counts: Counts) -> None:
        """Insert the turns that are not there yet, each at its place, or the next one where that is taken."""
        fresh: dict[str, dict[str, Any]] = {}
        places = {row.id: _places(row) for row in self._sessions.values()}
        for line, uid in lines:
            if uid not in self._stored and uid not in fresh:
                session = self._sessions[line.session_id, line.session_seq]
                fresh[uid] = self._turn(line, uid, session, _free(places[session.id], line.ordinal))
        insert_turns(list(fresh.values()))
        self._stored |= turns_by_uid(list(fresh))
        self._turns = {line.turn_id: self._stored[uid] for line, uid in lines}
        counts.turns += len(fresh)
        counts.session_ids += list(dict.fromkeys(row["session"].id for row in fresh.values()))
        counts.known += len(lines) - len(fresh)

    def _turn(self, line: TurnLine, uid: str, session: Session, ordinal: int) -> dict[str, Any]:
        return {
            "uid": uid, "session": session, "ordinal": ordinal, "owner": self._owner, "at": self._time(line.at),
            "received_at": self._time(line.received_at), "imported": True,
            "state": _state(line),
            **line.model_dump(include=_TURN_COLUMNS),
        }  # fmt: skip

    def _memory(self, number: int, line: MemoryLine, counts: Counts) -> None:
        stored = Memory.get_or_none(Memory.id == line.memory_id)
        sources = [self._turns[n] for n in line.source_turn_ids if n in self._turns]
        if stored is not None and stored.owner != self._owner:
            counts.refused.add("foreign memory", number)
        elif stored.status == "forgotten" if stored is not None else self._was_forgotten(sources):
            counts.refused.add("forgotten memory", number)
        elif stored is None:
            self._create_memory(line, sources)
            counts.memories += 1
        elif stored.status == "active" and line.status == "superseded" and line.superseded_by in self._memory_ids:
            supersede(stored, str(line.superseded_by))  # it was corrected since it was first taken here

    def _was_forgotten(self, sources: Sequence[Turn]) -> bool:
        """Tell whether all that was said in these turns is forgotten here: it is not brought back."""
        return bool(sources) and forgotten_turns(self._settled) >= {turn.id for turn in sources}

    def _create_memory(self, line: MemoryLine, sources: Sequence[Turn]) -> None:
        at = self._time(line.occurred_at)
        Memory.create(
            id=line.memory_id, owner=self._owner, occurred_at=at, occurred_from=self._time(line.occurred_from, at),
            occurred_to=self._time(line.occurred_to, at), said_at=self._time(line.said_at, at), created_at=self._now,
            **entity_columns(line.entities),
            **line.model_dump(include=_MEMORY_COLUMNS),
        )  # fmt: skip
        add_sources(line.memory_id, sources)
        set_entities(line.memory_id, self._owner, line.entities)

    def _alias(self, number: int, line: AliasLine, refused: Refused) -> None:
        (key, name), (other_key, other_name) = sorted((entity_key(name), name) for name in line.names)
        there = Alias.select().where(Alias.owner == self._owner, Alias.key == key, Alias.other_key == other_key)
        turn = self._turns.get(line.turn_id) if line.turn_id is not None else None
        if there.exists():
            return
        if line.turn_id is not None and turn is None:
            refused.add("alias without its turn", number)
        elif turn is not None and turn.id in self._settled:
            refused.add("forgotten alias", number)
        else:
            Alias.create(
                owner=self._owner, key=key, other_key=other_key, name=name, other_name=other_name,
                turn=turn and turn.id, created_at=self._time(line.created_at),
            )  # fmt: skip

    def _request(self, number: int, line: ForgetRequestLine, refused: Refused) -> None:
        turn = self._turns.get(line.turn_id)
        if turn is None:
            refused.add("request without its turn", number)
        elif ForgetRequest.select().where(ForgetRequest.turn == turn.id).exists():
            return
        elif turn.id in self._settled:
            refused.add("forgotten request", number)
        else:
            ForgetRequest.create(
                owner=self._owner, turn=turn.id, what=line.what, is_open=line.is_open,
                created_at=self._time(line.created_at),
            )  # fmt: skip


def _state(line: TurnLine) -> str:
    if line.state in ("kept", "skipped", "failed"):
        return line.state
    return "skipped" if line.settled else "pending"  # what is settled is never looked at


def _places(session: Session) -> set[int]:
    return {row.ordinal for row in Turn.select(Turn.ordinal).where(Turn.session == session)}


def _free(places: set[int], wanted: int | None) -> int:
    """Take and return the wanted place, or the one after the last where it is taken."""
    place = max(places, default=0) + 1 if wanted is None or wanted in places else wanted
    places.add(place)
    return place
