"""Opening and migrating a store, and lending work to one worker at a time."""

import contextlib
import random
import sqlite3
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import peewee
import pytest

import stackmem
from stackmem.database import LEASE, Held, _switch_to_wal, lease, migrate, open_database, scrub, transaction
from stackmem.exceptions import Conflict, SettingsError, TransientError
from stackmem.models import TABLES, Lease, Owner, Turn, proxy
from stackmem.score_models import SCORE_TABLES
from tests.fakes import FixedClock
from tests.unit.world import World

ALL_TABLES = [*TABLES, *SCORE_TABLES]
MIGRATIONS = sorted((Path(stackmem.__file__).parent / "migrations").glob("0*.py"))


def test_a_new_store_has_every_table(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/deep/er/stackmem.db")
    with database.connection_context():
        assert {table._meta.table_name for table in ALL_TABLES} <= set(database.get_tables())
        assert all(table.select().count() == 0 for table in ALL_TABLES)


def test_the_migrations_make_what_the_models_say(database: Any) -> None:
    for table in ALL_TABLES:
        columns = {column.name: column.null for column in database.get_columns(table._meta.table_name)}
        assert columns == {field.column_name: field.null for field in table._meta.sorted_fields}
        indexes = {(tuple(i.columns), i.unique) for i in database.get_indexes(table._meta.table_name)}
        wanted = {(tuple(table._meta.fields[n].column_name for n in names), u) for names, u in table._meta.indexes}
        assert wanted <= indexes


def test_opening_again_keeps_everything_and_migrates_nothing(tmp_path: Path) -> None:
    for expected in (0, 1):
        database = open_database(f"sqlite:///{tmp_path}/stackmem.db")
        with database.connection_context():
            assert Owner.select().count() == expected
            Owner.insert(name="home").on_conflict_ignore().execute()
        assert migrate(database) == []


def test_a_store_of_a_newer_stackmem_is_refused(new_database: Callable[[], Any]) -> None:
    database = new_database()
    with database.connection_context():
        database.execute_sql(
            "INSERT INTO schema_migration (name, applied) "
            "SELECT '0099_from_the_future', applied FROM schema_migration LIMIT 1"
        )
    with pytest.raises(SettingsError, match=r"newer stackmem \(0099_from_the_future\): install that version"):
        migrate(database)


def test_two_starts_at_once_migrate_once(tmp_path: Path) -> None:
    path, applied = tmp_path / "stackmem.db", list[list[str]]()
    first = open_database(f"sqlite:///{tmp_path}/other.db")
    opened = [type(first)(str(path), pragmas=dict(first._pragmas), timeout=10, autoconnect=False) for _ in range(2)]
    together = threading.Barrier(2)

    def start(database: Any) -> None:
        together.wait()
        applied.append(migrate(database))

    threads = [threading.Thread(target=start, args=(database,)) for database in opened]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, applied)) == [0, len(MIGRATIONS)]


class Locked:
    """A database whose first connections fail."""

    def __init__(self, *problems: str):
        self.problems = list(problems)

    def connection_context(self) -> contextlib.AbstractContextManager[None]:
        if self.problems:
            raise peewee.OperationalError(self.problems.pop(0))
        return contextlib.nullcontext()


def test_a_file_that_another_process_is_switching_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("stackmem.database.time.sleep", waits.append)
    database = Locked("database is locked", "database is locked")
    _switch_to_wal(database)
    assert len(waits) == 2
    with pytest.raises(peewee.OperationalError, match="disk"):
        _switch_to_wal(Locked("database is locked", "disk I/O error"))


def test_what_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "stackmem.db").write_bytes(b"this is a letter to my aunt" * 100)
    with pytest.raises(SettingsError, match="The database cannot be used"):
        open_database(f"sqlite:///{tmp_path}/stackmem.db")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="STACKMEM_DATABASE_URL is wrong: .* cannot be written"):
        open_database(f"sqlite:///{tmp_path}/file/stackmem.db")


