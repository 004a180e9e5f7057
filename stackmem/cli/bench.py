"""``stackmem bench``: what embedders and searches cost on this machine."""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stackmem.bootstrap import make_home
from stackmem.cli.common import Server, json_option, owner_option, print_json, store, with_server_or_own
from stackmem.cli.progress import progress_bar
from stackmem.clock import SystemClock
from stackmem.config import load_settings
from stackmem.exceptions import NotFound
from stackmem.indexing import Progress
from stackmem.measuring.advice import advice
from stackmem.measuring.candidates import DIMS, Candidate, candidates
from stackmem.measuring.kept import keep
from stackmem.measuring.other import Other
from stackmem.measuring.rows import BYTES, Costs, Row, rows
from stackmem.measuring.run import Measured, measure
from stackmem.measuring.sample import japanese
from stackmem.measuring.searching import by_stage, queries, shown, whole
from stackmem.measuring.usage import Usage, wait_until_loaded
from stackmem.models import Memory

NARROWEST = 32  # dimensions
WIDTH = 160  # characters of a table that goes into a file


class Dims(click.ParamType[tuple[int, ...]]):
    """Numbers of dimensions, separated by commas."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        try:
            dims = tuple(int(part) for part in value.split(","))
        except ValueError:
            dims = ()
        if not dims or min(dims) < NARROWEST:
            self.fail(f"{value!r} are no dimensions of {NARROWEST} or more, such as 1024,256.", param, ctx)
        return dims


@click.group()
def bench() -> None:
    """Measure this machine."""


@bench.command()
@click.option("--beside", metavar="COMMAND|PID", help="Measure also while this runs (a speech recogniser, say).")
@click.option("--dims", type=Dims(), default=DIMS, help="Dimensions of Qwen3 vectors: 1024,512,256,128,64.")
@click.option("--embedder", "wanted", multiple=True, type=click.Choice(["use", "e5", "qwen3", "openai"]), help="Only.")
@click.option("--random-weights", is_flag=True, help="The Qwen3 model was never trained: judge its costs alone.")
@json_option
def embed(
    beside: str | None, dims: tuple[int, ...], wanted: Sequence[str], random_weights: bool, as_json: bool
) -> None:
    """Measure every embedder that is here, and recommend one.

    COMMAND is started, again whenever it ends well, and ended at last; a PID is only watched.
    """
    settings = load_settings()
    make_home(settings)
    with progress_bar("Measuring") as report, _ended_as_by_ctrl_c():
        alone, with_other, by_itself = _measure(list(candidates(settings, wanted)), beside, report)
    sample = japanese()
    wide = (*dims, settings.embedding_dim) if settings.embedding_dim else dims
    found = list(rows(alone, with_other, sample, wide, real=not random_weights))
    if not random_weights:
        keep(settings.home, found, SystemClock().now())
    sentences = list(advice(found))
    if as_json:
        print_json(_json(found, beside, by_itself, sentences))
    else:
        _show(found, beside, by_itself, sentences)


@bench.command()
@owner_option
@click.option("--times", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Searches.")
@json_option
def search(owner: str, times: int, as_json: bool) -> None:
    """Time searches over your own store, for what was said last.

    While a server runs it is asked, and only the whole search is timed.
    """
    settings = load_settings()
    with store(settings):
        asked = queries(owner, times)
        memories = Memory.select().where(Memory.owner == owner, Memory.status == "active").count()
    if not asked:
        raise NotFound("Nothing was said yet, so there is nothing to search for: `stackmem chat` first.")

    def ask(server: Server) -> dict[str, list[float]]:
        return whole(lambda query: server.call("GET", "/v1/memories", owner, q=query), asked)

    stages = shown(
        with_server_or_own(ask, lambda runtime: by_stage(runtime.index, runtime.recall, owner, asked), settings)
    )
    if as_json:
        print_json({"memories": memories, "searches": times, "stages": stages})
        return
    click.echo(f"{times} searches among {memories} memories")
    for stage in stages:
        click.echo(f"  {stage['stage']:22}p50 {stage['p50_ms']:8.1f} ms   p95 {stage['p95_ms']:8.1f} ms")
    if len(stages) == 1:
        click.echo("Through the running server. Stop it to see the stages.")


# --- measured --------------------------------------------------------------------------------------------------------


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM do in the block what Ctrl-C does: what was started here ends too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _measure(
    todo: Sequence[Candidate], beside: str | None, report: Progress
) -> tuple[list[Measured], list[Measured], Usage | None]:
    """Measure all of them with the other program (first, so that a wrong command is known at once), then without.

    A process that ran before cannot be measured without.
    """
    if beside is None:
        return _each(todo, None, lambda done: report(done, len(todo))), [], None
    with Other(beside) as other:
        total = len(todo) * (2 if other.is_command else 1)
        report(0, total)
        by_itself = wait_until_loaded(other)
        with_other = _each(todo, other, lambda done: report(done, total))
    alone = _each(todo, None, lambda done: report(len(todo) + done, total)) if other.is_command else []
    return alone, with_other, by_itself


def _each(todo: Sequence[Candidate], other: Other | None, report: Callable[[int], None]) -> list[Measured]:
    found: list[Measured] = []
    for candidate in todo:
        report(len(found))
        found.append(measure(candidate, other))
    report(len(found))
    return found


# --- shown -----------------------------------------------------------------------------------------------------------


def _json(found: Sequence[Row], beside: str | None, by_itself: Usage | None, sentences: Sequence[str]) -> Any:
    return {
        "beside": {"program": beside, **asdict(by_itself)} if by_itself else None,
        "rows": [row.as_json() for row in found],
        "advice": sentences,
    }


def _show(found: Sequence[Row], beside: str | None, by_itself: Usage | None, sentences: Sequence[str]) -> None:
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if by_itself:
        console.print(
            f"{beside} by itself: {by_itself.memory_mb:,.0f} MB, {by_itself.cores:.1f} cores; "
            f"{by_itself.free_mb:,.0f} MB are free beside it.",
            markup=False, highlight=False,
        )  # fmt: skip
        console.print(_costs_table("Beside it", [(row, row.beside) for row in found], beside=True))
    if any(row.alone for row in found) or not by_itself:
        console.print(_costs_table("Without it" if by_itself else "", [(row, row.alone) for row in found]))
    console.print(_vectors_table(found))
    for sentence in sentences:
        console.print(sentence, markup=False, highlight=False)


def _costs_table(title: str, found: Iterable[tuple[Row, Costs | None]], *, beside: bool = False) -> Table:
    names = ["load s", "MB loaded", "MB at most", "query ms", "summary ms"]
    names += ["its MB", "its cores", "MB free at least"] if beside else []
    table = _table(title, ["embedder"], names, ["note"])
    for name, (row, costs) in {row.name: (row, costs) for row, costs in found}.items():
        cells = _cost_cells(costs, beside) if costs else ["–"] * len(names)
        table.add_row(name, *cells, Text(row.error))
    return table


def _cost_cells(costs: Costs, beside: bool) -> list[str]:
    cells = [f"{costs.load_s:.1f}", f"{costs.resident_mb:,.0f}", f"{costs.peak_mb:,.0f}"]
    cells += [f"{costs.query_ms:,.1f}", f"{costs.summary_ms:,.1f}"]
    if beside:
        usage = costs.usage
        cells += [f"{usage.memory_mb:,.0f}", f"{usage.cores:.1f}", f"{usage.least_free_mb:,.0f}"]
    return cells


def _vectors_table(found: Sequence[Row]) -> Table:
    questions = next((row.recall.questions for row in found if row.recall), 0)
    title = f"What they find: {questions} questions in Japanese, each with one answer among 40 memories"
    table = _table(
        title, ["embedder"], ["dimensions", "bytes a vector", "found first", "among 5", "cosine to fp32"], []
    )
    for row in found:
        if row.fingerprint:
            recall = row.recall
            table.add_row(
                row.name, str(row.dim), f"{row.dim * BYTES:,}",
                str(recall.at_1) if recall else "–", str(recall.at_5) if recall else "–",
                "–" if row.cosine is None else f"{row.cosine:.4f}",
            )  # fmt: skip
    return table


def _table(title: str, left: Sequence[str], right: Sequence[str], last: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right")
    for name in last:
        table.add_column(name, overflow="fold")
    return table
