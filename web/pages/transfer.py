"""Take everything along as a file, or bring it back."""

from flask import Blueprint, Response, g, request

from stackmem.exceptions import InvalidInput
from stackmem.exporting import export_lines
from stackmem.importing import Importer
from web.access import runtime
from web.pages.shown import page

blueprint = Blueprint("transfer", __name__)

FAULTS = 20  # lines that are named


@blueprint.get("/memories/transfer")
def index() -> str:
    """Offer the export and the import."""
    return page("transfer.html", result=None, faults=[])


@blueprint.get("/memories/export")
def export() -> Response:
    """Return everything of the owner as JSON lines, as a file."""
    body = "".join(f"{line}\n" for line in export_lines(g.owner, runtime().settings.zone))
    name = f"stackmem-{runtime().clock.now():%Y%m%d}.jsonl"
    return Response(
        body,
        content_type="application/x-ndjson; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
    )


@blueprint.post("/memories/transfer")
def take() -> str:
    """Take a file of conversations, or an export; say what became of it."""
    file = request.files.get("file")
    data = file.read() if file else b""
    if not data.strip():
        raise InvalidInput("The file is missing or empty: choose one that holds JSON lines.")
    both = "both_speakers" in request.form
    importer = Importer(g.owner, runtime().settings.zone, runtime().clock.now(), both_speakers=both)
    result = importer.run(data.split(b"\n"))
    runtime().work.sweep()
    return page("transfer.html", result=result, faults=result.faults[:FAULTS])
