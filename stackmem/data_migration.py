"""A store moves to another database, row for row: from SQLite to PostgreSQL, and back.

While it is being filled, the target has a table ``data_migration`` of one row: which rows were to be copied (a hash of
them all) and how far that is. It changes in the same transaction as the rows, so a kill -9 at any moment can be
followed by the same command. A store with that table cannot be opened for anything else.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import peewee

from stackmem import store_copy
from stackmem.database import HALF_FILLED, migrate
from stackmem.exceptions import Conflict, InvalidInput, StackmemError
from stackmem.extras import install
from stackmem.store_copy import STORED, Content, Progress, table_of

Place = tuple[int, list[Any] | None]  # the table (its number in STORED) and the last key that was copied of it


def move(source: Any, target: Any, progress: Progress | None = None) -> dict[str, Content]:
    """Copy all rows of ``source``, which nobody else can change meanwhile, and compare them; return what they are.

    ``source`` is open, ``target`` is not. What an earlier try copied is kept where the source is still the same.
    Raises InvalidInput where the target holds something else or cannot be used, StackmemError where a table differs
    in the end.
    """
    _prepare(target)
    with target.connection_context(), store_copy.alone(source):
        if others := store_copy.others_connected(target):
            raise Conflict(f"{others} other connections to the target are open: stop what uses it.")
        step = store_copy.counter(3 * store_copy.size(source), progress)  # read, copied, compared
        wanted = store_copy.content(source, step)
        if is_half_filled_now(target) or store_copy.content(target) != wanted:
            _fill(source, target, wanted, step)
    return wanted


def is_half_filled_now(target: Any) -> bool:
    """Tell whether a migration into the target, which is open, was begun and not ended."""
    return bool(target.table_exists(HALF_FILLED))


def _prepare(target: Any) -> None:
    """Create the tables in an empty database. Raises InvalidInput where it cannot be used, or is somebody else's."""
    try:
        with target.connection_context():
            tables = set(target.get_tables()) - {"sqlite_sequence"}
        if tables and "schema_migration" not in tables:
            raise InvalidInput(
                "The target holds tables of something else: take an empty database. Nothing was changed."
            )
        migrate(target)
    except peewee.ImproperlyConfigured as exc:
        raise InvalidInput(f"PostgreSQL needs its driver; {install('postgres')}.") from exc
    except (peewee.DatabaseError, peewee.InterfaceError) as exc:
        said = " ".join(str(exc).split())
        raise InvalidInput(f"The target cannot be used ({said}). Is its address right, and does it exist?") from exc


def _fill(source: Any, target: Any, wanted: dict[str, Content], step: Callable[[int], None]) -> None:
    number, after = _begin(target, _hash(wanted))
    for done in STORED[:number]:
        step(wanted[table_of(done)].count)
    for index in range(number, len(STORED)):
        model = STORED[index]
        for batch in store_copy.rows(source, model, after):
            with target.atomic():
                store_copy.insert(target, model, batch)
                _note(target, index, store_copy.key_of(model, batch[-1]))
            step(len(batch))
        after = None
    found = store_copy.content(target, step)
    if wrong := [table for table in wanted if found[table] != wanted[table]]:
        raise StackmemError(
            f"The copy of {', '.join(wrong)} differs from what was read, so the old store stays in use. "
            "Empty the target, then run this again."
        )
    with target.atomic():
        store_copy.raise_ids(target, store_copy.last_ids(source))
        target.execute_sql(f"DROP TABLE {HALF_FILLED}")


def _begin(target: Any, source_hash: str) -> Place:
    """Return where to go on; from the start where the source is another than the last time."""
    if is_half_filled_now(target):
        known, number, key = target.execute_sql(f"SELECT source, place, last_key FROM {HALF_FILLED}").fetchone()
        if known == source_hash:
            return int(number), json.loads(key)
        with target.atomic():
            store_copy.empty(target)
            target.execute_sql(f"DROP TABLE {HALF_FILLED}")
    if any(found.count for found in store_copy.content(target).values()):
        raise InvalidInput("The target is a store with something in it: take an empty database. Nothing was changed.")
    with target.atomic():
        target.execute_sql(
            f"CREATE TABLE {HALF_FILLED} (source TEXT NOT NULL, place INTEGER NOT NULL, last_key TEXT NOT NULL)"
        )
        mark = target.param
        target.execute_sql(f"INSERT INTO {HALF_FILLED} VALUES ({mark}, 0, 'null')", (source_hash,))
    return 0, None


def _note(target: Any, number: int, key: Sequence[Any]) -> None:
    mark = target.param
    target.execute_sql(f"UPDATE {HALF_FILLED} SET place = {mark}, last_key = {mark}", (number, json.dumps(key)))


def _hash(wanted: dict[str, Content]) -> str:
    whole = json.dumps({table: [found.count, found.sha256] for table, found in wanted.items()})
    return hashlib.sha256(whole.encode()).hexdigest()
