"""Reading and showing times."""

import contextlib
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.clock import SystemClock, read_time, show_time
from stackmem.exceptions import InvalidInput

TOKYO = ZoneInfo("Asia/Tokyo")


def test_the_clock_is_aware_and_in_utc() -> None:
    assert SystemClock().now().utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-07-23T01:00:00+09:00", "2026-07-22T16:00:00"),
        ("2026-07-23T01:00:00", "2026-07-22T16:00:00"),
        ("2026-07-23 01:00", "2026-07-22T16:00:00"),
        ("2026-07-23T01:00:00Z", "2026-07-23T01:00:00"),
        (" 2026-07-23 ", "2026-07-22T15:00:00"),
    ],
)
def test_a_naive_time_is_read_in_the_zone(text: str, utc: str) -> None:
    assert read_time(text, TOKYO) == datetime.fromisoformat(utc).replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-07-23", "20260723", "2026-W30-4"])
def test_an_end_without_a_time_includes_its_day(text: str) -> None:
    end = read_time(text, TOKYO, end_of_day=True)
    assert end == datetime(2026, 7, 23, 23, 59, 59, 999999, tzinfo=TOKYO)


def test_an_end_with_a_time_stays_that_time() -> None:
    assert read_time("2026-07-23T08:00", TOKYO, end_of_day=True) == datetime(2026, 7, 23, 8, tzinfo=TOKYO)


@pytest.mark.parametrize(
    "value", ["", "昨日", "2026-13-01", "2026-02-30", "2026", None, 5, [], {}, "0001-01-01", "99999-01-01", "x" * 1000]
)
def test_what_is_no_time_is_named_in_a_short_sentence(value: object) -> None:
    with pytest.raises(InvalidInput, match="is not a time in ISO 8601") as caught:
        read_time(value, TOKYO)
    assert len(str(caught.value)) < 150


@given(st.text() | st.integers() | st.floats())
def test_nothing_but_invalid_input_is_raised(value: object) -> None:
    with contextlib.suppress(InvalidInput):
        assert read_time(value, TOKYO).tzinfo is UTC


def test_times_are_shown_with_the_zone_to_the_second() -> None:
    assert show_time(datetime(2026, 7, 22, 16, 0, 0, 5, tzinfo=UTC), TOKYO) == "2026-07-23T01:00:00+09:00"
    assert show_time(None, TOKYO) is None


def test_a_time_that_the_zone_moves_out_of_the_calendar_is_shown_in_utc() -> None:
    assert show_time(datetime(9999, 12, 31, 23, tzinfo=UTC), TOKYO) == "9999-12-31T23:00:00+00:00"
