"""Dates: relative words against the time they were said, and dates as people say them. No clock is read."""

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

_DAY = timedelta(days=1)
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_WEEKDAYS = "月火水木金土日"


@dataclass(frozen=True)
class Span:
    """A range of days, both ends included."""

    first: date
    last: date


def parse(value: Any) -> datetime | None:
    """Return an ISO 8601 time as it stands (its own zone); None where it cannot be read."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def spoken(value: Any, japanese: bool) -> str:
    """Return a date as said in talk: ``7月1日`` or ``July 1``; "" where it cannot be read."""
    at = parse(value)
    if at is None:
        return ""
    return f"{at.month}月{at.day}日" if japanese else f"{_MONTHS[at.month - 1]} {at.day}"


def prefix(at: datetime | None, japanese: bool) -> str:
    """Return the absolute date a summary begins with; "" where the time is unknown."""
    if at is None:
        return ""
    return f"{at.year}年{at.month}月{at.day}日、" if japanese else f"On {at.date().isoformat()}, "


def _week(today: date, weeks: int) -> Span:
    monday = today - today.weekday() * _DAY + weeks * 7 * _DAY
    return Span(monday, monday + 6 * _DAY)


def _month(today: date, months: int) -> Span:
    year, month = divmod(today.year * 12 + today.month - 1 + months, 12)
    return Span(date(year, month + 1, 1), date(year, month + 1, monthrange(year, month + 1)[1]))


def _year(today: date, years: int) -> Span:
    return Span(date(today.year + years, 1, 1), date(today.year + years, 12, 31))


def _day(today: date, days: int) -> Span:
    return Span(today + days * _DAY, today + days * _DAY)


_RANGE: dict[str, Callable[[date, int], Span]] = {"d": _day, "w": _week, "m": _month, "y": _year}
# Longest first, so that 一昨日 is not read as 昨日 and "the day before yesterday" not as "yesterday".
_WORDS = {
    "d-2": "一昨日|おととい|the day before yesterday",
    "d-1": "昨日|きのう|昨夜|昨晩|ゆうべ|yesterday|last night",
    "d2": "明後日|あさって|the day after tomorrow",
    "d1": "明日|あした|tomorrow",
    "d0": "今日|きょう|今朝|今夜|今晩|today|tonight|this morning|this evening",
    "w-1": "先週|last week",
    "w0": "今週|this week",
    "w1": "来週|next week",
    "m-1": "先月|last month",
    "m0": "今月|this month",
    "m1": "来月|next month",
    "y-1": "去年|昨年|last year",
    "y0": "今年|ことし|this year",
    "y1": "来年|next year",
}
_KIND = {word: kind for kind, words in _WORDS.items() for word in words.split("|")}
_LONGEST_FIRST = sorted(_KIND, key=lambda word: (-len(word), word))
_RELATIVE = re.compile(
    r"(?<![A-Za-z])(?:(?P<word>"
    + "|".join(map(re.escape, _LONGEST_FIRST))
    + r")(?:の(?P<weekday>[月火水木金土日])曜日?)?"
    r"|(?P<count>[0-9]{1,3}) ?(?P<unit>日前|日後|週間前|週間後|days? ago|weeks? ago))(?![A-Za-z])",
    re.IGNORECASE,
)
_ABSOLUTE = re.compile(r"(?:(?P<year>[12][0-9]{3})年)?(?P<month>[0-9]{1,2})月(?P<day>[0-9]{1,2})日")


def _span(match: re.Match[str], today: date) -> Span | None:
    try:
        if match["word"]:
            kind = _KIND[match["word"].lower()]
            span = _RANGE[kind[0]](today, int(kind[1:]))
            weekday = match["weekday"]
            return _day(span.first, _WEEKDAYS.index(weekday)) if weekday and kind[0] == "w" else span
        unit = match["unit"].lower()
        days = int(match["count"]) * (7 if unit[0] in "週w" else 1)
        return _day(today, days if unit.endswith("後") else -days)
    except (ValueError, OverflowError):  # the year 0 or 10000
        return None


def _absolute(sentence: str, today: date) -> Span | None:
    match = _ABSOLUTE.search(sentence)
    if match is None:
        return None
    try:
        day = date(int(match["year"] or today.year), int(match["month"]), int(match["day"]))
    except ValueError:
        return None
    return Span(day, day)


def _written(span: Span, japanese: bool) -> str:
    def one(day: date) -> str:
        return f"{day.year}年{day.month}月{day.day}日" if japanese else day.isoformat()

    if span.first == span.last:
        return f"（{one(span.first)}）" if japanese else f" ({one(span.first)})"
    return f"（{one(span.first)}〜{one(span.last)}）" if japanese else f" ({one(span.first)} to {one(span.last)})"


def resolve(sentence: str, at: datetime | None, japanese: bool) -> tuple[str, Span | None]:
    """Return the sentence with absolute dates in brackets after relative words, and the first date it speaks of.

    「昨日買った」 said on 2026-07-02 gives 「昨日（2026年7月1日）買った」. Weeks begin on Monday.
    """
    if at is None:
        return sentence, None
    today, found = at.date(), []

    def bracket(match: re.Match[str]) -> str:
        span = _span(match, today)
        if span is None:
            return match[0]
        found.append(span)
        return match[0] + _written(span, japanese)

    written = _RELATIVE.sub(bracket, sentence)
    return written, found[0] if found else _absolute(sentence, today)


def occurred(span: Span | None, at: datetime | None) -> dict[str, str | None]:
    """Return occurred_at, occurred_from and occurred_to of a segment, in the zone of ``at``; a day has no range."""
    if span is None or at is None:
        return {"occurred_at": None, "occurred_from": None, "occurred_to": None}
    first = datetime.combine(span.first, time(), at.tzinfo).isoformat()
    if span.first == span.last:
        return {"occurred_at": first, "occurred_from": None, "occurred_to": None}
    last = datetime.combine(span.last, time(23, 59, 59), at.tzinfo).isoformat()
    return {"occurred_at": first, "occurred_from": first, "occurred_to": last}
