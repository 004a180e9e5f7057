"""Queries whose SQL is written once answer as peewee's own do."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import peewee
import pytest

from stackmem.models import Owner, Session, Turn, proxy
from stackmem.prepared import Prepared, slots

NOW = datetime(2026, 7, 1, 10, tzinfo=UTC)
COLUMNS = (
    Turn.uid, Turn.session, Turn.ordinal, Turn.owner, Turn.at, Turn.received_at, Turn.user, Turn.state,
    Turn.memory_ids, Turn.tokens, Turn.degraded,
)  # fmt: skip
ADD = Prepared(lambda **_: Turn.insert(slots(*COLUMNS)))
BY_ID = Prepared(lambda ids: Turn.select().where(Turn.id.in_(ids)).order_by(Turn.id), lists=["ids"])


@pytest.fixture
def session(database: Any) -> Session:
    Owner.create(name="home")
    return Session.create(owner="home", name="s", seq=1, named=True, started_at=NOW, received_at=NOW)


def add(session: Session, ordinal: int, **more: Any) -> int:
    columns = {
        "uid": f"u{ordinal}", "session": session, "ordinal": ordinal, "owner": "home", "at": NOW, "received_at": NOW,
        "user": "雨", "state": "pending", "memory_ids": [], "tokens": {}, "degraded": False,
    }  # fmt: skip
    return ADD.insert(**columns | more)


def test_what_is_inserted_is_what_peewee_reads(session: Session) -> None:
    tokyo = NOW.astimezone(timezone(timedelta(hours=9)))
    number = add(session, 1, at=tokyo, memory_ids=["晴", "雨", "雪"], tokens={"prompt": None}, degraded=True)
    turn = Turn.get_by_id(number)
    assert (turn.at, turn.memory_ids, turn.tokens, turn.degraded) == (NOW, ["晴", "雨", "雪"], {"prompt": None}, True)
    assert (turn.session, turn.reply, turn.emotion, turn.withheld) == (session, "", "neutral", False)
    assert "雪" in proxy.execute_sql("SELECT memory_ids FROM turn").fetchone()[0]


def test_json_that_is_nothing_is_null(session: Session) -> None:
    prepared = Prepared(lambda **_: Session.update(slots(Session.open_topic)))
    assert prepared.update(open_topic={"a": [1]}) == 1
    assert Session.get().open_topic == {"a": [1]}
    prepared.update(open_topic=None)
    assert Session.select().where(Session.open_topic.is_null()).count() == 1


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 9])
def test_a_list_of_any_length_finds_its_rows_once(session: Session, count: int) -> None:
    ids = [add(session, ordinal) for ordinal in range(1, 13)]
    read = BY_ID.rows(ids=ids[:count])
    assert [row.id for row in read] == ids[:count]


def test_rows_hold_what_models_hold(session: Session) -> None:
    number = add(session, 1, memory_ids=["m"], degraded=True)
    assert Turn(**BY_ID.first(ids=[number])._asdict()).__data__ == Turn.get_by_id(number).__data__
    assert BY_ID.first(ids=[number + 1]) is None


def test_an_update_tells_how_many_rows_it_met(session: Session) -> None:
    add(session, 1)
    prepared = Prepared(lambda ordinal, **_: Turn.update(slots(Turn.user)).where(Turn.ordinal == ordinal))
    assert [prepared.update(ordinal=ordinal, user="雪") for ordinal in (1, 2)] == [1, 0]
    assert Turn.get().user == "雪"


def test_a_naive_time_is_refused(session: Session) -> None:
    with pytest.raises(ValueError, match="naive"):
        add(session, 1, at=datetime(2026, 7, 1))


class Recorded(peewee.PostgresqlDatabase):
    """PostgreSQL as far as the SQL goes: it keeps what it is asked and answers with one row."""

    def __init__(self) -> None:
        super().__init__("nowhere", autoconnect=False)
        self.asked: list[tuple[str, list[Any]]] = []

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        """Keep the statement; return a cursor over one row."""
        self.asked.append((sql, params))
        return sqlite3.connect(":memory:").execute("SELECT 7")


@pytest.fixture
def postgres(database: Any) -> Iterator[Recorded]:
    recorded = Recorded()
    proxy.initialize(recorded)
    yield recorded
    proxy.initialize(database)


def test_another_database_gets_its_own_sql(session: Session, postgres: Recorded) -> None:
    assert add(session, 1, memory_ids=["雨"]) == 7
    sql, params = postgres.asked[0]
    assert sql.startswith('INSERT INTO "turn" (')
    assert sql.endswith('RETURNING "turn"."id"')
    assert "json(" not in sql
    assert sql.count("%s") == len(params)
    assert ["雨"] in [getattr(value, "obj", None) for value in params]  # the driver's JSON
