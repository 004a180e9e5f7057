"""Memories: list, search, look at one and at its words, correct, forget."""

from typing import Any

from flask import Blueprint, g

from stackmem import listing, shapes
from stackmem.clock import show_time
from stackmem.editing import edit
from stackmem.forgetting import forget, undo
from stackmem.models import Memory
from stackmem.ports import Hint
from stackmem.text import clean
from web.access import runtime
from web.bodies import flag_in_query, json_object, number_in_query, text_in_query

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
    return _shown(memory) | {"history": shapes.memory_lines(listing.history(memory), runtime().settings.zone)}


@blueprint.patch("/v1/memories/<memory_id>")
def patch_memory(memory_id: str) -> dict[str, Any]:
    """Correct a memory: return the new one, which supersedes it."""
    zone = runtime().settings.zone
    memory = edit(g.owner, clean(memory_id), json_object(), runtime().clock.now(), zone)
    runtime().work.queue.put(Hint("index", g.owner))
    return _shown(memory)


@blueprint.delete("/v1/memories/<memory_id>")
def delete_memory(memory_id: str) -> dict[str, Any]:
    """Forget a memory and what it replaced; ``turns=1``: with its words; ``now=1``: purged at once."""
    turns, at_once, now = flag_in_query("turns"), flag_in_query("now"), runtime().clock.now()
    done = forget(g.owner, [clean(memory_id)], now, turns=turns, at_once=at_once)
    runtime().work.sweep()  # purges what is due, and takes the points out of the index
    return {"memory_ids": done.memory_ids, "purge_at": show_time(done.purge_at, runtime().settings.zone)}


@blueprint.post("/v1/memories/<memory_id>/restore")
def restore_memory(memory_id: str) -> dict[str, Any]:
    """Bring back a forgotten memory that is not purged yet."""
    ids = undo(g.owner, [clean(memory_id)])
    runtime().work.queue.put(Hint("index", g.owner))
    return {"memory_ids": ids}


def _shown(memory: Memory) -> dict[str, Any]:
    return shapes.memory_lines([memory], runtime().settings.zone)[0]


@blueprint.get("/v1/memories/<memory_id>/sources")
def get_sources(memory_id: str) -> dict[str, Any]:
    """Return the turns a memory was made of."""
    memory = listing.one(g.owner, clean(memory_id))
    return {"memory_id": memory.id, "turns": listing.source_lines(memory, runtime().settings.zone)}