@pytest.mark.parametrize("url", ["oracle://x", "nonsense", "sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_an_unknown_kind_of_database_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="STACKMEM_DATABASE_URL is wrong"):
        open_database(url)


def test_nothing_connects_by_itself(new_database: Callable[[], Any]) -> None:
    new_database()
    with pytest.raises(Exception, match="database connection not opened"):
        Owner.select().count()


def test_the_store_is_durable_and_forgets_thoroughly(database: Any) -> None:
    values = {name: database.pragma(name) for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete")}
    assert values == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1}


def test_a_turn_id_is_never_given_twice(world: World) -> None:
    last = world.turns(3)[-1]
    Turn.delete().where(Turn.id == last.id).execute()
    assert world.turn("次").id > last.id


def test_a_transaction_takes_the_write_lock_at_once(database: Any) -> None:
    other = sqlite3.connect(database.database, timeout=0, isolation_level=None)
    try:
        with transaction(), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
    finally:
        other.close()


# --- leases ----------------------------------------------------------------------------------------------------------


def test_of_two_workers_one_holds_the_lease(database: Any, clock: FixedClock) -> None:
    with lease("session:1", clock) as first, lease("session:1", clock) as second, lease("session:2", clock) as other:
        assert first is not None
        assert second is None
        assert other is not None


def test_a_lease_is_given_back(database: Any, clock: FixedClock) -> None:
    for _ in range(2):
        with lease("x", clock) as held:
            assert held is not None
    assert Lease.select().count() == 0


def test_a_lease_is_given_back_when_the_work_fails(database: Any, clock: FixedClock) -> None:
    with pytest.raises(RuntimeError), lease("x", clock):
        raise RuntimeError
    with lease("x", clock) as held:
        assert held is not None


@pytest.mark.parametrize(("seconds", "free"), [(LEASE - 1, False), (LEASE, False), (LEASE + 1, True)])
def test_a_dead_workers_lease_runs_out(database: Any, clock: FixedClock, seconds: int, free: bool) -> None:
    Lease.create(name="x", holder="dead", until=clock.now() + timedelta(seconds=LEASE))
    clock.advance(seconds=seconds)
    with lease("x", clock) as held:
        assert (held is not None) is free


def test_a_check_renews_the_lease(database: Any, clock: FixedClock) -> None:
    with lease("x", clock) as held:
        assert held is not None
        clock.advance(seconds=80)
        held.check()
        assert Lease.get().until == clock.now() + timedelta(seconds=LEASE)


def test_a_lost_lease_is_noticed_and_left_to_its_new_holder(database: Any, clock: FixedClock) -> None:
    with lease("x", clock) as held:
        assert held is not None
        clock.advance(seconds=LEASE + 1)
        with lease("x", clock) as new:
            assert new is not None
            with pytest.raises(Conflict, match="The lease on x was lost"):
                held.check()
            new.check()
    assert Lease.select().count() == 0


class Ticks(threading.Event):
    """An event whose waits end at once: so many times in vain, then for good."""

    def __init__(self, ticks: int):
        super().__init__()
        self.left = ticks

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_lease_is_renewed_while_its_work_runs(database: Any, clock: FixedClock) -> None:
    Lease.create(name="x", holder="me", until=clock.now())
    clock.advance(seconds=30)
    _in_a_thread(lambda: Held("x", "me", clock)._renew(Ticks(2)))
    assert Lease.get().until == clock.now() + timedelta(seconds=LEASE)


def test_a_renewal_that_fails_is_logged_and_tried_again(
    database: Any, clock: FixedClock, caplog: pytest.LogCaptureFixture
) -> None:
    _in_a_thread(lambda: Held("x", "me", clock)._renew(Ticks(2)))
    assert [record.getMessage() for record in caplog.records] == [
        "lease x not renewed: The lease on x was lost to another worker."
    ] * 2


def _in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not proxy.is_closed()  # the caller's own connection is untouched


def test_a_scrubbed_file_holds_nothing_between_the_cells_of_its_pages(tmp_path: Path) -> None:
    database, dice = open_database(f"sqlite:///{tmp_path}/stackmem.db"), random.Random(46)
    word, execute = "キャラメル", proxy.execute_sql
    with database.connection_context():
        for number in range(150):  # secure_delete alone leaves the word in a few of these tables
            with transaction():
                execute(f"CREATE TABLE t{number} (id INTEGER PRIMARY KEY, a TEXT, b TEXT DEFAULT '')")
                for row in range(dice.randint(1, 60)):
                    said = word if dice.random() < 0.15 else "みかん"
                    execute(f"INSERT INTO t{number} (a) VALUES (?)", (said + "だよ" * dice.randint(1, 60),))
                    execute(f"UPDATE t{number} SET b = b || ? WHERE id = ?", ("よ" * 40, dice.randint(1, row + 1)))
                execute(f"UPDATE t{number} SET a = '' WHERE a LIKE ?", (f"%{word}%",))
        scrub()
        assert [path.name for path in tmp_path.iterdir() if word.encode() in path.read_bytes()] == []
        assert execute("SELECT count(*) FROM t0 WHERE a LIKE 'みかん%'").fetchone()[0] > 0


def test_a_file_that_is_in_use_is_scrubbed_later(database: Any) -> None:
    execute = proxy.execute_sql
    execute("PRAGMA busy_timeout = 1")
    with contextlib.closing(sqlite3.connect(database.database, isolation_level=None)) as other:
        for busy, sentence in (("BEGIN IMMEDIATE", "written anew"), ("BEGIN", "is being read")):
            other.execute(busy)
            other.execute("SELECT count(*) FROM turn").fetchall()
            with pytest.raises(TransientError, match=sentence):
                scrub()
            other.execute("ROLLBACK")
    scrub()
