"""The command line. Other packages add commands through the entry-point group ``stackmem.commands``."""

import io
import os
import sqlite3
import sys
from importlib.metadata import entry_points
from typing import Any

import click
from peewee import DatabaseError, InterfaceError

from stackmem import __version__
from stackmem.cli.bench import bench
from stackmem.cli.device import devices
from stackmem.cli.doctor import doctor
from stackmem.cli.explaining import why
from stackmem.cli.keeping import backup, migrate_data, restore
from stackmem.cli.memory import memories
from stackmem.cli.rebuild import reindex
from stackmem.cli.standing import retry, status
from stackmem.cli.talk import chat
from stackmem.cli.transfer import export, import_
from stackmem.exceptions import StackmemError

INTERRUPTED = 130  # what shells use for Ctrl-C


class Commands(click.Group):
    """A group that answers every error with one sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show Japanese
        try:
            return super().invoke(ctx)
        except StackmemError as exc:
            raise click.ClickException(str(exc)) from exc
        except (DatabaseError, InterfaceError, sqlite3.Error) as exc:  # rows are read outside of peewee's care
            raise click.ClickException(f"The database did not take it: {exc}.") from exc
        except BrokenPipeError:
            # The reader (head, less) has seen enough: what is still in the buffer goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from None
        except OSError as exc:
            where = f"{exc.filename}: " if exc.filename else ""
            raise click.ClickException(f"{where}{exc.strerror or exc}.") from exc
        except KeyboardInterrupt:
            click.echo("Stopped; nothing is lost.", err=True)
            raise SystemExit(INTERRUPTED) from None

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command of ours, or one that another package adds."""
        own = super().get_command(ctx, name)
        if own is not None:
            return own
        added = entry_points(group="stackmem.commands", name=name)
        return next(iter(added)).load() if added else None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *(point.name for point in entry_points(group="stackmem.commands"))})


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """A long-term memory for a small talking robot.

    Begin with `stackmem up`, then talk: `stackmem chat`.
    """


for command in (
    chat,
    import_,
    export,
    reindex,
    memories,
    why,
    devices,
    status,
    retry,
    bench,
    doctor,
    backup,
    restore,
    migrate_data,
):
    main.add_command(command)
