"""Figures of the models that were measured, kept in benchmarks/results/ and shown in docs/results.md."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from evals.batch import Batch
from evals.cli import load
from evals.judge.asking_back import judge_of
from evals.report import BASELINE_TITLES, TITLES, rate_text
from evals.results import Folder, about, read_run
from evals.running import Options
from evals.scoring import LOW_IS_GOOD, SCORES
from stackmem.cli.progress import progress_bar
from stackmem.config import load_settings

HERE = Path(__file__).parent
KEPT, PAGE = HERE / "results", HERE.parent / "docs" / "results.md"


@click.group()
def main() -> None:
    """Measure models on the scenarios, keep the figures, write docs/results.md."""


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", required=True, help="What the column is called, such as `Qwen3-30B`.")
@click.option("--what", default="", help="A sentence about the model, and how it was run.")
@click.option("--mode", type=click.Choice(["free", "forced"]), default="forced", show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True)
def run(folder: Path, name: str, what: str, mode: str, jobs: int) -> None:
    """Run all scenarios against the model that is set (STACKMEM_CHAT_*), keep the figures, write the page.

    FOLDER holds the run: the same command again goes on where it stopped. Without a model set it is the offline one.
    """
    settings = load_settings()
    files = load((), settings)
    judge = judge_of(settings)
    kept = Folder(folder)
    with kept.owned(), progress_bar(name) as bar:
        kept.begin(about(settings, mode, judge.model.name if judge else None))
        failed = Batch(files, kept, Options(mode="free" if mode == "free" else "forced"), jobs, bar).run()
    for scenario, reason in failed.items():
        click.echo(f"{scenario} failed: {reason}", err=True)
    keep(kept.results(files), name, what)
    write_page()


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option("--name", required=True)
@click.option("--what", default="")
def add(folder: Path, name: str, what: str) -> None:
    """Keep the figures of a run that `stackmem eval run --out FOLDER` made, and write the page."""
    keep(read_run(folder), name, what)
    write_page()


@main.command()
def page() -> None:
    """Write docs/results.md from the figures that are kept."""
    write_page()


def keep(results: Mapping[str, Any], name: str, what: str) -> None:
    """Write a run's figures, with the day and the scenarios they rest on; the turns themselves are not kept."""
    figures = {
        "name": name,
        "what": what,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        **{key: value for key, value in results.items() if key != "scenarios"},
        "ids": [scenario["id"] for scenario in results["scenarios"]],
    }
    KEPT.mkdir(exist_ok=True)
    file = KEPT / f"{name.lower().replace(' ', '-')}.json"
    file.write_text(json.dumps(figures, ensure_ascii=False, indent=1) + "\n", "utf-8")


def write_page() -> None:
    """Write docs/results.md."""
    PAGE.write_text(page_text(), "utf-8")


def page_text() -> str:
    """Return docs/results.md: the kept figures, and whether the prompts have changed since."""
    runs = [json.loads(file.read_text("utf-8")) for file in sorted(KEPT.glob("*.json"))]
    runs.sort(key=lambda run: (-len(run["ids"]), run["name"]))
    templates = Environment(
        loader=FileSystemLoader(HERE), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters["rate"] = rate_text
    return templates.get_template("results.md.jinja").render(
        runs=runs,
        changed=[run["name"] for run in runs if run["prompts"] != _prompts_today(run)],
        scores=SCORES,
        titles=TITLES,
        baseline_titles=BASELINE_TITLES,
        low_is_good=LOW_IS_GOOD,
        neighbours=next((run for run in runs if run["baselines"]), None),
    )


def _prompts_today(run: Mapping[str, Any]) -> str:
    return about(load_settings(persona=run["persona"], tool_mode=run["tool_mode"]), run["mode"], None).prompts


if __name__ == "__main__":
    main()
