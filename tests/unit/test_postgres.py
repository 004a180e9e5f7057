"""A store in PostgreSQL: robots that talk at once, and connections that are cut."""

import threading
from collections.abc import Callable
from typing import Any

import peewee
import pytest

from stackmem.converse import Said
from stackmem.database import live_transaction, lock_row, migrate, open_database, scrub, transaction
from stackmem.exceptions import SettingsError, TransientError
from stackmem.models import Lease, Owner, Session, Turn
from stackmem.postgres import Postgres as Database
from stackmem.postgres import code_of, postgres
from tests.services import Postgres
from tests.unit.world import World

AT_ONCE = 8


@pytest.fixture
def database_kind() -> str:
    """All of these are about PostgreSQL."""
    return "postgres"


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Do the work in so many threads, each with a connection of its own; return the results, or what was raised."""
    together, results = threading.Barrier(count), list[Any]([None] * count)

    def run(number: int) -> None:
        together.wait()
        try:
            with Turn._meta.database.connection_context():
                results[number] = work(number)
        except Exception as exc:  # the test looks at it
            results[number] = exc

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def problems(results: list[Any]) -> list[Any]:
    return [result for result in results if isinstance(result, Exception)]


# --- at once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["台所", None])
def test_turns_said_at_once_begin_one_session_and_stand_in_one_order(offline: World, session: str | None) -> None:
    said = at_once(AT_ONCE, lambda number: offline.say(f"話{number}", session))
    assert problems(said) == []
    assert Session.select().count() == 1
    assert sorted(turn.ordinal for turn in Turn.select()) == list(range(1, AT_ONCE + 1))
    assert [turn.state for turn in Turn.select()] == ["pending"] * AT_ONCE


def test_turns_of_many_sessions_said_at_once_are_all_there(offline: World) -> None:
    def talk(number: int) -> None:
        for part in range(6):  # every first turn of a session looks at the owner's others
            offline.say(f"話{number}の{part}", f"s{number}-{part // 2}")

    assert problems(at_once(AT_ONCE, talk)) == []
    assert Turn.select().count() == AT_ONCE * 6
    assert Session.select().count() == AT_ONCE * 3


def test_the_same_key_at_once_is_one_turn(offline: World) -> None:
    said = at_once(AT_ONCE, lambda _: offline.conversation.turn(Said("home", "こんにちは", "s", key="k")))
    assert problems(said) == []
    assert len({turn.id for turn in said}) == Turn.select().count() == 1


def test_background_writes_stand_alone_and_live_turns_beside_each_other(offline: World) -> None:
    inside: list[str] = []
    both = threading.Barrier(2)

    def live(_: int) -> None:
        live_transaction(lambda: both.wait(10))  # neither comes through alone

    assert problems(at_once(2, live)) == []

    def alone(_: int) -> None:
        with transaction():
            inside.append("in")
            Owner.select().count()
            inside.append("out")

    assert problems(at_once(AT_ONCE, alone)) == []
    assert inside == ["in", "out"] * AT_ONCE


def test_live_turns_that_wait_for_each_other_are_both_done(offline: World) -> None:
    rows = [offline.session(name) for name in ("a", "b")]
    first_locks = threading.Barrier(2)
    tries: list[int] = []

    def cross(number: int) -> None:
        def work() -> None:
            tries.append(number)
            lock_row(rows[number])
            if len(tries) <= 2:
                first_locks.wait(10)
            lock_row(rows[1 - number])

        live_transaction(work)

    assert problems(at_once(2, cross)) == []
    assert len(tries) >= 3


def test_other_errors_of_a_live_turn_are_raised_at_once(database: Any) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        Owner._meta.database.execute_sql("SET statement_timeout = 1; SELECT pg_sleep(5)")

    with pytest.raises(peewee.OperationalError):
        live_transaction(work)
    assert tries == [1]


def test_starts_at_once_migrate_an_empty_store_once(postgres_server: Postgres) -> None:
    url, together, applied = postgres_server.create("fresh"), threading.Barrier(4), list[Any]()

    def start() -> None:
        database = postgres(url)
        together.wait()
        try:
            applied.append(len(migrate(database)))
        except Exception as exc:  # the test looks at it
            applied.append(exc)
        database.close_all()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems(applied) == []
    assert sorted(applied)[:3] == [0, 0, 0]
    assert sorted(applied)[3] > 0


# --- cut -------------------------------------------------------------------------------------------------------------


def test_a_read_or_write_on_a_cut_connection_takes_another(database: Any, postgres_server: Postgres) -> None:
    Owner.create(name="home")
    for statement in (
        lambda: Owner.select().count(),
        lambda: Owner.update(delays=Owner.delays + 1).execute(),
        lambda: Owner.insert(name="mari").execute(),
    ):
        postgres_server.cut(database.database)
        statement()
    assert sorted((row.name, row.delays) for row in Owner.select()) == [("home", 1), ("mari", 0)]


def test_a_transaction_begins_on_another_connection_where_this_one_was_cut(
    offline: World, database: Any, postgres_server: Postgres
) -> None:
    postgres_server.cut(database.database)
    assert offline.say("うちの猫の名前はモモだよ").state == "pending"
    postgres_server.cut(database.database)
    with transaction():
        Owner.update(delays=3).execute()
    assert Owner.get().delays == 3


def test_a_transaction_that_is_cut_is_undone_and_says_so(database: Any, postgres_server: Postgres) -> None:
    Owner.create(name="home")

    @transaction()
    def change() -> None:
        Owner.update(delays=1).execute()
        postgres_server.cut(database.database)
        Owner.update(delays=2).execute()

    with pytest.raises((peewee.OperationalError, peewee.InterfaceError)):
        change()
    assert Owner.get().delays == 0


def test_a_live_turns_transaction_that_is_cut_is_done_once_on_another_connection(
    database: Any, postgres_server: Postgres
) -> None:
    tries: list[int] = []

    def work() -> int:
        tries.append(len(tries))
        Owner.insert(name=f"o{tries[-1]}").execute()
        if len(tries) < 3:
            postgres_server.cut(database.database)
        return Owner.select().count()

    assert live_transaction(work) == 1
    assert [row.name for row in Owner.select()] == ["o2"]


def test_a_live_turns_transaction_that_is_always_cut_ends(database: Any, postgres_server: Postgres) -> None:
    def work() -> None:
        postgres_server.cut(database.database)
        Owner.select().count()

    with pytest.raises((peewee.OperationalError, peewee.InterfaceError)):
        live_transaction(work)
    assert Owner.select().count() == 0


def test_connections_that_lie_in_the_pool_are_looked_at(database: Any, postgres_server: Postgres) -> None:
    def read(_: int) -> int:
        return Owner.select().count()

    assert at_once(4, read) == [0] * 4  # four connections go back
    postgres_server.cut(database.database)
    assert at_once(4, read) == [0] * 4


def test_a_server_that_is_started_again_is_waited_for(database: Any, postgres_server: Postgres) -> None:
    Owner.create(name="home")
    postgres_server.stop()
    back = threading.Timer(0.3, postgres_server.start)
    back.start()
    try:
        assert Owner.select().count() == 1
    finally:
        back.join()


def test_a_server_that_stays_away_is_not_waited_for_long(
    database: Any, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stackmem.postgres.AWAY", 0.2)
    postgres_server.stop()
    try:
        with pytest.raises(peewee.OperationalError):
            Owner.select().count()
        assert database.is_closed()
    finally:
        postgres_server.start()
    assert Owner.select().count() == 0


def test_a_pool_that_is_used_up_says_so(stores: Any, postgres_server: Postgres) -> None:
    database = postgres(postgres_server.url("migrated") + "?max_connections=1&timeout=0.1")
    with database.connection_context():
        errors: list[Exception] = []

        def second() -> None:
            try:
                database.connect()
            except TransientError as exc:
                errors.append(exc)

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    database.close_all()
    assert [str(error) for error in errors] == ["All 1 connections to the database are in use."]


# --- the rest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://nobody@127.0.0.1:9/x", "cannot be used"),
        ("postgresql://127.0.0.1", "names no database"),
        ("postgresql://127.0.0.1:port/x", "STACKMEM_DATABASE_URL is wrong"),
        ("mysql://127.0.0.1/x", "postgresql://user:password@host/name"),
    ],
)
def test_a_wrong_address_is_one_sentence(url: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as raised:
        open_database(url)
    assert "\n" not in str(raised.value)


def test_a_password_may_hold_any_character() -> None:
    database = postgres("postgresql://a%40b:p%2Fw@h:1/name?sslmode=disable&max_connections=3")
    assert isinstance(database, Database)
    assert database.connect_params["password"] == "p/w"
    assert (database.connect_params["user"], database.connect_params["sslmode"]) == ("a@b", "disable")
    assert database._max_connections == 3


def test_there_is_no_file_to_scrub(database: Any) -> None:
    scrub()
    assert Lease.select().count() == 0


def test_an_error_without_a_server_has_no_code() -> None:
    assert code_of(peewee.OperationalError("x")) is code_of(peewee.OperationalError()) is None


def test_what_is_said_in_odd_unicode_comes_back(offline: World) -> None:
    words = "ｱｲｳ\0 が\ud800ぎ 🤖"
    turn = offline.say(words)
    assert Turn.get_by_id(turn.id).user == "ｱｲｳ� が�ぎ 🤖"
