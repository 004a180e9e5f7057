"""What a person decides about memories: correct, forget, bring back, and which names mean one thing."""

from typing import Any

from flask import Blueprint, g, request
from werkzeug.wrappers import Response

from stackmem import forget_requests, naming, shapes
from stackmem.browsing import memory_of
from stackmem.editing import edit
from stackmem.exceptions import InvalidInput
from stackmem.forgetting import forget, undo
from stackmem.ports import Hint
from web.access import runtime
from web.pages.asked import filled
from web.pages.shown import done, page

blueprint = Blueprint("changing", __name__)


@blueprint.post("/memories/<memory_id>/edit")
def correct(memory_id: str) -> Response:
    """Supersede a memory by a corrected one."""
    zone = runtime().settings.zone
    changes = _changes(shapes.memory_lines([memory_of(g.owner, memory_id)], zone)[0])
    if not changes:
        return done("pages.memories.show", "unchanged", memory_id=memory_id)
    memory = edit(g.owner, memory_id, changes, runtime().clock.now(), zone)
    runtime().work.queue.put(Hint("index", g.owner))
    return done("pages.memories.show", "corrected", memory_id=memory.id)


def _changes(line: dict[str, Any]) -> dict[str, Any]:
    """Return what differs from the memory as the form showed it."""
    given: dict[str, Any] = {name: filled(name) for name in ("topic", "summary", "memory_type")}
    given["entities"] = [name for text in filled("entities").split("\n") if (name := text.strip())]
    changes = {name: value for name, value in given.items() if value != line[name]}
    for name in ("occurred_from", "occurred_to"):
        if filled(name) and filled(name) != line[name][:10]:
            changes[name] = filled(name)
    return changes


@blueprint.post("/memories/<memory_id>/forget")
def forget_one(memory_id: str) -> Response:
    """Forget a memory and what it replaced; ``turns``: with its words; ``now``: for good at once."""
    turns, at_once = "turns" in request.form, "now" in request.form
    _forget([memory_id], turns=turns, at_once=at_once)
    if at_once:
        return done("pages.memories.index", "purged")
    return done("pages.memories.show", "forgotten", memory_id=memory_id)


def _forget(ids: list[str], *, turns: bool, at_once: bool) -> None:
    forget(g.owner, ids, runtime().clock.now(), turns=turns, at_once=at_once)
    runtime().work.sweep()  # purges what is due, and takes the points out of the index


@blueprint.post("/memories/<memory_id>/restore")
def restore(memory_id: str) -> Response:
    """Bring back a forgotten memory that is not purged yet."""
    undo(g.owner, [memory_id])
    runtime().work.queue.put(Hint("index", g.owner))
    return done("pages.memories.show", "restored", memory_id=memory_id)


@blueprint.get("/memories/requests")
def requests() -> str:
    """Show what the user asked the robot to forget: it waits for a person."""
    return page("requests.html", requests=forget_requests.request_lines(g.owner, runtime().settings.zone))


@blueprint.post("/memories/requests/<int:request_id>")
def decide(request_id: int) -> Response:
    """Forget the memories that were ticked, or drop the request."""
    asked = forget_requests.one(g.owner, request_id)
    if "drop" in request.form:
        forget_requests.close([asked])
        return done("pages.changing.requests", "dropped")
    ids = request.form.getlist("memory_id")
    if not ids:
        raise InvalidInput("No memory was ticked: choose one, or drop the request.")
    _forget(ids, turns="turns" in request.form, at_once=False)
    forget_requests.close([asked])
    return done("pages.changing.requests", "forgotten")


@blueprint.get("/memories/names")
def names() -> str:
    """Show which names mean one thing."""
    return page("names.html", aliases=naming.aliases(g.owner))


@blueprint.post("/memories/names")
def change_names() -> Response:
    """Add two names of one thing, or take them apart."""
    name, other = filled("name"), filled("other")
    if "remove" in request.form:
        naming.remove_alias(g.owner, name, other)
        return done("pages.changing.names", "parted")
    naming.add_alias(g.owner, name, other, runtime().clock.now())
    return done("pages.changing.names", "joined")
