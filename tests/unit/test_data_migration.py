"""A store moves to another database whole, whatever stops it on the way."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stackmem import data_migration, store_copy
from stackmem.data_migration import move
from stackmem.database import database_at, open_database
from stackmem.exceptions import Conflict, InvalidInput, SettingsError, StackmemError
from stackmem.models import Turn
from tests.services import Postgres
from tests.unit.filled import fill, next_turn_id
from tests.unit.world import World

_made = iter(range(10**6))


@pytest.fixture
def address(postgres_server: Postgres) -> str:
    """The address of a database with nothing in it."""
    return postgres_server.create(f"moving{next(_made)}")


@pytest.fixture
def target(address: str) -> Iterator[Any]:
    """That database, not connected."""
    database = database_at(address)
    yield database
    database.close_all()


def is_half_filled(address: str) -> bool:
    with psycopg.connect(address) as connection:
        return connection.execute("SELECT to_regclass('data_migration')").fetchone() != (None,)


class PowerCut(BaseException):
    """What a kill -9 does to the code: it goes no further."""


def stop_at(monkeypatch: pytest.MonkeyPatch, insert_number: int) -> None:
    """Stop at one of the inserts; from then on nothing is stopped."""
    insert, count = store_copy.insert, iter(range(10**6))

    def stopping(*arguments: Any) -> None:
        if next(count) == insert_number:
            raise PowerCut
        insert(*arguments)

    monkeypatch.setattr(store_copy, "insert", stopping)


def test_a_store_moves_to_postgres_and_back(offline: World, database: Any, target: Any, tmp_path: Path) -> None:
    fill(offline)
    there, progress = store_copy.content(database), list[tuple[int, int]]()
    assert move(database, target, lambda done, total: progress.append((done, total))) == there
    assert progress[-1] == (3 * store_copy.size(database),) * 2
    back = database_at(f"sqlite:///{tmp_path / 'back.db'}")
    with target.connection_context():
        assert move(target, back) == there
    opened = open_database(f"sqlite:///{tmp_path / 'back.db'}")
    with opened.connection_context():
        assert store_copy.content(opened) == there
        assert next_turn_id() == store_copy.last_ids(database)["turn"] + 1


def test_the_same_command_again_changes_nothing(offline: World, database: Any, target: Any) -> None:
    fill(offline)
    assert move(database, target) == move(database, target)


@pytest.mark.parametrize("insert_number", [0, 3, 10, 17])
def test_stopped_in_the_middle_it_goes_on_where_it_was(
    offline: World, database: Any, target: Any, address: str, insert_number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copy, "ROWS", 4)
    fill(offline)
    with monkeypatch.context() as patched:
        stop_at(patched, insert_number)
        with pytest.raises(PowerCut):
            move(database, target)
    assert is_half_filled(address)
    copied = list[Any]()
    insert = store_copy.insert
    monkeypatch.setattr(store_copy, "insert", lambda to, model, rows: (copied.extend(rows), insert(to, model, rows)))
    there = move(database, target)
    assert len(copied) <= store_copy.size(database) - insert_number
    with target.connection_context():
        assert store_copy.content(target) == there
    assert not is_half_filled(address)


def test_a_half_filled_store_is_not_opened(
    offline: World, database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline.turn("猫")
    address = f"sqlite:///{tmp_path / 'half.db'}"
    with monkeypatch.context() as patched:
        stop_at(patched, 1)
        with pytest.raises(PowerCut):
            move(database, database_at(address))
    with pytest.raises(SettingsError, match="half filled: let the same `stackmem migrate-data"):
        open_database(address)


def test_what_changed_after_the_stop_is_copied_anew(
    offline: World, database: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(offline)
    with monkeypatch.context() as patched:
        stop_at(patched, 10)
        with pytest.raises(PowerCut):
            move(database, target)
    Turn.update(reply="別の返事").execute()
    there = move(database, target)
    with target.connection_context():
        assert store_copy.content(target) == there


def test_a_target_that_holds_something_else_is_refused(
    offline: World, database: Any, target: Any, address: str
) -> None:
    offline.turn("猫")
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("CREATE TABLE session (id int)")
    with pytest.raises(InvalidInput, match="tables of something else"):
        move(database, target)


def test_a_store_with_other_turns_is_refused_and_stays(offline: World, database: Any, target: Any) -> None:
    offline.turn("猫")
    move(database, target)
    with target.connection_context():
        before = store_copy.content(target)
    offline.turn("もうひとつ")
    with pytest.raises(InvalidInput, match="a store with something in it"):
        move(database, target)
    with target.connection_context():
        assert store_copy.content(target) == before


def test_a_target_in_use_is_refused(offline: World, database: Any, target: Any, address: str) -> None:
    with psycopg.connect(address), pytest.raises(Conflict, match="1 other connection"):
        move(database, target)


def test_a_target_that_cannot_be_reached_is_one_sentence(offline: World, database: Any, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("これはデータベースではない" * 99, "utf-8")
    for url in ("postgresql://x@127.0.0.1:9/none", f"sqlite:///{tmp_path / 'text.db'}"):
        with pytest.raises(InvalidInput, match="Is its address right") as caught:
            move(database, database_at(url))
        assert "\n" not in str(caught.value)


def test_a_copy_that_differs_is_told_and_stays_half_filled(
    offline: World, database: Any, target: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline.turn("猫")
    offline.turn("犬")
    insert = store_copy.insert
    monkeypatch.setattr(
        store_copy, "insert", lambda to, model, rows: insert(to, model, rows[:1] if model is Turn else rows)
    )
    with pytest.raises(StackmemError, match="The copy of turn differs"):
        move(database, target)
    assert is_half_filled(address)


def test_nobody_writes_into_the_old_store_meanwhile(
    offline: World, database: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline.turn("猫")
    copied = data_migration._fill

    def filling(*arguments: Any) -> None:
        assert database.in_transaction()
        copied(*arguments)

    monkeypatch.setattr(data_migration, "_fill", filling)
    move(database, target)
