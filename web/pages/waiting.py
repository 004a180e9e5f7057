"""Turns that are in no memory: waiting, failed, or skipped; what failed can be tried again."""

from flask import Blueprint, g
from werkzeug.wrappers import Response

from stackmem.browsing import STATES, counts_by_state, turns_in
from web.access import runtime
from web.pages.asked import asked, page_number
from web.pages.shown import done, page

blueprint = Blueprint("waiting", __name__)

SIZE = 30  # turns on a page


@blueprint.get("/memories/waiting")
def index() -> str:
    """Show the turns of one state, the newest first."""
    wanted = asked("state")
    state = wanted if wanted in STATES else "pending"
    counts = counts_by_state(g.owner)
    return page(
        "waiting.html",
        state=state,
        counts=[(name, counts.get(name, 0)) for name in STATES],
        leaf=turns_in(g.owner, state, page_number(), SIZE),
        live=bool(counts.get("pending") or counts.get("open")),
    )


@blueprint.post("/memories/waiting")
def retry() -> Response:
    """Bring back what failed, and try at once what waits for the model."""
    runtime().work.retry(g.owner)
    return done("pages.waiting.index", "retried")
