"""The rows of one memory: made from a segment, changed by what people and comparisons decide."""

import re
from calendar import monthrange
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from typing import Any

from stackmem.answers import ENTITIES_LIMIT, TEXT_LIMIT, Segment
from stackmem.clock import read_time
from stackmem.exceptions import InvalidInput
from stackmem.ids import memory_id
from stackmem.models import Memory, MemoryEntity, MemorySource, Turn, Window
from stackmem.naming import entity_rows
from stackmem.sources import source_turns
from stackmem.text import entity_key, fold

_JAPANESE_DATE = re.compile(r"\A([0-9]{4})年(?:([0-9]{1,2})月(?:([0-9]{1,2})日)?)?\Z")
_MONTH = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?")


def make_memory(
    segment: Segment, turns: Sequence[Turn], window: Window, now: datetime, zone: tzinfo, *, ordinal: int = 0
) -> int:
    """Insert the memory of a kept segment, its sources and entities; return 1, or 0 when it is there already.

    ``ordinal`` counts the memories that one look makes of the same turns. What is there already may be forgotten.
    """
    turns = sorted(turns, key=lambda turn: turn.id)
    uids = [turn.uid for turn in turns]
    identity = memory_id(turns[0].at, window.owner, uids, 0, ordinal)
    while (taken := Memory.get_or_none(Memory.id == identity)) is not None:
        if taken.owner == window.owner:
            return 0
        ordinal += 1000  # an import under another owner has this id: it must not keep ours from being made
        identity = memory_id(turns[0].at, window.owner, uids, 0, ordinal)
    Memory.create(
        id=identity,
        owner=window.owner,
        topic=segment.topic or segment.summary[:40],
        summary=segment.summary,
        memory_type=segment.memory_type,
        said_at=max(turn.at for turn in turns),
        window=window,
        created_at=now,
        **entity_columns(segment.entities),
        **occurred(segment, turns[0].at, zone),
    )
    add_sources(identity, turns)
    set_entities(identity, window.owner, segment.entities)
    return 1


def entity_columns(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the two columns: the names as said, one a key, and their keys."""
    by_key = {entity_key(name): name for name in reversed(names) if entity_key(name)}
    return {"entities": list(by_key.values())[::-1], "entity_keys": list(by_key)[::-1]}


def set_entities(identity: str, owner: str, names: Sequence[str]) -> None:
    """Replace the keys under which a memory is found, and count how its source turns (there already) spell them."""
    MemoryEntity.delete().where(MemoryEntity.memory == identity).execute()
    for row in entity_rows(owner, names, source_turns([identity])[identity]):
        MemoryEntity.create(memory=identity, **row)


def add_sources(identity: str, turns: Sequence[Turn]) -> None:
    """Add source turns; those it has already stay once."""
    for turn in turns:
        MemorySource.insert(memory=identity, turn=turn.id).on_conflict_ignore().execute()


def occurred(segment: Segment, said: datetime, zone: tzinfo) -> dict[str, datetime]:
    """Return when it happened, if the talk said so, else when it was said; a day or a span as from and to."""
    at = _day_or_moment(segment.occurred_at, zone)
    start = _day_or_moment(segment.occurred_from, zone) or at
    end = _day_or_moment(segment.occurred_to, zone) or at or start
    if start is None or end is None:
        start = end = (said, said)
    low, high = min(start[0], end[0]), max(start[1], end[1])
    return {"occurred_at": at[0] if at else low, "occurred_from": low, "occurred_to": high}


def _day_or_moment(text: str | None, zone: tzinfo) -> tuple[datetime, datetime] | None:
    """Return the first and last moment of what a model wrote (a year and a month are spans), None where it is no time.

    A time without a zone, and a bare day, are of the zone the talk was held in.
    """
    if not text:
        return None
    written = fold(text).upper()  # folding alone makes the Z of UTC a z, which is no ISO 8601
    day = _JAPANESE_DATE.sub(lambda found: "-".join(part.zfill(2) for part in found.groups() if part), written)
    try:
        if month := _MONTH.fullmatch(day):
            year, first, last = int(month[1]), int(month[2] or 1), int(month[2] or 12)
            end = monthrange(year, last)[1]
            return (
                read_time(f"{year:04}-{first:02}-01", zone),
                read_time(f"{year:04}-{last:02}-{end}", zone, end_of_day=True),
            )
        return read_time(day, zone), read_time(day, zone, end_of_day=True)
    except (InvalidInput, ValueError):  # ValueError: the 13th month
        return None


def changed(**more: Any) -> dict[str, Any]:
    """Return the columns that every change of a memory sets besides its own, so that the index follows."""
    return {"version": Memory.version + 1, "outdated": True, **more}


def supersede(old: Memory, new_id: str) -> None:
    """Retire ``old`` in favour of ``new_id``; it stays in the rows with its link."""
    Memory.update(**changed(status="superseded", superseded_by=new_id)).where(
        Memory.id == old.id, Memory.status == "active"
    ).execute()


def replaced(owner: str, ids: Iterable[str]) -> list[Memory]:
    """Return what these memories replaced, over all steps, whatever its status; without these themselves."""
    start, found = set(ids), dict[str, Memory]()
    newly = list(start)
    while newly:
        older = Memory.select().where(Memory.owner == owner, Memory.superseded_by.in_(newly))
        newly_found = {row.id: row for row in older if row.id not in found and row.id not in start}
        found |= newly_found
        newly = list(newly_found)
    return list(found.values())


def inherit(fresh: Memory, old: Memory, kept: str) -> None:
    """Let ``fresh`` carry what only ``old``, which it supersedes, held: a sentence, and the turns it was said in."""
    current = Memory.get_by_id(fresh.id)
    if not kept or kept in current.summary:
        return
    names = list(dict.fromkeys([*current.entities, *(name for name in old.entities if name in kept)]))[:ENTITIES_LIMIT]
    summary = f"{current.summary} {kept}" if current.summary.isascii() else f"{current.summary}{kept}"
    if len(summary) > TEXT_LIMIT:
        return
    Memory.update(**changed(summary=summary, **entity_columns(names))).where(Memory.id == fresh.id).execute()
    Memory.update(handed_on=kept).where(Memory.id == old.id).execute()
    add_sources(fresh.id, source_turns([old.id])[old.id])
    set_entities(fresh.id, fresh.owner, names)


def absorb(kept: Memory, repeated: Memory) -> None:
    """Let ``kept`` gain the turns of ``repeated``, which said the same again and is retired."""
    turns = list(Turn.select().join(MemorySource).where(MemorySource.memory == repeated.id).order_by(Turn.id))
    add_sources(kept.id, turns)
    set_entities(kept.id, kept.owner, kept.entities)
    said_at = max([kept.said_at, *(turn.at for turn in turns)])
    Memory.update(**changed(said_at=said_at)).where(Memory.id == kept.id).execute()
    supersede(repeated, kept.id)
