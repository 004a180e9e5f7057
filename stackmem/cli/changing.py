"""``stackmem memories edit``, ``forget`` and ``alias``: what a person decides about memories."""

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from stackmem import forget_requests, listing, naming, shapes
from stackmem.answers import TYPES
from stackmem.cli.common import (
    WORDS,
    Server,
    json_option,
    own_runtime,
    owner_option,
    print_json,
    running_server,
    store,
)
from stackmem.clock import SystemClock, show_time
from stackmem.config import Settings, load_settings
from stackmem.editing import edit as edit_memory
from stackmem.exceptions import Busy, InvalidInput, TransientError
from stackmem.forgetting import forget as forget_memories
from stackmem.forgetting import purge_due, undo
from stackmem.models import Job, Memory, PointDeletion

POLL = 0.2  # seconds
number = click.IntRange(1, 2**31 - 1)
PATIENCE = 60.0  # seconds until the command leaves the rest to the running server


@click.command()
@click.argument("memory_id", type=WORDS)
@owner_option
@click.option("--summary", type=WORDS, help="What is true instead.")
@click.option("--topic", type=WORDS, help="Its title.")
@click.option("--entity", "entities", type=WORDS, multiple=True, help="A name in it; once for each, replacing all.")
@click.option("--type", "memory_type", type=click.Choice(TYPES), help="What kind of memory it is.")
@click.option("--at", "occurred_at", type=WORDS, help="When it happened, such as 2026-07-23.")
@click.option("--from", "occurred_from", type=WORDS, help="When it began.")
@click.option("--to", "occurred_to", type=WORDS, help="When it ended.")
@json_option
def edit(memory_id: str, owner: str, as_json: bool, entities: tuple[str, ...], **given: str | None) -> None:
    """Correct a memory; what it was stays in its history.

    Without options the summary opens in your editor.
    """
    settings = load_settings()
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if entities:
        changes["entities"] = list(entities)
    with store(settings) as database:
        if not changes and sys.stdin.isatty():
            changes = _from_editor(listing.one(owner, memory_id))
        if not changes:
            raise InvalidInput(
                "There is nothing to change: give --summary, --topic, --entity, --type, --at, --from or --to."
            )
        memory = edit_memory(owner, memory_id, changes, SystemClock().now(), settings.zone)
        _finish(settings, database, owner, lambda: not Memory.get_by_id(memory.id).outdated)
        line = shapes.memory_lines([memory], settings.zone)[0]
    if as_json:
        print_json(line)
    else:
        click.echo(f"{line['memory_id']} replaces {memory_id}.\n  {line['topic']}: {line['summary']}")


def _from_editor(memory: Memory) -> dict[str, Any]:
    text = click.edit(memory.summary)
    if text is None or text.strip() == memory.summary:
        raise InvalidInput("Nothing was changed.")
    return {"summary": text.strip()}


@click.command()
@click.argument("memory_ids", nargs=-1, type=WORDS)
@owner_option
@click.option("--turns", is_flag=True, help="Delete the words they came from, too.")
@click.option("--now", "at_once", is_flag=True, help="Delete for good at once, not a day later.")
@click.option(
    "--request", "request_id", type=number, help="All that a forget request concerns (see `stackmem status`)."
)
@json_option
def forget(
    memory_ids: tuple[str, ...], owner: str, turns: bool, at_once: bool, request_id: int | None, as_json: bool
) -> None:
    """Forget memories and what they replaced.

    They cannot be found from now on; a day later their text is deleted for good, and until then
    `stackmem memories restore` brings them back. No rebuild and no import does. The conversations stay unless --turns
    is given.
    """
    settings, now = load_settings(), SystemClock().now()
    with store(settings) as database:
        ids = [*memory_ids, *_requested(owner, request_id)]
        if not ids:
            raise InvalidInput("Say which memories: their ids (see `stackmem memories list`), or --request.")
        shown = _summaries(owner, ids)
        done = forget_memories(owner, ids, now, turns=turns, at_once=at_once)
        purge_due(now)
        finished = _finish(settings, database, owner, _is_gone(owner))
    purge_at = show_time(done.purge_at, settings.zone)
    until = "Deleted for good." if at_once else f"Deleted for good after {purge_at}; until then: memories restore."
    later = "" if finished else " The running server takes it out of the index's files in a moment."
    _tell({"memory_ids": done.memory_ids, "purge_at": purge_at}, f"{shown}{until}{later}", as_json)


