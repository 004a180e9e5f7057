"""A time that is always aware and UTC, and JSON that keeps Japanese readable."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.fields import UTCField
from stackmem.models import Job, Lease, Turn
from tests.unit.world import World


def test_a_naive_time_never_reaches_the_database() -> None:
    with pytest.raises(ValueError, match="a naive time reached the database"):
        UTCField().db_value(datetime(2026, 7, 23))


@given(st.datetimes(timezones=st.sampled_from([UTC, ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")])))
def test_a_time_comes_back_as_the_same_moment_in_utc(moment: datetime) -> None:
    field = UTCField()
    try:
        stored = field.db_value(moment)
    except OverflowError:
        return  # year 1 or 9999 at the edge of the calendar
    back = field.python_value(stored)
    assert back is not None
    assert back.timestamp() == moment.timestamp()  # == of two zones says no in the hour that comes twice
    assert back.tzinfo is UTC


def test_stored_times_sort_as_text() -> None:
    moments = [datetime(2026, 7, 23, 1, 0, 0, micro, tzinfo=UTC) for micro in (0, 5, 500_000)]
    stored = [UTCField().db_value(moment) or "" for moment in moments]
    assert stored == sorted(stored)
    assert len({len(text) for text in stored}) == 1


def test_a_driver_that_gives_datetimes_is_read_too() -> None:
    moment = datetime(2026, 7, 23, 10, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert UTCField().python_value(moment) == moment
    assert UTCField().python_value(None) is None
    assert UTCField().db_value(None) is None


def test_japanese_stays_readable_in_the_file(database: Any, world: World) -> None:
    job = Job.create(kind="x", arguments={"名": ["富士通"]}, created_at=world.clock.now())
    ((stored,),) = database.execute_sql("SELECT CAST(arguments AS TEXT) FROM job").fetchall()
    assert stored.replace(" ", "") == '{"名":["富士通"]}'
    assert Job.get_by_id(job.id).arguments == {"名": ["富士通"]}


def test_a_time_in_a_row_is_aware(world: World) -> None:
    Lease.create(name="x", holder="y", until=world.clock.now())
    assert Lease.get().until == world.clock.now()
    assert world.turn("a").at == Turn.get().at
