"""The first page: how much is known, and the way to everything else."""

from flask import Blueprint, g

from stackmem import listing
from stackmem.browsing import counts_by_state
from stackmem.models import ForgetRequest, Memory
from web.access import runtime
from web.pages.shown import page

blueprint = Blueprint("home", __name__)

NEWEST = 5


@blueprint.get("/")
def show() -> str:
    """Show the newest memories and the sections."""
    counts = counts_by_state(g.owner)
    newest = listing.newest(g.owner, {}, NEWEST, runtime().settings.zone)["memories"]
    return page(
        "home.html",
        persona=runtime().persona.name,
        memories=newest,
        count=Memory.select().where(Memory.owner == g.owner, Memory.status == "active").count(),
        turns=sum(counts.values()),
        waiting=counts.get("pending", 0) + counts.get("open", 0),
        failed=counts.get("failed", 0),
        requests=ForgetRequest.select().where(ForgetRequest.owner == g.owner, ForgetRequest.is_open).count(),
    )
