"""A backup takes the place of a store: all rows in one transaction, then the persona files, then a new index."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from stackmem import store_copy
from stackmem.backup import LEFTOVER, PLAIN, address, check_backup, migration_names
from stackmem.database import migrate, scrub
from stackmem.exceptions import StackmemError, TransientError
from stackmem.jobs import reindex_job
from stackmem.models import Device, Memory, Turn
from stackmem.sqlite import Sqlite

COPY = ".restore-"  # how a folder for a copy begins


@contextmanager
def opened(path: Path, folder: Path) -> Iterator[Any]:
    """Open a checked backup for reading; one of an older version is brought up to date in a copy, inside ``folder``."""
    for left in folder.glob(f"{COPY}*"):  # of one that was killed
        shutil.rmtree(left)
    with closing(sqlite3.connect(address(path), uri=True)) as file, ExitStack() as stack:
        database = Sqlite(address(path), uri=True)
        if {name for (name,) in file.execute("SELECT name FROM schema_migration")} != migration_names():
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix=COPY, dir=folder))
            with closing(sqlite3.connect(Path(place) / "copy.db")) as copy:
                file.backup(copy)
            database = Sqlite(str(Path(place) / "copy.db"), pragmas=PLAIN)
            migrate(database)
        with database.connection_context():
            yield database


def is_empty() -> bool:
    """Tell whether the store that is open holds nothing that somebody could miss."""
    return not any(model.select().exists() for model in (Turn, Memory, Device))


def restore(database: Any, home: Path, path: Path, now: datetime, progress: store_copy.Progress | None = None) -> int:
    """Put a backup in the place of all that the store holds; return the id of the job that makes its index anew.

    All rows change in one transaction, and are compared with the backup before it ends: a kill -9 leaves what was
    there. Nobody else may use the store. Raises InvalidInput where the file cannot be used.
    """
    backup = check_backup(path)
    with opened(path, home) as source, store_copy.alone(database):
        last = store_copy.last_ids(database)
        store_copy.empty(database)
        read = store_copy.copy(source, database, store_copy.counter(store_copy.size(source), progress))
        store_copy.raise_ids(database, last)  # a robot may still know ids of what is gone
        if store_copy.content(database) != read:
            raise StackmemError("What was written is not what the backup holds; nothing was changed.")
        job = reindex_job("memories", now)
    with suppress(TransientError):  # somebody is reading what was there before
        scrub()
    for name, text in backup.files.items():
        _put_back(home / name, text)
    return int(job.id)


def _put_back(path: Path, text: bytes) -> None:
    if path.is_file() and path.read_bytes() == text:
        return
    path.parent.mkdir(exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}{LEFTOVER}")
    part.write_bytes(text)
    part.replace(path)
