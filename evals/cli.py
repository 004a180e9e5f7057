"""``stackmem eval``: scripted conversations scored, runs compared, real talk judged."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from evals import live_cli, report
from evals.batch import Batch
from evals.capture import capture, sample
from evals.comparing import Comparison, compare, has_common_turns
from evals.judge.asking_back import judge_of
from evals.results import Folder, about, read_run
from evals.running import Options
from evals.scenario import LENGTHS, Fault, File, ScenarioFaults, files_of, read
from stackmem.cli.common import json_option, owner_option, print_json, store
from stackmem.cli.progress import progress_bar
from stackmem.clock import SystemClock
from stackmem.config import Settings, load_settings
from stackmem.exceptions import StackmemError
from stackmem.providers import judge_model

CROSSED = 3  # exit code when a rate is above its limit

paths_argument = click.argument("paths", nargs=-1, type=click.Path(path_type=Path))


@click.group()
def eval_() -> None:
    """Measure how often it searches in vain or misses a memory."""


for command in (live_cli.score, live_cli.show, live_cli.judge):
    eval_.add_command(command)


@eval_.command()
@paths_argument
def check(paths: tuple[Path, ...]) -> None:
    """Check scenario files; each fault is named with its file and line. Without PATHS: those that come with it."""
    files = load(paths, load_settings())
    several = "s" * (len(files) != 1)
    click.echo(f"{len(files)} scenario{several}, {sum(file.turns for file in files)} turns: no fault.")


@eval_.command()
@paths_argument
@click.option("--turns", type=click.Choice([str(length) for length in LENGTHS]), help="Only scenarios of this length.")
@click.option(
    "--mode",
    type=click.Choice(["free", "forced"]),
    default="free",
    show_default=True,
    help="free: the session holds what the model itself said. forced: the reference replies, to compare models.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the results.  [default: eval- and the time]",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Scenarios run at a time.")
@click.option("--limit", type=click.IntRange(1), help="Run the first N scenarios only.")
@click.option("--baseline/--no-baseline", default=True, help="Also what simple rules would do on the same turns.")
@click.option("--against", type=click.Path(path_type=Path, exists=True), help="An earlier run to compare with.")
@click.option("--max-false-trigger", type=click.FloatRange(0, 1), help="Exit with 3 when the rate is above this.")
@click.option("--max-miss", type=click.FloatRange(0, 1), help="Exit with 3 when the rate is above this.")
@json_option
@click.pass_context
def run(ctx: click.Context, /, paths: tuple[Path, ...], as_json: bool, **given: Any) -> None:
    """Run scenarios against the model that is set; score every turn.

    PATHS are scenario files or folders; without any, those that come with stackmem. The same command again with the
    same --out goes on where it stopped. That folder gets results.json, report.html and report.md.
    """
    settings = load_settings()
    files = [file for file in load(paths, settings) if given["turns"] in (None, str(file.turns))][: given["limit"]]
    if not files:
        raise click.UsageError(f"None of the scenarios has {given['turns']} turns.")
    before = read_run(given["against"]) if given["against"] else None
    shown, failed = _run(files, settings, given, before)
    if as_json:
        print_json(shown)
    else:
        _print(shown, given["out"])
        if before is not None and has_common_turns(before, shown):
            click.echo()
            _print_comparison(compare(before, shown), given["against"], given["out"])
    for name, reason in failed.items():
        click.echo(f"{name} failed: {reason}", err=True)
    if failed:
        click.echo(
            f"{len(failed)} of {len(files)} scenarios failed; with --out {given['out']} "
            "the same command tries them again.",
            err=True,
        )
        ctx.exit(1)
    for score, limit in (("false_trigger_rate", given["max_false_trigger"]), ("miss_rate", given["max_miss"])):
        value = shown["scores"][score]["value"]
        if limit is not None and value is None:
            click.echo(f"{report.TITLES[score]}: no turn counts for it, so its limit says nothing.", err=True)
        elif limit is not None and value > limit:
            click.echo(f"{report.TITLES[score]}: {value:.3f} is above {limit}.", err=True)
            ctx.exit(CROSSED)


def _run(
    files: Sequence[File], settings: Settings, given: dict[str, Any], before: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    judge = judge_of(settings)
    given["out"] = given["out"] or Path(f"eval-{SystemClock().now():%Y%m%d-%H%M%S}")
    folder = Folder(given["out"])
    options = replace(Options(), mode=given["mode"], baselines=given["baseline"])
    with folder.owned():
        folder.begin(about(settings, given["mode"], judge.model.name if judge else None))
        folder.require_all(files)
        try:
            with progress_bar("turns") as bar:
                failed = Batch(files, folder, options, given["jobs"], bar).run()
        except KeyboardInterrupt:
            click.echo(f"With --out {folder.path} the same command goes on where it stopped.", err=True)
            raise
        shown = folder.results(files)
        report.write_pages(folder.path, shown, before)
    if before is not None and not has_common_turns(before, shown):
        click.echo(f"{given['against']} has no turn in common with this run: it is not compared.", err=True)
    return shown, failed


@eval_.command(name="compare")
@click.argument("a", type=click.Path(path_type=Path, exists=True))
@click.argument("b", type=click.Path(path_type=Path, exists=True))
@json_option
def compare_(a: Path, b: Path, as_json: bool) -> None:
    """Say what differs between runs A and B by more than noise."""
    found = compare(read_run(a), read_run(b))
    if as_json:
        print_json(comparison_shape(found))
        return
    _print_comparison(found, a, b)


def _print_comparison(found: Comparison, a: Path, b: Path) -> None:
    click.echo(f"A: {a}   B: {b}")
    click.echo(f"{found.paired} turns in both runs, {found.left_out} left out.")
    if found.note:
        click.echo(found.note)
    rows = [("score", "A", "B", "p", "")]
    for one in found.differences:
        p = "" if one.p is None else f"{one.p:.3f}"
        rows.append((report.TITLES[one.score], str(one.a), str(one.b), p, one.verdict))
    _print_table(rows)
    click.echo("p: McNemar's exact test on the paired turns, adjusted after Holm; from .05 on it may be chance.")


@eval_.command(name="capture")
@click.option("--turns", type=click.IntRange(1), default=200, show_default=True, help="How many turns are sampled.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another number, another sample.")
@owner_option
@json_option
def capture_(turns: int, seed: int, owner: str, as_json: bool) -> None:
    """Ask the judge model whether real talk was remembered well.

    That is: the events kept, the backchannels left out. It costs one call for ten turns.
    """
    settings = load_settings()
    if settings.judge_is_offline:
        raise StackmemError("This needs a judge: set STACKMEM_JUDGE_BASE_URL and _MODEL, or a chat model.")
    with store(settings), progress_bar("turns") as bar:
        groups = sample(owner, turns, seed)
        if not groups:
            raise StackmemError(f"{owner} has no turns that were looked at yet.")
        found = capture(groups, judge_model(settings), settings.judge_timeout_s, lambda done: bar(done, len(groups)))
    if found.unjudged == found.turns:
        raise StackmemError("The judge gave no opinion on any turn: see the log above, and STACKMEM_JUDGE_*.")
    if as_json:
        print_json(found.as_json())
        return
    judge = settings.judge_model or settings.chat_model
    click.echo(f"{found.turns} turns judged by {judge}, {found.unjudged} without an opinion.")
    click.echo(f"remembered what matters: {found.capture_recall}")
    click.echo(f"remembered noise: {found.noise_rate}")
    for turn in found.left_out:
        click.echo(f"  left out, turn {turn.id}: {turn.user[:60]}")
    for sources in found.kept_in_vain:
        click.echo(f"  kept in vain, turn {sources[0].id}: {sources[0].user[:60]}")


def comparison_shape(found: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON."""
    scores = {
        one.score: {
            "a": one.a.as_json(),
            "b": one.b.as_json(),
            "p": one.p,
            "verdict": one.verdict,
            "changes": [vars(change) for change in one.changes],
        }
        for one in found.differences
    }
    return {"paired": found.paired, "left_out": found.left_out, "note": found.note, "scores": scores}


def load(paths: Sequence[Path], settings: Settings) -> list[File]:
    """Read scenarios, without paths those of the package. Raises StackmemError that names every fault, a line each."""
    faults, files = [], []
    with resources.as_file(resources.files("evals") / "scenarios") as bundled:
        for file in files_of(paths or [bundled]):
            try:
                files.append(read(file, settings.zone))
            except ScenarioFaults as exc:
                faults += exc.faults
    known: dict[str, File] = {}
    for one in files:
        if (other := known.setdefault(one.scenario.id, one)) is not one:
            faults.append(Fault(one.path, 1, f"{other.path} is the scenario {one.scenario.id!r} too."))
    if faults:
        raise ScenarioFaults(faults)
    return files


def _print(shown: dict[str, Any], out: Path) -> None:
    _print_table(report.table(shown))
    for line in report.cost_lines(shown):
        click.echo(line)
    click.echo(f"{out / 'report.html'}")


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows[1:]:
        table.add_row(*row)
    # Without markup: a model's name may hold brackets.
    Console(width=None if Console().is_terminal else 200, markup=False, emoji=False, highlight=False).print(table)
