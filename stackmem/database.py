"""Open the database, migrate it, and lend work to one worker at a time."""

import logging
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import peewee
from peewee import SqliteDatabase
from playhouse.migrations import Runner

from stackmem.exceptions import Conflict, SettingsError, TransientError
from stackmem.extras import install
from stackmem.models import Lease, proxy
from stackmem.ports import Clock
from stackmem.postgres import is_deadlock, postgres
from stackmem.sqlite import Sqlite

log = logging.getLogger(__name__)

LEASE = 90  # seconds
RENEW = 30  # seconds
TRIES = 5  # of a live turn's transaction

T = TypeVar("T")

# WAL: readers never wait for the writer. FULL: an acknowledged turn survives a power cut.
# secure_delete: what is forgotten is overwritten, mostly (see scrub). https://sqlite.org/pragma.html
PRAGMAS: dict[str, Any] = {
    "journal_mode": "wal",
    "synchronous": "full",
    "busy_timeout": 10_000,
    "foreign_keys": 1,
    "secure_delete": 1,
}


def open_database(url: str) -> Any:
    """Connect, migrate and bind the models to the database at ``url``; return it.

    Raises SettingsError with one sentence when it cannot be opened or belongs to a newer stackmem.
    """
    database = database_at(url)
    proxy.initialize(database)
    try:
        migrate(database)
        if is_half_filled(database):
            raise SettingsError(
                "This store is half filled: let the same `stackmem migrate-data --to …` run to its end first."
            )
    except peewee.ImproperlyConfigured as exc:
        raise SettingsError(
            f"STACKMEM_DATABASE_URL is wrong: PostgreSQL needs its driver; {install('postgres')}."
        ) from exc
    except (peewee.DatabaseError, peewee.InterfaceError, sqlite3.Error) as exc:
        raise SettingsError(
            f"The database cannot be used ({' '.join(str(exc).split())}). Check STACKMEM_DATABASE_URL and the folder."
        ) from exc
    return database


def database_at(url: str) -> Any:
    """Return the database at an address, not connected. Raises SettingsError with one sentence."""
    return _sqlite(url) if url.startswith("sqlite:") else _postgres(url)


def _sqlite(url: str) -> Any:
    prefix, _, name = url.partition("///")
    if prefix != "sqlite:" or name in ("", ":memory:"):
        raise SettingsError(
            "STACKMEM_DATABASE_URL is wrong: a file is written as sqlite:////folder/name.db, with its whole path."
        )
    path = Path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise SettingsError(
            f"STACKMEM_DATABASE_URL is wrong: {path.parent} cannot be written ({exc.strerror})."
        ) from exc
    return Sqlite(str(path), pragmas=PRAGMAS, timeout=10, autoconnect=False)


def _postgres(url: str) -> Any:
    if url.partition("://")[0] not in ("postgresql", "postgres"):
        raise SettingsError(
            "STACKMEM_DATABASE_URL is wrong: it is postgresql://user:password@host/name or sqlite:///…."
        )
    try:
        return postgres(url)
    except (ValueError, TypeError) as exc:
        raise SettingsError(f"STACKMEM_DATABASE_URL is wrong: {exc}.") from exc


def migrate(database: Any) -> list[str]:
    """Apply the numbered migrations not yet applied; return their names."""
    runner = Runner(database, str(Path(__file__).parent / "migrations"))
    if isinstance(database, SqliteDatabase):
        _switch_to_wal(database)
    with database.connection_context():
        unknown = [row.name for row in runner.status() if row.path is None]
        if unknown:
            raise SettingsError(f"This store was written by a newer stackmem ({unknown[-1]}): install that version.")
        if all(row.applied for row in runner.status()):
            return []
        with _migration_lock(database):
            return list(runner.up())


HALF_FILLED = "data_migration"  # a table that is there while `stackmem migrate-data` fills a store


def is_half_filled(database: Any) -> bool:
    """Tell whether a migration into this store was begun and not ended."""
    with database.connection_context():
        return bool(database.table_exists(HALF_FILLED))


def _switch_to_wal(database: Any) -> None:
    # The first connection to a new file switches it to WAL, and SQLite does not wait for the lock that this needs:
    # of two processes that start at once, one would fail. https://sqlite.org/wal.html
    end = time.monotonic() + PRAGMAS["busy_timeout"] / 1000
    while True:
        try:
            with database.connection_context():
                return
        except peewee.OperationalError as exc:
            if "locked" not in str(exc) or time.monotonic() > end:
                raise
        time.sleep(0.02)


@contextmanager
def _migration_lock(database: Any) -> Iterator[None]:
    # Two processes may start at once: the second waits, then finds nothing left to apply.
    if isinstance(database, SqliteDatabase):
        with database.atomic("EXCLUSIVE"):
            yield
    else:
        with database.atomic():
            database.execute_sql("SELECT pg_advisory_xact_lock(8765)")
            yield


