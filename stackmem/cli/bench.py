"""``stackmem bench``: what embedders and searches cost on this machine."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from stackmem.bootstrap import make_home
from stackmem.cli.common import Server, json_option, owner_option, print_json, store, with_server_or_own
from stackmem.cli.progress import progress_bar
from stackmem.clock import SystemClock
from stackmem.config import load_settings
from stackmem.exceptions import NotFound
from stackmem.measuring.candidates import DIMS, EMBEDDERS
from stackmem.measuring.kept import keep
from stackmem.measuring.searching import by_stage, queries, shown, whole
from stackmem.models import Memory

NARROWEST = 32  # dimensions


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
@click.option("--embedder", "wanted", multiple=True, type=click.Choice(EMBEDDERS), help="Only.")
@click.option("--random-weights", is_flag=True, help="The Qwen3 model was never trained: judge its costs alone.")
@json_option
def embed(
    beside: str | None, dims: tuple[int, ...], wanted: Sequence[str], random_weights: bool, as_json: bool
) -> None:
    """Measure every embedder that is here, and recommend one.

    COMMAND is started, again whenever it ends well, and ended at last; a PID is only watched.
    """
    from stackmem.measuring.embedders import measure_all  # with psutil, which nothing else needs
    from stackmem.measuring.shown import show

    settings = load_settings()
    make_home(settings)
    wide = (*dims, settings.embedding_dim) if settings.embedding_dim else dims
    with progress_bar("Measuring") as report, _ended_as_by_ctrl_c():
        found = measure_all(settings, wanted, beside, wide, report, real=not random_weights)
    if not random_weights:
        keep(settings.home, found.cosines(), SystemClock().now())
    if as_json:
        print_json(found.as_json())
    else:
        show(found)


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


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM do in the block what Ctrl-C does: what was started here ends too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
