"""What the background model answers, validated: whatever it sends, only this gets further."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from stackmem.exceptions import BadAnswer
from stackmem.reading import read_json
from stackmem.text import clean

TYPES = ("episode", "decision", "preference")  # of memories
SEGMENTS_LIMIT = 60  # of one look; of what comes after only what names a turn that none before names
TEXT_LIMIT = 2000  # characters of a summary
TOPIC_LIMIT = 200
ENTITIES_LIMIT = 12
ENTITY_LIMIT = 80  # characters of a name


def _text(value: Any, limit: int) -> str:
    return clean(value).strip()[:limit] if isinstance(value, str) else ""


class Segment(BaseModel):
    """One topic of a look: which turns (numbers within the look), and what is worth keeping of it."""

    model_config = ConfigDict(extra="ignore")

    turn_ids: list[int] = Field(default_factory=list)
    keep: bool = False
    topic: str = ""
    summary: str = ""
    entities: list[str] = Field(default_factory=list)
    memory_type: Literal["episode", "decision", "preference"] = "episode"
    occurred_at: str | None = None
    occurred_from: str | None = None
    occurred_to: str | None = None
    forget: str = ""  # what the user asked the robot to forget
    aliases: list[tuple[str, str]] = Field(default_factory=list)  # two names of one thing, as the talk states it

    @field_validator("turn_ids", mode="before")
    @classmethod
    def _whole_numbers(cls, value: Any) -> list[int]:
        items = value if isinstance(value, list) else [value]
        return list(dict.fromkeys(int(item) for item in items if _is_whole(item)))

    @field_validator("keep", mode="before")
    @classmethod
    def _yes(cls, value: Any) -> bool:
        return value is True or str(value).strip().lower() in ("true", "yes", "1")

    @field_validator("topic", "forget", mode="before")
    @classmethod
    def _short(cls, value: Any) -> str:
        return _text(value, TOPIC_LIMIT)

    @field_validator("summary", mode="before")
    @classmethod
    def _cut(cls, value: Any) -> str:
        return _text(value, TEXT_LIMIT)

    @field_validator("entities", mode="before")
    @classmethod
    def _names(cls, value: Any) -> list[str]:
        items = value if isinstance(value, list) else [value]
        names = [_text(item, ENTITY_LIMIT) for item in items]
        return list(dict.fromkeys(name for name in names if name))[:ENTITIES_LIMIT]

    @field_validator("memory_type", mode="before")
    @classmethod
    def _known_type(cls, value: Any) -> str:
        return value if value in TYPES else "episode"

    @field_validator("aliases", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> list[tuple[str, str]]:
        pairs = [item for item in value if isinstance(item, list) and len(item) == 2] if isinstance(value, list) else []
        named = [(_text(one, ENTITY_LIMIT), _text(other, ENTITY_LIMIT)) for one, other in pairs]
        return [(one, other) for one, other in named if one and other][:ENTITIES_LIMIT]

    @field_validator("occurred_at", "occurred_from", "occurred_to", mode="before")
    @classmethod
    def _text_or_none(cls, value: Any) -> str | None:
        return _text(value, 40) or None


class Decision(BaseModel):
    """What one new memory is to a known one, by the labels of the request."""

    model_config = ConfigDict(extra="ignore")

    id: str
    decision: Literal["new", "supersedes", "repeats"]
    known: str | None = None
    keep: str = ""  # what only the superseded one holds and is still true

    @field_validator("keep", mode="before")
    @classmethod
    def _cut(cls, value: Any) -> str:
        return _text(value, TEXT_LIMIT // 2)


def _is_whole(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) < 1_000_000
    return isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 8


def read_segments(content: str, turn_count: int) -> list[Segment]:
    """Read the answer of a look at ``turn_count`` turns, numbered from 1; numbers out of range are dropped.

    An empty list is an answer: nothing to keep. Raises BadAnswer with the fault, for the model to mend.
    """
    items = _items(content, "segments")
    segments: list[Segment] = []
    named: set[int] = set()
    for item in items:
        try:
            segment = Segment.model_validate(item)
        except ValidationError as exc:
            raise BadAnswer(f"A segment is not valid: {exc.errors()[0]['msg']}.") from exc
        segment.turn_ids = sorted(number for number in segment.turn_ids if 1 <= number <= turn_count)
        if segment.keep and not segment.summary:
            raise BadAnswer("A segment with keep: true has no summary.")
        if segment.turn_ids and (len(segments) < SEGMENTS_LIMIT or not named.issuperset(segment.turn_ids)):
            segments.append(segment)
            named.update(segment.turn_ids)
    if items and not segments:
        raise BadAnswer("No segment names a turn_id of the conversation.")
    return segments


def read_decisions(content: str) -> list[Decision]:
    """Read the answer of a comparison. Raises BadAnswer with the fault."""
    try:
        return [Decision.model_validate(item) for item in _items(content, "decisions")]
    except ValidationError as exc:
        raise BadAnswer(f"A decision is not valid: {exc.errors()[0]['msg']}.") from exc


def _items(content: str, name: str) -> list[Any]:
    value = read_json(content)
    if isinstance(value, dict) and name not in value and "turn_ids" in value:
        value = [value]  # a single segment without its list
    items = value.get(name) if isinstance(value, dict) else value
    if not isinstance(items, list):
        raise BadAnswer(f'The answer is not a JSON object with a list "{name}".')
    return [item for item in items if isinstance(item, dict)] if items else []
