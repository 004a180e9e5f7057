"""``stackmem reindex``."""

import click

from stackmem.bootstrap import Runtime
from stackmem.cli.common import Server, json_option, print_json, store, with_server_or_own
from stackmem.cli.progress import follow, progress_bar
from stackmem.clock import SystemClock
from stackmem.config import Settings, load_settings
from stackmem.indexing import Progress
from stackmem.jobs import reindex_job
from stackmem.rebuilding import model_calls
from stackmem.work import is_compared, is_indexed


@click.command()
@click.option(
    "--from",
    "source",
    type=click.Choice(["memories", "turns"]),
    default="memories",
    show_default=True,
    help="memories: the index from the stored memories. turns: the memories too, from the conversations.",
)
@click.option("--yes", is_flag=True, help="Do not ask before calling the model.")
@json_option
def reindex(source: str, yes: bool, as_json: bool) -> None:
    """Rebuild the index of all owners; search goes on meanwhile.

    Everything in it comes from the database, so nothing is lost where it is deleted or damaged. A rebuild that was
    stopped, by kill -9 too, is done by the same command again, or by the next server.
    """
    settings = load_settings()
    if source == "turns" and not (yes or settings.memory_is_offline):
        _ask(settings)
    with progress_bar("Rebuilding") as bar:

        def ask(server: Server) -> int:
            job_id = server.call("POST", "/v1/admin/reindex", "home", body={"from": source})["job_id"]
            with store(settings):
                return _followed(job_id, source, bar)

        def alone(runtime: Runtime) -> int:
            job = reindex_job(source, SystemClock().now())
            runtime.work.rebuild(job.id)
            runtime.work.drain(lambda: is_settled(source))
            return _followed(job.id, source, bar)

        points = with_server_or_own(ask, alone, settings)
    if as_json:
        print_json({"points": points})
    else:
        click.echo(f"Rebuilt: {points} points.")


def _ask(settings: Settings) -> None:
    """Go on only where somebody wants to pay for it."""
    with store(settings):
        calls = model_calls()
    model = settings.memory_model or settings.chat_model
    try:
        go_on = not calls or click.confirm(f"This asks {model} up to {calls} times. Go on?", err=True)
    except click.Abort:  # nobody is there to answer
        go_on = False
    if not go_on:
        raise click.ClickException("Nothing was changed. With --yes it does not ask.")


def is_settled(source: str) -> bool:
    """Tell whether the index is whole; made from turns, the memories must have been compared too."""
    return is_indexed() and (source == "memories" or is_compared())


def _followed(job_id: int, source: str, bar: Progress) -> int:
    failed = "The rebuild failed, and the index is as it was"
    return int(follow(job_id, bar, lambda: is_settled(source), failed).done)
