"""Live turns and sessions."""

from dataclasses import replace
from typing import Any

from flask import Blueprint, g, request

from stackmem import sessions, shapes
from stackmem.body import check_client
from stackmem.clock import read_time
from stackmem.converse import Said
from stackmem.exceptions import InvalidInput
from stackmem.models import Session
from stackmem.ports import Hint
from stackmem.text import clean
from stackmem.thinking import Deadline
from stackmem.why import turn_of, why, why_not
from web import speech
from web.access import runtime
from web.bodies import flag_in_query, json_object, number_in_query, text_in_header, text_in_query, text_of
from web.sounds import is_sound, recording, sound_in

blueprint = Blueprint("turns", __name__)


@blueprint.post("/v1/turns")
def post_turn() -> dict[str, Any] | tuple[dict[str, Any], int, dict[str, str]]:
    """Answer one turn, of words in JSON or of sound; silence is answered and is no turn.

    With ``wait=0`` at once with the number of a job, under which the answer can be had; sound is listened to before.
    ``client=NAME`` gives the emotion in that client's word (stackmem.body).
    """
    client = check_client(text_in_query("client"))
    deadline, waits = runtime().conversation.deadline(), "wait" not in request.args or flag_in_query("wait")
    said = _heard(deadline) if is_sound() else _written()
    if said is None:
        return shapes.silence(_session_id())
    if waits:
        return speech.answer(runtime().aloud.turn(said, deadline, speak=not g.admin)[0], client)
    job = runtime().polling.begin(said)
    return {"job_id": job.id}, 202, {"Location": f"/v1/jobs/{job.id}"}


def _written() -> Said:
    body = json_object(", or sound as audio/wav or audio/L16;rate=16000;channels=1")
    text, at = text_of(body, "text"), text_of(body, "at")
    if text is None:
        raise InvalidInput('"text" is missing: send what was heard.')
    return Said(
        owner=g.owner,
        text=text,
        session_id=text_of(body, "session_id") or text_in_header("X-Session-Id"),
        device=g.device,
        at=read_time(at, runtime().settings.zone) if at else None,
        key=text_in_header("Idempotency-Key") or text_of(body, "client_turn_id"),
    )


def _heard(deadline: Deadline) -> Said | None:
    """Return what was said in the sound that was sent, None for silence; a retry is not listened to again."""
    data, at = recording(), text_in_query("at")
    said = Said(
        owner=g.owner,
        text="",
        session_id=_session_id(),
        device=g.device,
        at=read_time(at, runtime().settings.zone) if at else None,
        key=text_in_header("Idempotency-Key") or text_in_query("client_turn_id"),
    )
    if stored := runtime().conversation.stored(said):
        return replace(said, text=stored.user)
    runtime().aloud.require_ears()
    return runtime().aloud.listen(said, sound_in(data), deadline)


def _session_id() -> str | None:
    return text_in_query("session_id") or text_in_header("X-Session-Id")


@blueprint.get("/v1/jobs/<job_id>")
def get_job(job_id: str) -> dict[str, Any]:
    """Return how far a job is, and the turn's answer when it is done."""
    client = check_client(text_in_query("client"))
    job, turn = runtime().polling.look(g.owner, job_id)
    line = shapes.job_line(job, turn, client)
    return speech.with_speech(turn, line) if turn else line


@blueprint.get("/v1/turns/<turn_id>")
def get_turn(turn_id: str) -> dict[str, Any]:
    """Return a turn with its trace."""
    turn = turn_of(g.owner, turn_id)
    return speech.with_speech(turn, shapes.turn_with_trace(turn, runtime().settings.zone))


@blueprint.get("/v1/turns/<turn_id>/why")
def get_why(turn_id: str) -> dict[str, Any]:
    """Return how a reply came about; with ``memory=ID`` also why that one was not shown."""
    turn, zone = turn_of(g.owner, turn_id), runtime().settings.zone
    memory_id = text_in_query("memory")
    shown = speech.with_speech(turn, why(turn, zone))
    return shown | ({"why_not": why_not(runtime().recall, turn, memory_id, zone)} if memory_id else {})


@blueprint.get("/v1/sessions")
def list_sessions() -> dict[str, Any]:
    """Return the newest sessions."""
    rows = Session.select().where(Session.owner == g.owner).order_by(Session.id.desc())
    limit = number_in_query("limit", 50, 1000)
    found = [shapes.session_line(session, runtime().settings.zone) for session in rows.limit(limit)]
    return {"sessions": found, "count": len(found)}


@blueprint.post("/v1/sessions/<any_text:session_id>/close")
def close_session(session_id: str) -> dict[str, Any]:
    """End a session: what was said becomes memories now."""
    session_id = clean(session_id)
    ended = sessions.close(g.owner, session_id, runtime().clock.now())
    for row_id in ended:
        runtime().work.queue.put(Hint("remember", row_id))
    return {"session_id": session_id, "closed": bool(ended)}
