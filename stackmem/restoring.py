"""Take back what ``export`` wrote: sessions, turns and memories keep their names, uids and ids."""

from datetime import datetime, tzinfo
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stackmem.clock import read_time
from stackmem.database import transaction
from stackmem.exceptions import InvalidInput
from stackmem.ids import turn_uid
from stackmem.making import add_sources, entity_columns, set_entities
from stackmem.models import Memory, Owner, Session, Turn
from stackmem.sessions import next_ordinal
from stackmem.text import clean, clean_json

HIGHEST = 2**31 - 1  # of a number that every database takes
Count = Annotated[int, Field(ge=0, le=HIGHEST)]


class Counts(Protocol):
    """Where a restore counts."""

    turns: int
    known: int
    memories: int
    session_ids: list[int]


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")


class SessionLine(_Line):
    """A line of kind session."""

    session_id: str = Field(min_length=1, max_length=200)
    session_seq: int = Field(1, ge=1, le=HIGHEST)
    device: str | None = None
    started_at: str | None = None
    received_at: str | None = None
    ended_at: str | None = None
    both_speakers: bool = False


class TurnLine(_Line):
    """A line of kind turn."""

    turn_id: int
    uid: str | None = None
    session_id: str = Field(min_length=1, max_length=200)
    session_seq: int = Field(1, ge=1, le=HIGHEST)
    ordinal: Count | None = None
    at: str
    user: str
    reply: str
    emotion: str = "neutral"
    action: str = "none"
    state: str = "pending"


class MemoryLine(_Line):
    """A line of kind memory."""

    memory_id: str = Field(pattern=r"^mem_[0-9A-HJKMNP-TV-Z]{26}$")
    topic: str
    summary: str
    entities: list[str] = []
    memory_type: str = Field("episode", pattern="^(episode|decision|preference)$")
    occurred_at: str
    occurred_from: str | None = None
    occurred_to: str | None = None
    said_at: str | None = None
    source_turn_ids: list[int] = []
    status: str = Field("active", pattern="^(active|superseded)$")
    superseded_by: str | None = None
    revision: Count = 0
    origin: str = "imported"


TIMES = (
    "at", "started_at", "received_at", "ended_at", "occurred_at", "occurred_from", "occurred_to", "said_at",
)  # fmt: skip


class Restore:
    """Collects the lines of an export; ``finish`` writes them in one transaction."""

    def __init__(self, owner: str, zone: tzinfo, now: datetime):
        self._owner, self._zone, self._now = owner, zone, now
        self._lines: dict[str, list[Any]] = {"session": [], "turn": [], "memory": []}
        self._turns: dict[int, Turn] = {}

    def take(self, value: dict[str, Any]) -> None:
        """Take one line. Raises InvalidInput with what is wrong with it."""
        kinds: dict[str, type[_Line]] = {"session": SessionLine, "turn": TurnLine, "memory": MemoryLine}
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in kinds:
            raise InvalidInput('"kind" must be session, turn or memory.')
        try:
            line: Any = kinds[kind].model_validate(clean_json(value))
            for name in TIMES:
                if getattr(line, name, None):
                    read_time(getattr(line, name), self._zone)
        except ValidationError as exc:
            error = exc.errors()[0]
            raise InvalidInput(f'"{".".join(map(str, error["loc"]))}": {error["msg"]}.') from exc
        self._lines[kind].append(line)

    def finish(self, counts: Counts) -> None:
        """Write everything that is not there yet."""
        if not any(self._lines.values()):
            return
        with transaction():
            Owner.insert(name=self._owner).on_conflict_ignore().execute()
            for line in self._lines["session"]:
                self._session(line.session_id, line.session_seq, counts, line)
            for line in self._lines["turn"]:
                self._turn(line, counts)
            for line in self._lines["memory"]:
                self._memory(line, counts)

    def _time(self, text: str | None) -> datetime:
        return read_time(text, self._zone) if text else self._now

    def _session(self, name: str, seq: int, counts: Counts, line: SessionLine | None) -> Session:
        found = Session.get_or_none(Session.owner == self._owner, Session.name == name, Session.seq == seq)
        session = found or Session.create(
            owner=self._owner, name=clean(name), seq=seq, named=True, device=line.device if line else None,
            imported=f"export {name}#{seq}", both_speakers=line.both_speakers if line else False,
            started_at=self._time(line.started_at if line else None),
            received_at=self._time(line.received_at if line else None),
            ended_at=self._time(line.ended_at if line else None),
        )  # fmt: skip
        if session.id not in counts.session_ids:
            counts.session_ids.append(session.id)
        return session

    def _turn(self, line: TurnLine, counts: Counts) -> None:
        session = self._session(line.session_id, line.session_seq, counts, None)
        uid = line.uid or turn_uid(self._owner, line.session_id, line.session_seq, line.turn_id, line.user)
        turn = Turn.get_or_none(Turn.uid == uid)
        if turn is not None:
            counts.known += 1
        else:
            state = line.state if line.state in ("kept", "skipped", "failed") else "pending"
            turn = Turn.create(
                uid=uid, session=session, ordinal=self._free_ordinal(session, line.ordinal), owner=self._owner,
                at=self._time(line.at), received_at=self._now, user=line.user, reply=line.reply,
                emotion=line.emotion, action=line.action, state=state, imported=True,
            )  # fmt: skip
            counts.turns += 1
        if turn.owner == self._owner:
            self._turns[line.turn_id] = turn

    @staticmethod
    def _free_ordinal(session: Session, wanted: int | None) -> int:
        taken = wanted is None or Turn.select().where(Turn.session == session, Turn.ordinal == wanted).exists()
        return next_ordinal(session) if taken or wanted is None else wanted

    def _memory(self, line: MemoryLine, counts: Counts) -> None:
        if Memory.select().where(Memory.id == line.memory_id).exists():
            return
        at = self._time(line.occurred_at)
        Memory.create(
            id=line.memory_id, owner=self._owner, topic=line.topic, summary=line.summary,
            memory_type=line.memory_type, occurred_at=at,
            occurred_from=self._time(line.occurred_from) if line.occurred_from else at,
            occurred_to=self._time(line.occurred_to) if line.occurred_to else at,
            said_at=self._time(line.said_at) if line.said_at else at,
            status=line.status, superseded_by=line.superseded_by, revision=line.revision, origin="imported",
            created_at=self._now, **entity_columns(line.entities),
        )  # fmt: skip
        add_sources(line.memory_id, [self._turns[n] for n in line.source_turn_ids if n in self._turns])
        set_entities(line.memory_id, self._owner, line.entities)
        counts.memories += 1
