"""A store's rows are the same in any database."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stackmem import store_copy
from stackmem.database import database_at
from stackmem.models import Lease, Turn
from tests.unit.conftest import Stores
from tests.unit.filled import fill, next_turn_id
from tests.unit.world import World


@pytest.fixture
def postgres(stores: Stores) -> Iterator[Any]:
    """An empty store in PostgreSQL, not the one that the models are bound to."""
    name = stores.take()
    database = database_at(stores.server.url(name))
    yield database
    database.close_all()
    stores.give_back(name)


@pytest.mark.parametrize("database_kind", ["sqlite", "postgres"])
def test_no_table_is_left_out(database: Any) -> None:
    known = {store_copy.table_of(model) for model in [*store_copy.STORED, Lease]}
    assert set(database.get_tables()) - {"schema_migration", "sqlite_sequence"} == known


@pytest.mark.parametrize("database_kind", ["sqlite", "postgres"])
def test_every_column_is_copied(database: Any) -> None:
    for model in store_copy.STORED:
        table = store_copy.table_of(model)
        columns = {column.name for column in database.get_columns(table)}
        assert columns == {field.column_name for field in model._meta.sorted_fields}, table


def test_rows_go_to_postgres_and_back_as_they_were(
    offline: World, database: Any, new_database: Callable[[], Any], postgres: Any
) -> None:
    fill(offline)
    there, last = store_copy.content(database), store_copy.last_ids(database)
    with postgres.connection_context(), postgres.atomic():
        assert store_copy.copy(database, postgres) == there
        assert store_copy.content(postgres) == there
        assert store_copy.last_ids(postgres) == last
        back = new_database()  # the models are bound to it now
        with back.connection_context():
            assert store_copy.copy(postgres, back) == there
            assert store_copy.content(back) == there
            assert next_turn_id() == last["turn"] + 1 > Turn.select().count()


@pytest.mark.parametrize("database_kind", ["sqlite", "postgres"])
def test_numbers_that_were_given_out_are_not_given_out_again(offline: World, database: Any) -> None:
    offline.turn("猫")
    store_copy.raise_ids(database, {"turn": 41, "session": 1})
    store_copy.raise_ids(database, {"turn": 7})
    assert next_turn_id() == 42


def test_one_changed_letter_changes_the_hash(offline: World, database: Any) -> None:
    turn = offline.turn("猫")
    before = store_copy.content(database)
    Turn.update(reply="そうなんだ ").where(Turn.id == turn.id).execute()
    after = store_copy.content(database)
    assert [table for table in before if before[table] != after[table]] == ["turn"]


def test_what_no_database_but_sqlite_takes_is_made_clean(offline: World, database: Any, postgres: Any) -> None:
    turn = offline.turn("猫")
    database.execute_sql("UPDATE turn SET user = ?, memory_ids = ? WHERE id = ?", ("ね\x00こ", '["\\u0000"]', turn.id))
    with postgres.connection_context(), postgres.atomic():
        assert store_copy.copy(database, postgres) == store_copy.content(postgres)
        assert postgres.execute_sql('SELECT "user", memory_ids->>0 FROM turn').fetchone() == ("ね\ufffdこ", "\ufffd")


def test_a_table_of_several_batches_is_read_whole(
    offline: World, database: Any, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copy, "ROWS", 3)
    fill(offline)
    reports: list[int] = []
    there = store_copy.content(database, reports.append)
    assert sum(reports) == store_copy.size(database) == sum(found.count for found in there.values())
    with postgres.connection_context(), postgres.atomic():
        assert store_copy.copy(database, postgres) == there == store_copy.content(postgres)
