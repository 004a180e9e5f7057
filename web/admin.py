"""What the command line of this machine asks of a running server, with the key from its home folder."""

from typing import Any

from flask import Blueprint, g

from stackmem.doctor import examine
from stackmem.exceptions import NotFound
from stackmem.jobs import check_job, reindex_job
from stackmem.ports import Hint
from stackmem.status import status
from web.access import runtime
from web.bodies import json_object

blueprint = Blueprint("admin", __name__, url_prefix="/v1/admin")


@blueprint.before_request
def _only_with_the_key() -> None:
    if not g.admin:
        raise NotFound("There is nothing at this address.")


@blueprint.get("/ping")
def get_ping() -> dict[str, Any]:
    """Say that this server is the one of the home folder whose key was sent."""
    return {"ok": True}


@blueprint.get("/status")
def get_status() -> dict[str, Any]:
    """Return how things stand."""
    now = runtime()
    counts = status(g.owner, now.index, now.index.kind, now.clock.now(), now.settings.zone)
    return counts | {"reasons": now.reasons()}


@blueprint.post("/sweep")
def post_sweep() -> dict[str, Any]:
    """Look now for work that is waiting."""
    return {"hints": runtime().work.sweep()}


@blueprint.post("/retry")
def post_retry() -> dict[str, Any]:
    """Bring back what failed."""
    return runtime().work.retry(g.owner)


@blueprint.post("/reindex")
def post_reindex() -> dict[str, Any]:
    """Begin a rebuild; the row of the job tells its progress."""
    job = reindex_job(json_object().get("from") or "memories", runtime().clock.now())
    runtime().work.queue.put(Hint("reindex", job.id))
    return {"job_id": job.id}


@blueprint.get("/doctor")
def get_doctor() -> dict[str, Any]:
    """Try everything that is configured, as this process sees it."""
    return {"checks": examine(runtime())}


@blueprint.post("/check")
def post_check() -> dict[str, Any]:
    """Begin a comparison of database and index, with ``mend`` to mend it too; the job's row tells what was found."""
    job = check_job(json_object().get("mend") is True, runtime().clock.now())
    runtime().work.queue.put(Hint("reindex", job.id))
    return {"job_id": job.id}