# SQLite's own waiting for its write lock sleeps in steps of up to 100 ms; the threads of a process queue here instead.
_writing = threading.RLock()
_ONE_WRITES = 8766  # number of PostgreSQL's lock under which one writes alone, or live turns write beside each other


@contextmanager
def transaction() -> Iterator[None]:
    """One transaction beside which nobody else has one: what it has read stays true until it ends.

    SQLite's write lock is taken at once, so that it never fails half-way for being late.
    """
    if isinstance(proxy.obj, SqliteDatabase):
        with _writing, proxy.atomic("IMMEDIATE"):
            yield
    else:
        with proxy.atomic():
            proxy.execute_sql(f"SELECT pg_advisory_xact_lock({_ONE_WRITES})")
            yield


def live_transaction(work: Callable[[], T]) -> T:
    """Run the work of a live turn in one transaction and return its result.

    In PostgreSQL others of its kind run beside it: it locks the rows whose state it relies on (``lock_row``), and
    ``work`` is run once more where two of them waited for each other, or where its connection was cut before the end.
    """
    if isinstance(proxy.obj, SqliteDatabase):
        with transaction():
            return work()
    for _ in range(TRIES - 1):
        finished = list[T]()
        try:
            _beside_others(work, finished)
            return finished[0]
        except (peewee.OperationalError, peewee.InterfaceError) as exc:
            # Cut while it was being committed, it may be done.
            if not (is_deadlock(exc) or (not finished and proxy.obj.is_cut())):
                raise
    _beside_others(work, finished := [])
    return finished[0]


def _beside_others(work: Callable[[], T], finished: list[T]) -> None:
    with proxy.atomic():
        proxy.execute_sql(f"SELECT pg_advisory_xact_lock_shared({_ONE_WRITES})")
        finished.append(work())


def lock_row(row: Any) -> None:
    """Let no other live turn change a row, or rely on it, until this transaction ends."""
    if not isinstance(proxy.obj, SqliteDatabase):  # there every transaction is alone
        list(type(row).select(row._meta.primary_key).where(row._pk_expr()).for_update().tuples())


def scrub() -> None:
    """Write SQLite's file anew and empty its log; both still hold pieces of what was deleted.

    Raises TransientError while somebody else is in the middle of writing or reading.
    """
    if not isinstance(proxy.obj, SqliteDatabase):
        return
    try:
        # secure_delete leaves what stood between the cells of a page when SQLite moved cells to another page.
        proxy.execute_sql("VACUUM")
    except peewee.OperationalError as exc:
        raise TransientError(f"The database cannot be written anew now ({exc}): that is done a little later.") from exc
    # The log holds pages as they were before something was deleted.
    if proxy.execute_sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        raise TransientError("The database's log is being read: it is emptied a little later.")


INDEX_OWNER = "index owner"  # the lease of the folder that is the index; who had it last stays written


def drop_leases(database: Any) -> None:
    """Drop the leases of dead workers; only for who knows that nobody else can be working."""
    opened = database.connect(reuse_if_open=True)
    try:
        Lease.delete().where(Lease.name != INDEX_OWNER).execute()
    finally:
        if opened:
            database.close()


class Held:
    """A lease that is held and renewed until it is released."""

    def __init__(self, name: str, holder: str, clock: Clock):
        self.name, self.holder, self._clock = name, holder, clock

    def check(self) -> None:
        """Raise Conflict unless the lease is still ours; call it inside the transaction that writes the result."""
        ours = Lease.update(until=self._clock.now() + timedelta(seconds=LEASE)).where(
            Lease.name == self.name, Lease.holder == self.holder
        )
        if not ours.execute():
            raise Conflict(f"The lease on {self.name} was lost to another worker.")

    def _renew(self, stop: threading.Event) -> None:
        while not stop.wait(RENEW):
            try:
                with proxy.connection_context():
                    self.check()
            except (Conflict, peewee.DatabaseError) as exc:
                log.warning("lease %s not renewed: %s", self.name, exc)


@contextmanager
def lease(name: str, clock: Clock) -> Iterator[Held | None]:
    """Hold ``name`` while the block runs, renewing the lease; yield None when another worker holds it."""
    now = clock.now()
    held = Held(name, uuid.uuid4().hex, clock)
    row = {"name": name, "holder": held.holder, "until": now + timedelta(seconds=LEASE)}
    stop = threading.Event()
    renewer = threading.Thread(target=held._renew, args=(stop,), name=f"lease {name}", daemon=True)
    try:  # from the insert on: Ctrl-C comes most often while a commit waits for the disk
        with transaction():
            Lease.delete().where(Lease.name == name, Lease.until < now).execute()
            Lease.insert(row).on_conflict_ignore().execute()
            mine = Lease.select().where(Lease.name == name, Lease.holder == held.holder).exists()
        if mine:
            renewer.start()
        else:
            log.debug("%s is held by another worker", name)
        yield held if mine else None
    finally:
        stop.set()
        Lease.delete().where(Lease.name == name, Lease.holder == held.holder).execute()
        if renewer.ident is not None:
            renewer.join()
