"""Scores: rates over time with their intervals, the turns that went wrong, marks, and runs of scenarios compared."""

from typing import Any

from flask import Blueprint, Response, g, request
from werkzeug.wrappers import Response as Redirect

from evals import marks
from evals.live_scores import by_judge
from evals.marked import scenario_of
from evals.windows import SIZES, Tally
from stackmem.exceptions import NotFound
from stackmem.models import Turn
from stackmem.score_models import Label, Mark, Score
from stackmem.why import turn_of
from web.access import runtime
from web.pages.asked import page_number
from web.pages.charts import Chart, chart
from web.pages.shown import done, page, when

blueprint = Blueprint("scores", __name__)

RATES = ("false_trigger_rate", "miss_rate")
NEWEST = 200  # judged turns that the rates at the top are of
WINDOWS = 40  # newest windows of each size
LOOKED_AT = 1000  # newest judged turns among which wrong ones are looked for
SIZE = 30


@blueprint.get("/scores")
def index() -> str:
    """Show the rates of every judge, and how they went."""
    labels = list(_judged().limit(NEWEST))
    return page(
        "scores.html",
        judges=by_judge(labels),
        newest=NEWEST,
        series=[_series(judge, version, size) for judge, version in _judges() for size in SIZES],
        waiting=not labels,
    )


def _judged() -> Any:
    """Return the query of judged turns, the newest first."""
    return Label.select().where(Label.owner == g.owner, Label.state == "judged").order_by(Label.turn.desc())


def _judges() -> list[tuple[str, str]]:
    rows: Any = Score.select(Score.judge, Score.prompt_version).where(Score.owner == g.owner).distinct()
    return [(judge, version) for judge, version in rows.tuples()]


def _series(judge: str, version: str, size: int) -> dict[str, Any]:
    """Return the newest windows of one size with their rates, a chart of each, and who answered."""
    rows = Score.select().where(
        Score.owner == g.owner, Score.judge == judge, Score.prompt_version == version, Score.size == size
    )
    windows = list(rows.order_by(Score.ordinal.desc()).limit(WINDOWS))[::-1]
    ids = [window.last_turn for window in windows]
    turns = Turn.select(Turn.id, Turn.model, Turn.prompts).where(Turn.id.in_(ids))
    models = {turn.id: " · ".join(part for part in (turn.model, turn.prompts) if part) for turn in turns}
    answered = [models.get(window.last_turn, "") for window in windows]
    tallies = [Tally.of_score(window).as_json() for window in windows]
    return {
        "judge": judge,
        "version": version,
        "size": size,
        "charts": {rate: _chart(windows, [tally[rate] for tally in tallies], answered) for rate in RATES},
        "rows": list(zip(windows, tallies, answered, strict=True))[::-1],
    }


def _chart(windows: list[Score], rates: list[dict[str, Any]], answered: list[str]) -> Chart:
    titles = [f"{when(window.to_at)}: {rate['num']}/{rate['den']}" for window, rate in zip(windows, rates, strict=True)]
    return chart(rates, titles, answered)


@blueprint.get("/scores/turns")
def wrong() -> str:
    """Show the newest turns that searched in vain or missed a memory, by the judge or by a person."""
    labels = list(_judged().limit(LOOKED_AT))
    judged = list(zip(labels, marks.verdicts(labels), strict=True))
    found = [(label, fault) for label, verdict in judged if (fault := _fault(verdict))]
    number = page_number()
    rows = found[(number - 1) * SIZE : number * SIZE]
    turns = {row.id: row for row in Turn.select().where(Turn.id.in_([label.turn_id for label, _ in rows]))}
    shown = [(turns[label.turn_id], label, fault) for label, fault in rows]
    return page("wrong.html", rows=shown, number=number, more=len(found) > number * SIZE)


def _fault(verdict: marks.Verdict) -> str:
    if not verdict.needed:
        return "vain" if verdict.searched else ""
    if not verdict.right_ids:
        return ""
    return ("" if verdict.found else "not_found") if verdict.searched else "not_searched"


@blueprint.get("/scores/marks")
def marked() -> str:
    """Show what people marked."""
    return page("marks.html", leaf=marks.marks(g.owner, page_number(), SIZE))


@blueprint.post("/turns/<turn_id>/mark")
def mark(turn_id: str) -> Redirect:
    """Mark a turn, or take its mark back."""
    turn = turn_of(g.owner, turn_id)
    if "unmark" in request.form:
        marks.unmark(turn)
        return done("pages.conversations.turn", "unmarked", turn_id=turn_id)
    right = [identity for identity in request.form.get("right", "").split() if identity]
    marks.mark(turn, request.form.get("kind", ""), right, runtime().clock.now())
    return done("pages.conversations.turn", "marked", turn_id=turn_id)


@blueprint.get("/turns/<turn_id>/scenario")
def scenario(turn_id: str) -> Response:
    """Return a marked turn as a scenario file."""
    turn = turn_of(g.owner, turn_id)
    found: Mark | None = marks.mark_of(turn)
    if found is None or not turn.user:
        raise NotFound(f"Turn {turn.id} is not marked, or its words were deleted.")
    return Response(
        scenario_of(found, runtime().settings.zone),
        content_type="application/yaml; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="marked-{turn.id}.yaml"', "Cache-Control": "no-store"},
    )
