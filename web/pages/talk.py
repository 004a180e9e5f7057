"""Talk in the browser: a face that answers, and beside each reply what was looked up for it."""

from typing import Any

from flask import Blueprint, g, request
from werkzeug.wrappers import Response

from stackmem import sessions
from stackmem.browsing import open_talk
from stackmem.converse import Said
from stackmem.models import Turn
from stackmem.ports import Hint
from stackmem.why import why
from web.access import runtime
from web.pages.asked import filled
from web.pages.conversations import how
from web.pages.shown import done, page
from web.speech import has_speech

blueprint = Blueprint("talk", __name__)

SESSION = "browser"  # the session that the page talks in
SHOWN = 20  # newest turns of it


@blueprint.get("/talk")
def show() -> str:
    """Show the face, and what was said so far."""
    turns = open_talk(g.owner, SESSION, SHOWN)
    last = turns[-1] if turns else None
    return page(
        "talk.html",
        persona=runtime().persona,
        exchanges=[exchange(turn) for turn in turns],
        emotion=last.emotion if last else "neutral",
        offline=runtime().chat.name == "offline",
        speaks=runtime().aloud.voice is not None,
    )


def exchange(turn: Turn) -> dict[str, Any]:
    """Return what is shown of a turn: its words, and how its reply came about."""
    return {
        "turn": turn,
        "why": why(turn, runtime().settings.zone),
        "how": how(turn),
        "has_speech": has_speech(turn),
    }


@blueprint.post("/talk")
def say() -> Response | str:
    """Answer what was typed or heard: with the new exchange alone where the page's script asks, else with the page."""
    said = Said(owner=g.owner, text=filled("text"), session_id=SESSION, device=g.device, key=filled("key") or None)
    turn, _ = runtime().aloud.turn(said)
    if request.headers.get("X-Part"):
        return page("exchange.html", one=exchange(turn))
    return done("pages.talk.show", "")


@blueprint.post("/talk/end")
def end() -> Response:
    """End the talk: what was said becomes memories now."""
    if open_talk(g.owner, SESSION, 1):
        for row_id in sessions.close(g.owner, SESSION, runtime().clock.now()):
            runtime().work.queue.put(Hint("remember", row_id))
    return done("pages.talk.show", "ended")
