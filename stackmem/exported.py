"""The lines of an export as ``import`` reads them; a person may write some by hand, so most fields may be missing."""

from datetime import tzinfo
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stackmem.answers import ENTITIES_LIMIT, ENTITY_LIMIT, TEXT_LIMIT, TOPIC_LIMIT, TYPES
from stackmem.clock import read_time
from stackmem.exceptions import InvalidInput
from stackmem.text import clean_json, entity_key

HIGHEST = 10**9  # of a number, so that every database takes it and still counts on
Count = Annotated[int, Field(ge=0, le=HIGHEST)]
Sequence = Annotated[int, Field(ge=1, le=HIGHEST)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]

TIMES = (
    "at", "started_at", "received_at", "ended_at", "occurred_at", "occurred_from", "occurred_to", "said_at",
    "created_at",
)  # fmt: skip


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")


class SessionLine(_Line):
    """A line of kind session."""

    session_id: Name
    session_seq: Sequence = 1
    named: bool = True
    device: str | None = None
    started_at: str | None = None
    received_at: str | None = None
    ended_at: str | None = None
    both_speakers: bool = False
    imported: bool = True


class TurnLine(_Line):
    """A line of kind turn."""

    turn_id: int
    uid: str | None = Field(None, max_length=200)
    session_id: Name
    session_seq: Sequence = 1
    ordinal: Count | None = None
    at: str
    received_at: str | None = None
    user: str
    reply: str
    emotion: str = "neutral"
    action: str = "none"
    state: str = "pending"
    settled: bool = False
    searched: bool = False
    memory_ids: list[str] = []
    degraded: bool = False
    model: str | None = None


class MemoryLine(_Line):
    """A line of kind memory."""

    # 26 digits of Crockford's base 32 hold 130 bits, an id 128: the first digit ends at 7.
    memory_id: str = Field(pattern=r"^mem_[0-7][0-9A-HJKMNP-TV-Z]{25}$")
    topic: str = Field(max_length=TOPIC_LIMIT)
    summary: str = Field(min_length=1, max_length=TEXT_LIMIT)
    entities: list[Annotated[str, Field(max_length=ENTITY_LIMIT)]] = Field([], max_length=ENTITIES_LIMIT * 4)
    memory_type: str = Field("episode", pattern=f"^({'|'.join(TYPES)})$")
    occurred_at: str
    occurred_from: str | None = None
    occurred_to: str | None = None
    said_at: str | None = None
    source_turn_ids: list[int] = []
    status: str = Field("active", pattern="^(active|superseded)$")
    superseded_by: str | None = None
    revision: Count = 0
    origin: str = Field("imported", pattern="^(made|edited|merged|imported|kept)$")


class AliasLine(_Line):
    """A line of kind alias: two names of one thing."""

    names: Annotated[list[Annotated[str, Field(max_length=ENTITY_LIMIT)]], Field(min_length=2, max_length=2)]
    turn_id: int | None = None
    created_at: str | None = None

    @model_validator(mode="after")
    def _two_things(self) -> "AliasLine":
        keys = {entity_key(name) for name in self.names}
        if "" in keys or len(keys) < 2:
            raise ValueError('"names" must be two names that differ by more than their spelling')
        return self


class ForgetRequestLine(_Line):
    """A line of kind forget_request: the user asked the robot to forget something."""

    turn_id: int
    what: str = ""
    created_at: str | None = None
    is_open: bool = True


KINDS: dict[str, type[_Line]] = {
    "session": SessionLine,
    "turn": TurnLine,
    "memory": MemoryLine,
    "alias": AliasLine,
    "forget_request": ForgetRequestLine,
}


def read_exported(value: dict[str, Any], zone: tzinfo) -> tuple[str, Any]:
    """Return the kind and the line. Raises InvalidInput with what is wrong with it."""
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput(f'"kind" must be {", ".join(list(KINDS)[:-1])} or {list(KINDS)[-1]}.')
    try:
        line = KINDS[kind].model_validate(clean_json(value))
    except ValidationError as exc:
        raise InvalidInput(_reason(exc)) from exc
    for name in TIMES:
        if getattr(line, name, None):
            read_time(getattr(line, name), zone)
    return kind, line


def _reason(fault: ValidationError) -> str:
    error = fault.errors()[0]
    message = error["msg"].removeprefix("Value error, ")
    return f'"{".".join(map(str, error["loc"]))}": {message}.' if error["loc"] else f"{message}."
