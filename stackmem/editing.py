"""Correct a memory by hand: the corrected one is new, the old one is superseded and stays in its history."""

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Any

from stackmem.answers import ENTITIES_LIMIT, ENTITY_LIMIT, TEXT_LIMIT, TOPIC_LIMIT, TYPES
from stackmem.clock import read_time
from stackmem.database import transaction
from stackmem.exceptions import Conflict, InvalidInput, NotFound
from stackmem.ids import memory_id
from stackmem.making import add_sources, entity_columns, set_entities, supersede
from stackmem.models import Memory, Turn
from stackmem.settling import settle
from stackmem.sources import source_turns
from stackmem.text import clean

FIELDS = ("topic", "summary", "entities", "memory_type", "occurred_at", "occurred_from", "occurred_to")
TIMES = ("occurred_at", "occurred_from", "occurred_to")


def edit(owner: str, identity: str, changes: dict[str, Any], now: datetime, zone: tzinfo) -> Memory:
    """Supersede a memory by one with these changes, resting on the same turns; return it.

    Raises InvalidInput for a wrong change, NotFound, or Conflict where it is active no longer.
    """
    wanted, times = read_changes(changes), {name: changes[name] for name in TIMES if name in changes}
    with transaction():
        old = Memory.get_or_none(Memory.id == identity, Memory.owner == owner, Memory.status != "forgotten")
        if old is None:
            raise NotFound(f"There is no memory {identity[:40]}.")
        if old.status != "active":
            raise Conflict(f"This memory was replaced by {old.superseded_by}: correct that one.")
        turns = source_turns([old.id])[old.id]
        new_id = _free_id(old, turns)
        columns = {name: getattr(old, name) for name in (*FIELDS, "said_at")} | wanted | read_times(old, times, zone)
        columns |= {"entities": old.entities, "entity_keys": old.entity_keys} | entity_columns(columns["entities"])
        Memory.create(
            id=new_id, owner=owner, revision=old.revision + 1, origin="edited", window=old.window_id, created_at=now,
            **columns,
        )  # fmt: skip
        add_sources(new_id, turns)
        set_entities(new_id, owner, columns["entities"])
        supersede(old, new_id)
        settle(owner, [old.id])
        return Memory.get_by_id(new_id)


def _free_id(old: Memory, turns: Sequence[Turn]) -> str:
    first, uids = (turns[0].at if turns else old.occurred_at), [turn.uid for turn in turns]
    ordinal = 0
    while True:
        identity = memory_id(first, old.owner, uids or [old.id], old.revision + 1, ordinal)
        if not Memory.select().where(Memory.id == identity).exists():
            return identity
        ordinal += 1


def read_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that a correction sets, besides its times. Raises InvalidInput with what is wrong with it."""
    unknown = sorted(set(changes) - set(FIELDS))
    if unknown or not changes:
        raise InvalidInput(
            f'"{" ".join(clean(unknown[0])[:40].split())}" cannot be changed; what can: {", ".join(FIELDS)}.'
            if unknown
            else f"There is nothing to change: give one of {', '.join(FIELDS)}."
        )
    columns: dict[str, Any] = {}
    for name, limit in (("topic", TOPIC_LIMIT), ("summary", TEXT_LIMIT)):
        if name in changes:
            columns[name] = _text(name, changes[name], limit)
    if "entities" in changes:
        columns["entities"] = _names(changes["entities"])
    if "memory_type" in changes:
        if changes["memory_type"] not in TYPES:
            raise InvalidInput(f"memory_type must be one of {', '.join(TYPES)}.")
        columns["memory_type"] = changes["memory_type"]
    return columns


def _text(name: str, value: Any, limit: int) -> str:
    text = clean(value).strip() if isinstance(value, str) else ""
    if not 0 < len(text) <= limit:
        raise InvalidInput(f"{name} must be text of 1 to {limit} characters.")
    return text


def _names(value: Any) -> list[str]:
    names = [clean(item).strip() for item in value if isinstance(item, str)] if isinstance(value, list) else None
    if names is None or len(names) != len(value) or len(names) > ENTITIES_LIMIT or not all(names):
        raise InvalidInput(f"entities must be a list of at most {ENTITIES_LIMIT} names.")
    if any(len(name) > ENTITY_LIMIT for name in names):
        raise InvalidInput(f"A name has at most {ENTITY_LIMIT} characters.")
    return names


def read_times(old: Memory, given: dict[str, Any], zone: tzinfo) -> dict[str, datetime]:
    """Return the times that a correction sets; a moment or day alone is begin and end. Raises InvalidInput."""
    if not given:
        return {}
    if not all(isinstance(value, str) for value in given.values()):
        raise InvalidInput("A time must be text in ISO 8601, such as 2026-07-23.")
    at = given.get("occurred_at")
    first, last = given.get("occurred_from", at), given.get("occurred_to", at)
    start = read_time(first, zone) if first else old.occurred_from
    end = read_time(last, zone, end_of_day=True) if last else old.occurred_to
    moment = read_time(at, zone) if at else start
    if not start <= moment <= end:
        raise InvalidInput("occurred_from must not lie after occurred_to, and occurred_at must lie between them.")
    return {"occurred_at": moment, "occurred_from": start, "occurred_to": end}
