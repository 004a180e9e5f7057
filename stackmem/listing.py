"""Memories as people list and search them: the same search and order as the robot's tool."""

from dataclasses import replace
from datetime import tzinfo
from typing import Any

from stackmem import shapes, sources
from stackmem.answers import TYPES
from stackmem.browsing import has_words
from stackmem.by_words import matching
from stackmem.clock import read_time
from stackmem.exceptions import InvalidInput, NotFound
from stackmem.making import replaced
from stackmem.models import Memory, Turn
from stackmem.naming import widen
from stackmem.ports import IndexFilter
from stackmem.recall import Recall
from stackmem.search_arguments import read_arguments
from stackmem.text import entity_key

SEARCH_LIMIT = 5
LIST_LIMIT = 50
HIGHEST_LIMIT = 1000
STATUSES = ("active", "superseded", "forgotten")
Wanted = dict[str, str | None]


def search(recall: Recall, owner: str, query: str, wanted: Wanted, limit: int, zone: tzinfo) -> dict[str, Any]:
    """Return ``{"memories": […with retrieval_score, source_checked], "count"}``, the best first."""
    if not query.strip():
        raise InvalidInput("The query is empty: say what to look for.")
    given: dict[str, Any] = {"query": query, "entities": [wanted["entity"]] if wanted.get("entity") else None}
    given |= {"memory_type": _type(wanted), "since": wanted.get("since"), "until": wanted.get("until")}
    if _status(wanted) == "forgotten":
        raise InvalidInput("What is forgotten cannot be searched; it can be listed until it is purged.")
    arguments = read_arguments(owner, given, zone)
    found = recall.find(replace(arguments, where=replace(arguments.where, status=_status(wanted))), limit)
    lines = shapes.memory_lines([candidate.memory for candidate in found], zone)
    shown = [
        line | {"retrieval_score": candidate.retrieval_score, "source_checked": False}
        for line, candidate in zip(lines, found, strict=True)
    ]
    return {"memories": shown, "count": len(shown)}


def newest(owner: str, wanted: Wanted, limit: int, zone: tzinfo, offset: int = 0) -> dict[str, Any]:
    """Return ``{"memories": […], "count"}``, the newest said first; active ones unless another status is wanted.

    ``offset`` is how many of the newest are passed over.
    """
    key, since, until = entity_key(wanted.get("entity") or ""), wanted.get("since"), wanted.get("until")
    where = IndexFilter(
        owner,
        _status(wanted),
        _type(wanted),
        (key, *widen(owner, [key])) if wanted.get("entity") else (),
        since=read_time(since, zone) if since else None,
        until=read_time(until, zone, end_of_day=True) if until else None,
    )
    rows = matching(where).where(has_words()).order_by(Memory.said_at.desc(), Memory.id)
    # Sorting ids and times alone, then reading the rows of the page: a row is long, and a store has thousands.
    places = {row.id: place for place, row in enumerate(rows.select(Memory.id).limit(limit).offset(offset))}
    found = sorted(Memory.select().where(Memory.id.in_(list(places))), key=lambda row: places[row.id])
    return {"memories": shapes.memory_lines(found, zone), "count": len(found)}


def _status(wanted: Wanted) -> str:
    status = wanted.get("status") or "active"
    if status not in STATUSES:
        raise InvalidInput(f"status must be one of {', '.join(STATUSES)}.")
    return status


def _type(wanted: Wanted) -> str | None:
    memory_type = wanted.get("memory_type") or None
    if memory_type is not None and memory_type not in TYPES:
        raise InvalidInput(f"type must be one of {', '.join(TYPES)}.")
    return memory_type


def one(owner: str, memory_id: str) -> Memory:
    """Return a memory of this owner. Raises NotFound."""
    memory = Memory.get_or_none(Memory.id == memory_id, Memory.owner == owner)
    if memory is not None and memory.status == "forgotten" and memory.purge_at is not None:
        raise NotFound(
            f"{memory_id[:40]} is forgotten; until it is deleted, `stackmem memories restore` brings it back."
        )
    if memory is None or memory.status == "forgotten":
        raise NotFound(f"There is no memory {memory_id[:40]}.")
    return memory


def history(memory: Memory) -> list[Memory]:
    """Return what a memory replaced, over all steps, the newest first; forgotten ones are left out."""
    older = [row for row in replaced(memory.owner, [memory.id]) if row.status == "superseded"]
    return sorted(older, key=lambda row: (row.said_at, row.revision, row.id), reverse=True)


def source_lines(memory: Memory, zone: tzinfo) -> list[dict[str, Any]]:
    """Return the turns a memory was made of, oldest first."""
    return [shapes.turn_line(turn, zone) for turn in source_rows(memory)]


def source_rows(memory: Memory) -> list[Turn]:
    """Return the turns a memory was made of as rows, oldest first."""
    return sources.source_turns([memory.id])[memory.id]
