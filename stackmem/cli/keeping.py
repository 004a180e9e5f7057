"""``stackmem backup``, ``stackmem restore`` and ``stackmem migrate-data``."""

from pathlib import Path

import click

from stackmem import data_migration, store_copy
from stackmem import restore as restoring
from stackmem.backup import check_backup, write_backup
from stackmem.bootstrap import owned_index_folder
from stackmem.cli.common import LOCK_WAIT, json_option, own_runtime, print_json, running_server, store
from stackmem.cli.progress import progress_bar
from stackmem.clock import SystemClock
from stackmem.config import Settings, load_settings
from stackmem.database import database_at
from stackmem.exceptions import Conflict, InvalidInput, SettingsError, TransientError
from stackmem.places import place

file_argument = click.argument("file", type=click.Path(path_type=Path))


@click.command()
@file_argument
@json_option
def backup(file: Path, as_json: bool) -> None:
    """Write everything into one file, while a server runs too.

    An older backup of that name is replaced. What you talked about stands in it in plain words: keep it as you keep
    those. Keys and settings are not in it.
    """
    settings = load_settings()
    with store(settings) as database:
        made = write_backup(database, settings.home, file.expanduser(), SystemClock().now())
    if as_json:
        print_json({"file": str(file), "turns": made.turns, "memories": made.memories, "made_at": made.made_at})
    else:
        click.echo(f"{file}: {made.turns} turns, {made.memories} memories.")


@click.command()
@file_argument
@click.option("--yes", is_flag=True, help="Do not ask before replacing what the store holds.")
@json_option
def restore(file: Path, yes: bool, as_json: bool) -> None:
    """Put a backup in the place of all that is here.

    No server may be running. Ids stay as they were. What was said or forgotten after the backup was
    made is as it was then.
    """
    settings, file = load_settings(), file.expanduser()
    found = check_backup(file)
    _refuse_beside_a_server(settings)
    with store(settings) as database, own_runtime(settings, database, rebuild=False) as runtime:
        _refuse_others(database)
        if not (yes or restoring.is_empty()):
            _ask(f"The store in {settings.home} is not empty: all in it is replaced by the backup of {found.made_at}.")
        with progress_bar("Restoring") as bar:
            job_id = restoring.restore(database, settings.home, file, SystemClock().now(), bar)
        try:
            runtime.work.rebuild(job_id)
        except TransientError as exc:
            click.echo(f"The index is made at the next start: {exc}", err=True)
    if as_json:
        print_json({"turns": found.turns, "memories": found.memories, "made_at": found.made_at})
    else:
        click.echo(f"Restored: {found.turns} turns, {found.memories} memories, as of {found.made_at}.")


@click.command(name="migrate-data")
@click.option("--to", "url", required=True, help="postgresql://user:password@host/name, or sqlite:////folder/name.db.")
@json_option
def migrate_data(url: str, as_json: bool) -> None:
    """Copy the whole store into another, empty database.

    Row for row, and both are compared; no server may be running. Stopped in the middle, by
    kill -9 too, it goes on when it is run again. The old store stays as it is.
    """
    settings = load_settings()
    _refuse_beside_a_server(settings)
    try:
        target = database_at(url)
    except SettingsError as exc:
        raise InvalidInput(str(exc).replace("STACKMEM_DATABASE_URL", "--to")) from exc
    if url == settings.database or _is_same_file(url, settings.database):
        raise InvalidInput("--to is the store that is in use already.")
    with owned_index_folder(settings, LOCK_WAIT), store(settings) as source, progress_bar("Moving") as bar:
        _refuse_others(source)
        moved = data_migration.move(source, target, bar)
    counts = {table: found.count for table, found in moved.items()}
    if as_json:
        print_json({"tables": counts})
        return
    click.echo(f"Moved and compared: {counts['turn']} turns, {counts['memory']} memories, {sum(counts.values())} rows.")
    click.echo("Now set STACKMEM_DATABASE_URL to that address wherever stackmem runs, and start it again.")
    click.echo(f"The old store stays as it was ({place(settings.database)}): delete it when you no longer want it.")


def _is_same_file(url: str, other: str) -> bool:
    """Tell whether two addresses name one SQLite file, by another spelling or a link: it must not be called the old."""
    if not (url.startswith("sqlite:") and other.startswith("sqlite:")):
        return False
    one, two = (Path(it.partition("///")[2]) for it in (url, other))
    return one.exists() and two.exists() and one.samefile(two)


def _refuse_beside_a_server(settings: Settings) -> None:
    if running_server(settings) is not None:
        raise Conflict("A server is running on this store: stop it, run this again, then start it.")


def _refuse_others(database: object) -> None:
    if others := store_copy.others_connected(database):
        raise Conflict(
            f"{others} other connections to the database are open: stop the web, worker and beat processes, run this "
            "again, then start them."
        )


def _ask(what: str) -> None:
    """Go on only where somebody says so."""
    try:
        go_on = click.confirm(f"{what} Go on?", err=True)
    except click.Abort:  # nobody is there to answer
        go_on = False
    if not go_on:
        raise click.ClickException("Nothing was changed. With --yes it does not ask.")
