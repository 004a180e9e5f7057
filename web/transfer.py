"""Export and import over HTTP."""

from typing import Any

from flask import Blueprint, Response, g, request

from stackmem.exporting import export_lines
from stackmem.importing import Importer
from web.access import runtime

blueprint = Blueprint("transfer", __name__)

IMPORT_LIMIT = 64 * 1024 * 1024  # bytes


@blueprint.get("/v1/export")
def export() -> Response:
    """Return everything of the owner as JSON lines."""
    body = "".join(f"{line}\n" for line in export_lines(g.owner, runtime().settings.zone))
    return Response(body, content_type="application/x-ndjson; charset=utf-8")


@blueprint.post("/v1/import")
def import_lines() -> dict[str, Any]:
    """Take JSON lines; a line that is not valid is named and skipped. Memories are made in the background."""
    request.max_content_length = IMPORT_LIMIT
    both = request.args.get("both_speakers", "").lower() in ("1", "true", "yes")
    importer = Importer(g.owner, runtime().settings.zone, runtime().clock.now(), both_speakers=both)
    result = importer.run(request.get_data().split(b"\n"))
    runtime().work.sweep()
    return {
        "turns": result.turns,
        "already_there": result.known,
        "memories": result.memories,
        "skipped_lines": result.faults,
    }
