"""``stackmem import`` and ``stackmem export``."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stackmem.cli.common import (
    json_option,
    own_runtime,
    owner_option,
    print_json,
    running_server,
    store,
)
from stackmem.cli.progress import counting_down, progress_bar
from stackmem.clock import SystemClock
from stackmem.config import Settings, load_settings
from stackmem.exceptions import Busy, StackmemError, TransientError
from stackmem.exporting import export_lines
from stackmem.importing import Imported, Importer
from stackmem.models import Memory, Turn
from stackmem.status import pending

POLL = 0.3  # seconds
FAULTS_SHOWN = 20

files_argument = click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))


@click.command(name="import")
@files_argument
@owner_option
@click.option("--both-speakers", is_flag=True, help="Two people talked: remember both sides' facts alike.")
@json_option
def import_(files: tuple[str, ...], owner: str, both_speakers: bool, as_json: bool) -> None:
    """Take conversations, or an export, from JSON lines.

    A line of a conversation is {"session", "at", "role": "user" or "assistant", "text"}; a line that is not valid is
    named and skipped. The same file twice adds nothing. The command returns when everything is remembered; Ctrl-C loses
    nothing: a server, or the same command again, goes on.
    """
    settings = load_settings()
    results = []
    with store(settings) as database:
        for file in files:
            result = _read(file, Importer(owner, settings.zone, SystemClock().now(), both_speakers))
            results.append({"file": file, **_summary(result)})
            if not as_json:
                _tell(file, result)
        _wait_until_remembered(settings, database, owner)
        states = {
            state: Turn.select().where(Turn.owner == owner, Turn.imported, Turn.state == state).count()
            for state in ("kept", "skipped", "failed")
        }
        remembered = Memory.select().where(Memory.owner == owner, Memory.status == "active").count()
    if as_json:
        print_json({"files": results, "states": states, "active_memories": remembered})
    else:
        told = ", ".join(f"{number} turns {state}" for state, number in states.items())
        click.echo(f"Remembered: {told}; {remembered} memories in all.")
    useless = [result["file"] for result in results if _is_useless(result)]
    if useless:
        raise StackmemError(f"{', '.join(useless)}: no line could be used.")


def _read(file: str, importer: Importer) -> Imported:
    try:
        with Path(file).open("rb") as lines:
            return importer.run(lines)
    except OSError as exc:
        raise StackmemError(f"{file} cannot be read: {exc.strerror}.") from exc


def _summary(result: Imported) -> dict[str, Any]:
    return {
        "turns": result.turns,
        "already_there": result.known,
        "memories": result.memories,
        "skipped_lines": result.faults,
    }


def _is_useless(result: dict[str, Any]) -> bool:
    return bool(result["skipped_lines"]) and not any(result[name] for name in ("turns", "already_there", "memories"))


def _tell(file: str, result: Imported) -> None:
    for fault in result.faults[:FAULTS_SHOWN]:
        click.echo(f"{file}:{fault['line']}: skipped: {fault['reason']}", err=True)
    if len(result.faults) > FAULTS_SHOWN:
        click.echo(f"{file}: … and {len(result.faults) - FAULTS_SHOWN} more lines skipped.", err=True)
    click.echo(
        f"{file}: {result.turns} new turns, {result.known} already there"
        + (f", {result.memories} memories of an export." if result.memories else ".")
    )


def left_to_do(owner: str) -> int:
    """Return how many of the owner's imported turns and memories are not done yet."""
    waiting = Turn.select().where(Turn.owner == owner, Turn.imported, Turn.state == "pending").count()
    return int(waiting) + pending(owner)


def _wait_until_remembered(settings: Settings, database: Any, owner: str) -> None:
    """Have the running server remember, or do it here; the other one takes over where a server starts or dies."""
    with progress_bar("Remembering") as bar:
        done = counting_down(bar, lambda: left_to_do(owner))
        while not done():
            server = running_server(settings)
            if server is not None:
                try:
                    server.call("POST", "/v1/admin/sweep", owner, body={})
                except TransientError:
                    continue
                _poll(done, still=lambda: running_server(settings) is not None)
            else:
                try:
                    with own_runtime(settings, database) as runtime:
                        runtime.work.drain(done)
                except Busy:
                    time.sleep(POLL)  # a server is just starting


def _poll(done: Callable[[], bool], still: Callable[[], bool]) -> None:
    rounds = 0
    while not done():
        time.sleep(POLL)
        rounds += 1
        if rounds % 10 == 0 and not still():
            return


@click.command()
@owner_option
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="A file; standard output where not given.")
def export(owner: str, output: str | None) -> None:
    """Write all sessions, turns and memories as JSON lines.

    `stackmem import` takes them back, here or in another home folder.
    """
    settings = load_settings()
    # A file is there whole or not at all; a device or a pipe must not be replaced by one.
    whole = output is not None and output != "-" and (Path(output).is_file() or not Path(output).exists())
    with store(settings), click.open_file(output or "-", "w", encoding="utf-8", atomic=whole) as out:
        for line in export_lines(owner, settings.zone):
            out.write(line + "\n")
