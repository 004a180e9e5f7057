"""Alive, ready, and who the robot is."""

from importlib.resources import files
from typing import Any

from flask import Blueprint, Response
from peewee import DatabaseError, InterfaceError

from stackmem import __version__
from stackmem.body import check_client, words_for
from stackmem.models import Session
from stackmem.witness import absent
from web.access import runtime
from web.bodies import text_in_query
from web.metrics import broker

blueprint = Blueprint("health", __name__)

_OPENAPI = files("web") / "openapi.yaml"


@blueprint.get("/healthz")
def healthz() -> dict[str, Any]:
    """Answer that the process lives; nothing is touched."""
    return {"status": "ok", "version": __version__}


@blueprint.get("/readyz")
def readyz() -> tuple[dict[str, Any], int]:
    """Answer 200 when the database is migrated and the index is open, with what is not as it could be.

    Only those two make it 503; no model is called.
    """
    now = runtime()
    try:
        delayed = Session.select().where(Session.delays > 0).count()
        missing = [] if now.settings.broker_url.startswith("memory") else absent(now.clock.now())
    except (DatabaseError, InterfaceError):
        return {"ready": False, "reasons": ["The database does not answer, or is not migrated."]}, 503
    ready = now.index.current is not None
    reasons = [] if ready else ["The memory index is being rebuilt."]
    if now.chat.name == "offline":
        reasons.append("No chat model is set: the offline rules answer.")
    reasons += now.reasons()
    if delayed:
        reasons.append("The memory model did not answer: what was said is kept, and remembered later.")
    if broker().answers is False:
        reasons.append("The broker does not answer (STACKMEM_BROKER_URL): nothing is lost, memories come later.")
    elif missing:
        reasons.append(
            f"No worker has been seen on {' and '.join(missing)}: start `celery -A workers worker -Q "
            f"{','.join(missing)}` and one `celery -A workers beat`."
        )
    return {"ready": ready, "reasons": reasons}, 200 if ready else 503


@blueprint.get("/openapi.yaml")
def openapi() -> Response:
    """Return the description of this interface."""
    return Response(_OPENAPI.read_bytes(), content_type="application/yaml; charset=utf-8")


@blueprint.get("/v1/persona")
def persona() -> dict[str, Any]:
    """Return the robot's name and the ids its body must know; with ``client=NAME`` that client's words for them.

    ``error`` says why the persona's file as it is now is not used; null where it is.
    """
    client, now = check_client(text_in_query("client")), runtime()
    who = now.persona
    return {
        "name": who.name,
        "first_person": who.first_person,
        "language": who.language,
        "emotions": words_for(client, who.emotions),
        "actions": who.actions,
        "error": now.who.reason() or None,
    }
