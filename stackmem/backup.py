"""A backup is one file: a SQLite database with the tables of a store, whatever database that store is kept in.

Beside the rows it holds the persona files of the home folder and ``stackmem_backup``: when it was made, by which
version, and a hash of all the rest. The index is not in it: it is made from the stored vectors.
"""

import glob
import hashlib
import json
import os
import re
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
from peewee import SqliteDatabase

from stackmem import __version__, store_copy
from stackmem.database import migrate
from stackmem.exceptions import InvalidInput, StackmemError
from stackmem.models import Turn

FORMAT = 1
NOTE = "stackmem_backup"  # the table that tells what the file is
FILES = "stackmem_file"  # the table of the persona files
PLAIN = {"journal_mode": "delete", "foreign_keys": 1}  # a single file, no log beside it
LEFTOVER = ".part"
_PERSONA = re.compile(r"(persona/)?[^/.][^/]*\.toml")  # nothing in a backup is written elsewhere


@dataclass(frozen=True)
class Backup:
    """What a backup holds: numbers of rows by table, when it was made, and persona files by their names."""

    made_at: str
    turns: int
    memories: int
    files: dict[str, bytes]


def write_backup(database: Any, home: Path, path: Path, now: datetime) -> Backup:
    """Write a store that may be in use into one file, readable by this user alone; it is there whole or not at all.

    Raises InvalidInput where another file would be lost, OSError where it cannot be written.
    """
    path = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    _check_place(path, bool(Turn.select().exists()))
    _clear(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.{os.getpid()}.", suffix=LEFTOVER, dir=path.parent)  # 0600
    os.close(handle)
    part = Path(name)
    try:
        _fill(database, part)
        with closing(sqlite3.connect(part)) as file, file:
            _complete(file, home, now)
        backup = check_backup(part)
        _make_durable(part, path)
    finally:
        part.unlink(missing_ok=True)
    return backup


def _check_place(path: Path, has_turns: bool) -> None:
    """Overwrite nothing but an older backup; and that not with nothing, as after a wrong STACKMEM_HOME."""
    if not path.parent.is_dir():
        raise InvalidInput(f"{path.parent} is no folder.")
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder: name a file.")
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{path} is a device or a pipe, which a backup would replace: name a file.")
    if not path.exists() or path.stat().st_size == 0:
        return
    try:
        older = check_backup(path)
    except StackmemError as exc:
        raise InvalidInput(f"{path} is there, and no backup of stackmem: nothing was written. Name another.") from exc
    if older.turns and not has_turns:
        raise InvalidInput(f"The store is empty, and {path} is not: nothing was written. Is STACKMEM_HOME right?")


def _clear(path: Path) -> None:
    """Delete what backups left that were killed, for words are in it; one that is being made now stays."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{LEFTOVER}*"):
        pid = left.name.removeprefix(f".{path.name}.").partition(".")[0]
        if not (pid.isdecimal() and int(pid) != os.getpid() and psutil.pid_exists(int(pid))):
            left.unlink(missing_ok=True)


def _fill(database: Any, part: Path) -> None:
    if store_copy.is_sqlite(database):
        # One state of the store while others write, and without the pieces of what was deleted.
        database.execute_sql("VACUUM INTO ?", (str(part),))
        return
    target = SqliteDatabase(str(part), pragmas=PLAIN)
    migrate(target)
    with target.connection_context(), store_copy.reading(database), target.atomic():
        read = store_copy.copy(database, target)
        if read != store_copy.content(target):
            raise StackmemError("What was written is not what was read: is the disk in order?")


def _complete(file: sqlite3.Connection, home: Path, now: datetime) -> None:
    file.execute("PRAGMA journal_mode = DELETE")
    file.execute("DELETE FROM lease")
    file.execute(f"CREATE TABLE {FILES} (name TEXT PRIMARY KEY, content BLOB NOT NULL)")
    for name in _persona_files(home):
        file.execute(f"INSERT INTO {FILES} VALUES (?, ?)", (name, (home / name).read_bytes()))
    note = {"format": FORMAT, "version": __version__, "made_at": now.isoformat(), "sha256": _digest(file)}
    file.execute(f"CREATE TABLE {NOTE} (note TEXT NOT NULL)")
    file.execute(f"INSERT INTO {NOTE} VALUES (?)", (json.dumps(note),))


def _persona_files(home: Path) -> list[str]:
    names = (path.relative_to(home).as_posix() for path in [*home.glob("*.toml"), *home.glob("persona/*.toml")])
    return sorted(name for name in names if _PERSONA.fullmatch(name))


def _make_durable(part: Path, path: Path) -> None:
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _digest(file: sqlite3.Connection) -> str:
    """Return a hash of all tables but the note, as they are stored."""
    digest = hashlib.sha256()
    file.text_factory = bytes
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_stat%' ORDER BY name"
    for (name,) in file.execute(tables).fetchall():
        if name.decode() != NOTE:
            digest.update(name)
            for row in file.execute(f'SELECT * FROM "{name.decode()}" ORDER BY rowid'):
                digest.update(repr(row).encode())
    file.text_factory = str
    return digest.hexdigest()


def check_backup(path: Path) -> Backup:
    """Return what a backup holds. Raises InvalidInput with one sentence where it is none, damaged or too new."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InvalidInput(f"{path} is no file that can be read more than once: copy it into one.")
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as exc:
        raise InvalidInput(f"{path} cannot be read ({exc.strerror}).") from exc
    if head != b"SQLite format 3\x00":
        raise InvalidInput(f"{path} is no backup of stackmem.")
    try:
        with closing(sqlite3.connect(address(path), uri=True)) as opened:
            return _checked(opened, path)
    except (sqlite3.Error, ValueError, KeyError, TypeError) as exc:
        raise InvalidInput(f"{path} is damaged: take another backup.") from exc


def address(path: Path) -> str:
    """Return how SQLite is told to open a file that nobody changes, for reading."""
    return f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"


def _checked(file: sqlite3.Connection, path: Path) -> Backup:
    if not file.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (NOTE,)).fetchone():
        raise InvalidInput(f"{path} is no backup of stackmem: those are made by `stackmem backup FILE`.")
    note = json.loads(file.execute(f"SELECT note FROM {NOTE}").fetchone()[0])
    is_known = note["format"] <= FORMAT
    if file.execute("PRAGMA quick_check").fetchone()[0] != "ok" or (is_known and note["sha256"] != _digest(file)):
        raise InvalidInput(f"{path} is damaged: take another backup.")
    if not is_known or _unknown_migrations(file):
        raise InvalidInput(f"{path} was made by a newer stackmem ({note['version']}): install that version.")
    turns, memories = (file.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("turn", "memory"))
    files = {name: text for name, text in file.execute(f"SELECT * FROM {FILES}") if _PERSONA.fullmatch(name)}
    return Backup(note["made_at"], turns, memories, files)


def _unknown_migrations(file: sqlite3.Connection) -> set[str]:
    return {name for (name,) in file.execute("SELECT name FROM schema_migration")} - migration_names()


def migration_names() -> set[str]:
    """Return the names of the migrations that this stackmem knows."""
    return {path.stem for path in (Path(__file__).parent / "migrations").glob("[0-9]*.py")}
