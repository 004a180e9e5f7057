"""Time: the real clock, and the reading and showing of times."""

from datetime import UTC, date, datetime, time, timedelta, tzinfo

from stackmem.exceptions import InvalidInput

AHEAD = timedelta(minutes=5)  # how far a client's clock may run ahead of ours


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present as an aware UTC datetime."""
        return datetime.now(UTC)


def read_time(value: object, zone: tzinfo, *, end_of_day: bool = False) -> datetime:
    """Return an aware UTC datetime from ISO 8601; a naive time is read in ``zone``.

    A date alone is its first moment, or its last with ``end_of_day``. Raises InvalidInput with one sentence.
    """
    text = str(value).strip()
    try:
        day = _day(text)
        if day is not None:
            moment = datetime.combine(day, time.max if end_of_day else time.min)
        else:
            moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=zone)
        return aware.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(f"{text[:40]!r} is not a time in ISO 8601, such as 2026-07-23T01:00:00+09:00.") from exc


def _day(text: str) -> date | None:
    """Return the day of a text that holds no time: ISO 8601 has three ways to write one."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def show_time(moment: datetime | None, zone: tzinfo) -> str | None:
    """Return ISO 8601 with the zone, to the second; None for None. What the zone moves past the year 9999 is UTC."""
    if moment is None:
        return None
    try:
        return moment.astimezone(zone).isoformat(timespec="seconds")
    except OverflowError:
        return moment.astimezone(UTC).isoformat(timespec="seconds")


def day_of_week(moment: datetime, zone: tzinfo, language: str) -> str:
    """Return the day of the week, 水 or Wed: models reckon it badly from a date."""
    try:
        day = moment.astimezone(zone).weekday()
    except OverflowError:
        day = moment.astimezone(UTC).weekday()
    return "月火水木金土日"[day] if language == "ja" else ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[day]
