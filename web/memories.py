"""Memories: list, search, look at one and at its words."""

from typing import Any

from flask import Blueprint, g

from stackmem import listing, shapes
from stackmem.text import clean
from web.access import runtime
from web.bodies import number_in_query, text_in_query

blueprint = Blueprint("memories", __name__)


@blueprint.get("/v1/memories")
def list_memories() -> dict[str, Any]:
    """Search with ``q``, else list the newest first."""
    wanted = {
        "entity": text_in_query("entity"),
        "memory_type": text_in_query("type"),
        "since": text_in_query("since"),
        "until": text_in_query("until"),
        "status": text_in_query("status"),
    }
    query = text_in_query("q")
    if query is not None:
        limit = number_in_query("limit", listing.SEARCH_LIMIT, listing.HIGHEST_LIMIT)
        return listing.search(runtime().recall, g.owner, query, wanted, limit, runtime().settings.zone)
    limit = number_in_query("limit", listing.LIST_LIMIT, listing.HIGHEST_LIMIT)
    return listing.newest(g.owner, wanted, limit, runtime().settings.zone)


@blueprint.get("/v1/memories/<memory_id>")
def get_memory(memory_id: str) -> dict[str, Any]:
    """Return one memory."""
    memory = listing.one(g.owner, clean(memory_id))
    return shapes.memory_lines([memory], runtime().settings.zone)[0]


@blueprint.get("/v1/memories/<memory_id>/sources")
def get_sources(memory_id: str) -> dict[str, Any]:
    """Return the turns a memory was made of."""
    memory = listing.one(g.owner, clean(memory_id))
    return {"memory_id": memory.id, "turns": listing.source_lines(memory, runtime().settings.zone)}
