"""Memories: a timeline with the robot's own search, and each memory with its words and its history."""

from typing import Any

from flask import Blueprint, g

from stackmem import listing, shapes
from stackmem.answers import TYPES
from stackmem.browsing import memory_of, recalls
from stackmem.exceptions import StackmemError
from stackmem.models import Memory
from web.access import runtime
from web.pages.asked import asked, page_number
from web.pages.shown import choices, page

blueprint = Blueprint("memories", __name__)

SIZE = 20  # memories on a page
RECALLS = 10
FILTERS = ("q", "entity", "type", "since", "until", "status")


@blueprint.get("/memories")
def index() -> tuple[str, int]:
    """Show memories: found by ``q``, else the newest first."""
    given, number, fault = {name: asked(name) for name in FILTERS}, page_number(), ""
    found: list[dict[str, Any]] = []
    try:
        found = _found(given, number)
    except StackmemError as exc:
        fault = str(exc)
    shown = page(
        "memories.html",
        memories=found[:SIZE],
        given=given,
        kept={name: value for name, value in given.items() if value},
        number=number,
        more=len(found) > SIZE,
        fault=fault,
        waiting=_waiting(),
        types=choices(TYPES, "types"),
        statuses=choices(listing.STATUSES, "statuses"),
    )
    return shown, 400 if fault else 200


def _found(given: dict[str, str | None], number: int) -> list[dict[str, Any]]:
    """Return the memories of a page, and one more where there is a next page."""
    wanted = {name: given[name] for name in ("entity", "since", "until", "status")} | {"memory_type": given["type"]}
    zone, first = runtime().settings.zone, (number - 1) * SIZE
    if given["q"] is None:
        return list(listing.newest(g.owner, wanted, SIZE + 1, zone, first)["memories"])
    limit = min(first + SIZE + 1, listing.HIGHEST_LIMIT)
    return list(listing.search(runtime().recall, g.owner, given["q"], wanted, limit, zone)["memories"][first:])


def _waiting() -> bool:
    """Tell whether something is on its way to become a memory, so that the page looks again."""
    return bool(Memory.select(Memory.id).where(Memory.owner == g.owner, Memory.outdated).exists())


@blueprint.get("/memories/<memory_id>")
def show(memory_id: str) -> str:
    """Show one memory: its words, its history, when it was recalled, and what can be done with it."""
    memory, zone = memory_of(g.owner, memory_id), runtime().settings.zone
    line = shapes.memory_lines([memory], zone)[0]
    return page(
        "memory.html",
        memory=line,
        purge_at=memory.purge_at,
        waiting=memory.outdated,
        days={name: line[name][:10] for name in ("occurred_from", "occurred_to")},
        sources=listing.source_rows(memory),
        history=shapes.memory_lines(listing.history(memory), zone),
        recalled=recalls(memory, page_number(), RECALLS),
        types=choices(TYPES, "types"),
    )
