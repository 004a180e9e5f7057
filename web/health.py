"""Alive, ready, and who the robot is."""

from typing import Any

from flask import Blueprint

from stackmem import __version__
from web.access import runtime

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
def healthz() -> dict[str, Any]:
    """Answer that the process lives; nothing is touched."""
    return {"status": "ok", "version": __version__}


@blueprint.get("/readyz")
def readyz() -> tuple[dict[str, Any], int]:
    """Answer 200 when the index is open (the database is: this request used it), with what is not as it could be."""
    now = runtime()
    ready = now.index.current is not None
    reasons = [] if ready else ["The memory index is being rebuilt."]
    if now.chat.name == "offline":
        reasons.append("No chat model is set: the offline rules answer.")
    reasons += now.reasons()
    return {"ready": ready, "reasons": reasons}, 200 if ready else 503


@blueprint.get("/v1/persona")
def persona() -> dict[str, Any]:
    """Return the robot's name and the ids its body must know."""
    who = runtime().persona
    return {"name": who.name, "language": who.language, "emotions": who.emotions, "actions": who.actions}