@click.command()
@click.argument("memory_ids", nargs=-1, required=True, type=WORDS)
@owner_option
@json_option
def restore(memory_ids: tuple[str, ...], owner: str, as_json: bool) -> None:
    """Bring back forgotten memories that are not deleted yet."""
    settings = load_settings()
    with store(settings) as database:
        back = undo(owner, memory_ids)
        _finish(settings, database, owner, lambda: not Memory.select().where(_waits(back)).exists())
    _tell({"memory_ids": back}, f"Back again: {', '.join(back)}.", as_json)


@click.command()
@click.argument("request_id", type=number)
@owner_option
@json_option
def dismiss(request_id: int, owner: str, as_json: bool) -> None:
    """Drop a forget request; nothing is forgotten."""
    with store(load_settings()):
        forget_requests.close([forget_requests.one(owner, request_id)])
    _tell({"dismissed": request_id}, f"Forget request {request_id} is dropped; nothing was forgotten.", as_json)


def _requested(owner: str, request_id: int | None) -> list[str]:
    if request_id is None:
        return []
    found = [memory.id for memory in forget_requests.concerned(forget_requests.one(owner, request_id))]
    if not found:
        raise InvalidInput(
            f"No memory fits forget request {request_id}: name one, or drop it: memories dismiss {request_id}."
        )
    return found


def _summaries(owner: str, ids: list[str]) -> str:
    rows = Memory.select().where(Memory.owner == owner, Memory.id.in_(ids))
    return "".join(f"Forgotten: {row.topic}: {row.summary}\n" for row in rows)


def _waits(ids: list[str]) -> Any:
    return Memory.id.in_(ids) & Memory.outdated


def _is_gone(owner: str) -> Callable[[], bool]:
    def done() -> bool:
        scrubbing = Job.select().where(Job.kind == "scrub", Job.state.in_(["waiting", "running"]))
        return not (PointDeletion.select().where(PointDeletion.owner == owner).exists() or scrubbing.exists())

    return done


def _finish(settings: Settings, database: Any, owner: str, done: Callable[[], bool]) -> bool:
    """Have the running server, or this command itself, bring the index up to date; tell whether it is."""
    end = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < end:
        server = running_server(settings)
        try:
            if server is not None:
                _ask(server, owner, done, end)
            else:
                with own_runtime(settings, database) as runtime:
                    runtime.work.drain(lambda: done() or time.monotonic() > end)
        except Busy:
            return done()  # a server that cannot be asked: its own sweep does the rest
        except TransientError:
            time.sleep(POLL)
    return done()


def _ask(server: Server, owner: str, done: Callable[[], bool], end: float) -> None:
    server.call("POST", "/v1/admin/sweep", owner, body={})
    again = time.monotonic() + 5
    while not done() and time.monotonic() < min(again, end):
        time.sleep(POLL)


def _tell(value: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        click.echo(text)


@click.command()
@click.argument("names", nargs=-1, type=WORDS)
@owner_option
@click.option("--remove", is_flag=True, help="They are not the same thing.")
@json_option
def alias(names: tuple[str, ...], owner: str, remove: bool, as_json: bool) -> None:
    """Say that two names mean one thing, or list them.

    An example: stackmem memories alias 富士通 Fujitsu. A search for one then finds the other, too. Spelling (case,
    width, spaces, dashes) never counts anyway.
    """
    settings = load_settings()
    if names and len(names) != 2:
        raise InvalidInput("Give two names, or none to list what is known.")
    with store(settings):
        if names and remove:
            naming.remove_alias(owner, *names)
        elif names:
            naming.add_alias(owner, names[0], names[1], SystemClock().now())
        known = naming.aliases(owner)
    if as_json:
        print_json({"aliases": [{"names": [row.name, row.other_name], "turn_id": row.turn} for row in known]})
        return
    for row in known:
        source = "added by hand" if row.turn is None else f"said in turn {row.turn}"
        click.echo(f"{row.name} = {row.other_name}  ({source})")
    if not known:
        click.echo("No aliases yet. Add one: stackmem memories alias 富士通 Fujitsu")
