"""``stackmem memories``."""

from typing import Any

import click

from stackmem import listing, shapes
from stackmem.answers import TYPES
from stackmem.cli.changing import alias, dismiss, edit, forget, restore
from stackmem.cli.common import WORDS, json_option, owner_option, print_json, store, with_server_or_own
from stackmem.config import load_settings
from stackmem.text import for_terminal

STATUS_HELP = "superseded: replaced by a newer one. forgotten: not purged yet."
limit_range = click.IntRange(1, listing.HIGHEST_LIMIT)


@click.group()
def memories() -> None:
    """Look at what it remembers, correct it, make it forget."""


for command in (edit, forget, restore, dismiss, alias):
    memories.add_command(command)


@memories.command(name="list")
@owner_option
@click.option("--entity", type=WORDS, help="Only those about this person, place or thing.")
@click.option("--type", "memory_type", type=click.Choice(TYPES), help="Only those of this type.")
@click.option("--since", type=WORDS, help="Not before this day or time, such as 2026-07-23.")
@click.option("--until", type=WORDS, help="Not after this day or time.")
@click.option(
    "--status",
    type=click.Choice(listing.STATUSES),
    default="active",
    show_default=True,
    help=STATUS_HELP,
)
@click.option("--limit", type=limit_range, default=listing.LIST_LIMIT, show_default=True, help="At most so many.")
@json_option
def list_(owner: str, limit: int, as_json: bool, **wanted: str | None) -> None:
    """List memories; the newest comes first."""
    settings = load_settings()
    with store(settings):
        found = listing.newest(owner, wanted, limit, settings.zone)
    asked = any(wanted[name] for name in ("entity", "memory_type", "since", "until")) or wanted["status"] != "active"
    none = "Nothing fits." if asked else "No memories yet: they are made a few turns after something was told."
    _print(found, as_json, none)


@memories.command()
@click.argument("query", type=WORDS)
@owner_option
@click.option("--limit", type=limit_range, default=listing.SEARCH_LIMIT, show_default=True, help="At most so many.")
@json_option
def search(query: str, owner: str, limit: int, as_json: bool) -> None:
    """Search as the robot does; the best comes first."""
    settings = load_settings()
    found = with_server_or_own(
        lambda server: server.call("GET", "/v1/memories", owner, q=query, limit=limit),
        lambda runtime: listing.search(runtime.recall, owner, query, {}, limit, settings.zone),
        settings,
    )
    _print(found, as_json, "Nothing was found.")


@memories.command()
@click.argument("memory_id", type=WORDS)
@owner_option
@json_option
def show(memory_id: str, owner: str, as_json: bool) -> None:
    """Show a memory and the words it came from."""
    settings = load_settings()
    with store(settings):
        memory = listing.one(owner, memory_id)
        line = shapes.memory_lines([memory], settings.zone)[0]
        turns = listing.source_lines(memory, settings.zone)
        history = shapes.memory_lines(listing.history(memory), settings.zone)
    if as_json:
        print_json(line | {"turns": turns, "history": history})
        return
    _print_one(line)
    for turn in turns:
        click.echo(for_terminal(f"    {turn['at']}  user: {turn['user']}"))
        click.echo(for_terminal(f"    {'':25}  robot: {turn['reply']}"))
    for older in history:
        click.echo("  before:")
        _print_one(older)


def _print(found: dict[str, Any], as_json: bool, empty: str) -> None:
    if as_json:
        print_json(found)
        return
    for line in found["memories"]:
        _print_one(line)
    if not found["memories"]:
        click.echo(empty)


def _print_one(line: dict[str, Any]) -> None:
    link = f" → {line['superseded_by']}" if line["superseded_by"] else ""
    click.echo(f"{line['memory_id']}  {line['occurred_at'][:10]}  {line['memory_type']}, {line['status']}{link}")
    click.echo(for_terminal(f"  {line['topic']}: {line['summary']}"))
