"""Dates: relative words against the time they were said, and dates as people say them. No clock is read."""

import re
from datetime import date, datetime, time
from typing import Any

from stackmem.adapters.offline.relative import MONTHS, Span, found, number, one_day, year_of
from stackmem.adapters.offline.tense import tense

_DIGITS = "[0-9０-９]"
_COUNT = "(?:[0-9０-９]{1,2}|[一二三四五六七八九十]{1,3})"
_ABSOLUTE = re.compile(rf"(?:(?P<year>[12]{_DIGITS}{{3}})年)?(?P<month>{_COUNT})月(?P<day>{_COUNT})日")


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
    return f"{at.month}月{at.day}日" if japanese else f"{MONTHS[at.month - 1]} {at.day}"


def prefix(at: datetime | None, japanese: bool) -> str:
    """Return the absolute date a summary begins with; "" where the time is unknown."""
    if at is None:
        return ""
    return f"{at.year}年{at.month}月{at.day}日、" if japanese else f"On {at.date().isoformat()}, "


def _absolute(sentence: str, today: date) -> Span | None:
    match = _ABSOLUTE.search(sentence)
    if match is None:
        return None
    try:
        month, day = number(match["month"]), number(match["day"])
        year = int(match["year"] or year_of(month, day, tense(sentence, match.end()), today))
        return one_day(year, month, day)
    except ValueError:
        return None


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
    today, written, done = at.date(), "", 0
    spans = found(sentence, today)
    for end, span in spans:
        written += sentence[done:end] + _written(span, japanese)
        done = end
    return written + sentence[done:], spans[0][1] if spans else _absolute(sentence, today)


def occurred(span: Span | None, at: datetime | None) -> dict[str, str | None]:
    """Return occurred_at, occurred_from and occurred_to of a segment, in the zone of ``at``; a day has no range."""
    if span is None or at is None:
        return {"occurred_at": None, "occurred_from": None, "occurred_to": None}
    first = datetime.combine(span.first, time(), at.tzinfo).isoformat()
    if span.first == span.last:
        return {"occurred_at": first, "occurred_from": None, "occurred_to": None}
    last = datetime.combine(span.last, time(23, 59, 59), at.tzinfo).isoformat()
    return {"occurred_at": first, "occurred_from": first, "occurred_to": last}
