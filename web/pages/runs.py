"""Runs of scripted conversations: their scores, per kind of talk and beside simple rules; two of them compared."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from flask import Blueprint

from evals import report
from evals.comparing import compare
from evals.results import RESULTS_FILE, read_run
from evals.scoring import SCORES
from stackmem.exceptions import NotFound, StackmemError
from web.access import runtime
from web.pages.asked import asked
from web.pages.shown import page

blueprint = Blueprint("runs", __name__)

FOLDER = "runs"  # of the home folder


@blueprint.get("/scores/runs")
def index() -> str:
    """Show all runs, or two of them side by side."""
    folders = [folder for folder in _folders() if (folder / RESULTS_FILE).is_file()]
    runs, faults = [], []
    for folder in folders:
        try:
            runs.append((folder.name, _read(folder)))
        except StackmemError as exc:
            faults.append(str(exc))
    a, b = asked("a"), asked("b")
    return page(
        "runs.html",
        folder=_home(),
        runs=runs,
        faults=faults,
        scores=SCORES,
        a=a,
        b=b,
        comparison=compare(_read(_named(a)), _read(_named(b))) if a and b else None,
    )


@blueprint.get("/scores/runs/<name>")
def show(name: str) -> str:
    """Show one run: all scores, per tag, beside simple rules, and its worst turns."""
    run = _read(_named(name))
    return page("run.html", name=name, run=run, scores=SCORES, worst=report.worst_turns(run))


def _home() -> Path:
    return runtime().settings.home / FOLDER


def _folders() -> list[Path]:
    home = _home()
    return sorted((path for path in home.iterdir() if path.is_dir()), reverse=True) if home.is_dir() else []


def _named(name: str) -> Path:
    """Return the folder of a run. Raises NotFound: a name is one of those that are there, never a path."""
    for folder in _folders():
        if folder.name == name:
            return folder
    raise NotFound(f"There is no run {name[:40]!r}.")


def _read(folder: Path) -> dict[str, Any]:
    file = folder / RESULTS_FILE
    return _cached(folder, file.stat().st_mtime_ns if file.is_file() else 0)


@lru_cache(maxsize=16)
def _cached(folder: Path, _: int) -> dict[str, Any]:
    return read_run(folder)
