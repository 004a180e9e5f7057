"""Conversations: sessions, their turns, and how each reply came about."""

from typing import Any

from flask import Blueprint, Response, g, request

from evals.marks import KINDS, mark_of
from stackmem.browsing import memories_of, page_of, session_of, talks, turns_of
from stackmem.models import Turn
from stackmem.why import turn_of, why, why_not
from web.access import runtime
from web.pages.asked import asked, page_number
from web.pages.shown import page
from web.sounds import sound_response
from web.speech import has_speech, speech_of

blueprint = Blueprint("conversations", __name__)

TALKS = 30  # sessions on a page
TURNS = 50
SPEECH_RATE = 24_000  # Hz


@blueprint.get("/conversations")
def index() -> str:
    """Show the newest sessions."""
    return page("conversations.html", leaf=talks(g.owner, page_number(), TALKS))


@blueprint.get("/conversations/<int:session_id>")
def show(session_id: int) -> str:
    """Show the turns of a session; ``turn`` chooses the page on which that one stands."""
    session, number = session_of(g.owner, session_id), page_number()
    wanted = asked("turn")
    if wanted and "page" not in request.args:
        turn = turn_of(g.owner, wanted)
        number = page_of(turn, TURNS) if turn.session_id == session.id else number
    leaf = turns_of(session, number, TURNS)
    live = any(turn.state in ("open", "pending") for turn in leaf.rows)
    return page("conversation.html", session=session, leaf=leaf, memories=memories_of(leaf.rows), live=live)


@blueprint.get("/turns/<turn_id>")
def turn(turn_id: str) -> str:
    """Show how a reply came about; with ``memory`` also why that one was not shown."""
    row, memory_id = turn_of(g.owner, turn_id), asked("memory")
    zone = runtime().settings.zone
    return page(
        "turn.html",
        turn=row,
        why=why(row, zone),
        how=how(row),
        has_speech=has_speech(row),
        memories=memories_of([row])[row.id],
        memory_id=memory_id,
        mark=mark_of(row),
        kinds=[kind for kind in KINDS if row.searched != (kind == "should_have_searched")],
        why_not=why_not(runtime().recall, row, memory_id, zone) if memory_id else None,
    )


@blueprint.get("/turns/<turn_id>/speech")
def speech(turn_id: str) -> Response:
    """Return the speech of a reply as a browser plays it; a page's cookie counts here."""
    return sound_response(speech_of(turn_id), SPEECH_RATE, "wav")


def how(turn: Turn) -> str:
    """Return in one word how a reply came about; the pages have a sentence for each."""
    told: list[tuple[Any, str]] = [
        (turn.imported, "imported"),
        (turn.settled and not (turn.user or turn.reply), "deleted"),
        (turn.state == "open", "open"),
        (turn.degraded, "degraded"),
        (turn.searched and turn.memory_ids, "found"),
        (turn.searched, "nothing"),
    ]
    return next((word for holds, word in told if holds), "no_search")
