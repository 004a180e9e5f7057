"""When something happened, as a model may write it: read in the talk's zone; no time at all is when it was said."""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest

from stackmem.answers import Segment
from stackmem.clock import show_time
from stackmem.making import occurred
from stackmem.models import Memory, Session
from stackmem.shapes import memory_line
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, World, at, keep, segments

SAID = at("22 20:15")
END = timedelta(days=1) - timedelta(microseconds=1)


def tokyo(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZONE)


def span(zone: tzinfo = ZONE, **given: str) -> tuple[datetime, datetime]:
    """Return from and to of a segment with these times."""
    found = occurred(Segment(summary="x", **given), SAID, zone)
    assert found["occurred_from"] <= found["occurred_at"] <= found["occurred_to"]
    return found["occurred_from"], found["occurred_to"]


@pytest.mark.parametrize(
    ("written", "first", "last"),
    [
        ("2026-07", "2026-07-01", "2026-07-31"),
        ("2024-02", "2024-02-01", "2024-02-29"),
        ("2026", "2026-01-01", "2026-12-31"),
        ("2026年7月1日", "2026-07-01", "2026-07-01"),
        ("２０２６年７月１日", "2026-07-01", "2026-07-01"),
        ("2026年12月", "2026-12-01", "2026-12-31"),
        ("2025年", "2025-01-01", "2025-12-31"),
        ("9999", "9999-01-01", "9999-12-31"),
        ("9999-12-31", "9999-12-31", "9999-12-31"),
        ("0001-01-02", "0001-01-02", "0001-01-02"),
    ],
)
def test_a_day_a_month_and_a_year_are_spans_of_the_talks_zone(written: str, first: str, last: str) -> None:
    assert span(occurred_at=written) == (tokyo(first), tokyo(last) + END)


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2026-07-01T20:00", tokyo("2026-07-01T20:00")),
        ("2026-07-01 20:00:30", tokyo("2026-07-01T20:00:30")),
        ("2026-07-01T20:00:00Z", datetime(2026, 7, 1, 20, tzinfo=UTC)),
        ("2026-07-01T20:00:00-05:00", datetime(2026, 7, 2, 1, tzinfo=UTC)),
    ],
)
def test_a_naive_moment_is_of_the_talks_zone_and_another_of_its_own(written: str, moment: datetime) -> None:
    assert span(occurred_at=written) == (moment, moment)


@pytest.mark.parametrize(
    "written",
    [
        "昨日", "来月", "tomorrow", "7月1日", "2026-13", "2026-00", "2026-02-30", "2026年13月", "2026年2月30日",
        "0000", "0000-01-01", "0001", "0001-01-01", "99999-01-01", "-2026-07-01", "null", "2026-07-01T25:00",
        "１２", "∞",
    ],
)  # fmt: skip
def test_what_is_no_time_is_when_it_was_said(written: str) -> None:
    assert span(occurred_at=written) == (SAID, SAID)
    assert span(occurred_from=written, occurred_to=written) == (SAID, SAID)


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [
        ({"occurred_from": "2025-06", "occurred_to": "2025-08"}, "2025-06-01", "2025-08-31"),  # last summer
        ({"occurred_from": "2025-08", "occurred_to": "2025-06"}, "2025-06-01", "2025-08-31"),
        ({"occurred_from": "2026年7月3日", "occurred_to": "2026年7月1日"}, "2026-07-01", "2026-07-03"),
        ({"occurred_from": "いつか", "occurred_at": "2026-07-02", "occurred_to": "2026-07-03"},
         "2026-07-02", "2026-07-03"),
        ({"occurred_from": "2026-07-03", "occurred_to": "いつか"}, "2026-07-03", "2026-07-03"),
    ],
)  # fmt: skip
def test_a_span_is_read_whichever_way_round_it_was_written(given: dict[str, str], first: str, last: str) -> None:
    assert span(**given) == (tokyo(first), tokyo(last) + END)


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles", "UTC", "Asia/Kolkata"])
@pytest.mark.parametrize("written", ["0001-01-01", "0001", "9999-12-31", "9999", "2026-07-01", "2026-07"])
def test_no_zone_and_no_edge_of_the_calendar_breaks_a_look(written: str, zone: str) -> None:
    first, last = span(ZoneInfo(zone), occurred_at=written)
    # Read as that day in that zone, or, where the calendar ends, not at all: never as another day.
    day = first.astimezone(ZoneInfo(zone)).isoformat()[:10] if first != SAID else None
    assert day in (None, f"{written}-01-01"[:10])
    assert (first == SAID) == (last == SAID)
    assert show_time(first, ZoneInfo(zone))
    assert show_time(last, ZoneInfo(zone))


def test_when_it_was_said_stands_beside_when_it_happened(world: World, model: ScriptedModel) -> None:
    world.turn("去年の夏に京都へ行ったよ", at=at("02 23:30"))
    world.turn("妹と一緒にね", at=at("03 00:10"))
    Session.update(ended_at=world.clock.now()).execute()
    times = {"occurred_at": None, "occurred_from": "2025-06", "occurred_to": "2025-08"}
    model.script = [segments(keep([1, 2], "ユーザーは2025年の夏に妹と京都へ行った。", **times))]
    world.settle()
    line = memory_line(Memory.get(), ZONE, [1, 2])
    names = ("occurred_at", "occurred_from", "occurred_to", "said_at")
    assert [line[name] for name in names] == [
        "2025-06-01T00:00:00+09:00", "2025-06-01T00:00:00+09:00", "2025-08-31T23:59:59+09:00",
        "2026-07-03T00:10:00+09:00",
    ]  # fmt: skip
    for when, found in (
        ({"since": "2025-07-01", "until": "2025-07-31"}, 1),  # when it happened
        ({"since": "2026-07-03", "until": "2026-07-03"}, 1),  # when it was said
        ({"since": "2026-01-01", "until": "2026-06-30"}, 0),
    ):
        assert world.recall.search_memory("home", None, {"query": "京都に行った", **when}).content["count"] == found
