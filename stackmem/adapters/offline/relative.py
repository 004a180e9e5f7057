"""Relative dates: what 来月3日, 去年の夏 or "last Saturday" mean on the day they were said. No clock is read."""

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache

from stackmem.adapters.offline.tense import AHEAD, BEHIND, tense

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAY = timedelta(days=1)
_WEEKDAYS = "月火水木金土日"
_ENGLISH_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"春": 3, "夏": 6, "秋": 9, "冬": 12, "spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_WORDS = {
    "d-2": "一昨日|おととい|the day before yesterday",
    "d-1": "昨日|きのう|昨夜|昨晩|ゆうべ|yesterday|last night",
    "d2": "明後日|あさって|the day after tomorrow",
    "d1": "明日|あした|tomorrow",
    "d0": "今日|きょう|今朝|今夜|今晩|today|tonight|this morning|this evening",
    "e-1": "先週末|last weekend",
    "e0": "今週末|この週末|this weekend",
    "e1": "来週末|next weekend",
    "w-2": "先々週|the week before last",
    "w-1": "先週|last week",
    "w0": "今週|this week",
    "w1": "来週|next week",
    "w2": "再来週|the week after next",
    "m-2": "先々月",
    "m-1": "先月|last month",
    "m0": "今月|this month",
    "m1": "来月|next month",
    "m2": "再来月",
    "y-2": "一昨年|おととし",
    "y-1": "去年|昨年|last year",
    "y0": "今年|ことし|this year",
    "y1": "来年|next year",
    "y2": "再来年",
}
_KIND = {word: kind for kind, words in _WORDS.items() for word in words.split("|")}
_KANJI = tuple("一二三四五六七八九")
_COUNTS = ("a", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Span:
    """A range of days, both ends included."""

    first: date
    last: date


Rule = Callable[[re.Match[str], date], Span | None]


def found(sentence: str, today: date) -> list[tuple[int, Span]]:
    """Return where each relative date ends in the sentence, and what it means, in order.

    Weeks begin on Monday. A bare weekday or month is in the past or ahead by the tense after it, else it is no date.
    """
    matches = [(match, rule) for pattern, rule in _rules() for match in pattern.finditer(sentence)]
    spans: list[tuple[int, Span]] = []
    for match, rule in sorted(matches, key=lambda pair: (pair[0].start(), -pair[0].end())):
        span = _safe(rule, match, today) if not spans or match.start() >= spans[-1][0] else None
        if span is not None:
            spans.append((match.end(), span))
    return spans


def year_of(month: int, day: int | None, sign: int, today: date) -> int:
    """Return the year of a month (and day) said without one: the last one before today, the next one, or this one."""
    now, then = (today.month, today.day), (month, day or today.day)
    return today.year + (sign == AHEAD and then < now) - (sign == BEHIND and then > now)


def one_day(year: int, month: int, day: int) -> Span:
    """Return one day as a span; ValueError where there is none."""
    return Span(date(year, month, day), date(year, month, day))


def number(text: str) -> int:
    """Return a number in digits of any width, or in kanji up to 99; ValueError where it is none."""
    if text.isdecimal():
        return int(text)
    tens, ten, ones = text.rpartition("十")
    return (10 * _digit(tens, 1) if ten else 0) + _digit(ones, 0)


def _digit(text: str, missing: int) -> int:
    return _KANJI.index(text) + 1 if text else missing


def _safe(rule: Rule, match: re.Match[str], today: date) -> Span | None:
    try:
        return rule(match, today)
    except (ValueError, OverflowError):  # the 31st of June, the year 0 or 10000, 二三
        return None


def _shifted(kind: str, count: int, today: date) -> Span:
    """Return the day, weekend, week, month or year that lies ``count`` of them after today's."""
    if kind == "d":
        return _days(today + count * _DAY)
    if kind in "we":
        monday = today + (7 * count - today.weekday()) * _DAY
        return Span(monday + 5 * _DAY * (kind == "e"), monday + 6 * _DAY)
    if kind == "m":
        year, month = divmod(today.year * 12 + today.month - 1 + count, 12)
        return _month(year, month + 1)
    return Span(date(today.year + count, 1, 1), date(today.year + count, 12, 31))


def _days(day: date) -> Span:
    return Span(day, day)


def _month(year: int, month: int, months: int = 1) -> Span:
    last_year, last = divmod(year * 12 + month - 2 + months, 12)
    return Span(date(year, month, 1), date(last_year, last + 1, monthrange(last_year, last + 1)[1]))


def _of_word(word: str, today: date) -> Span:
    kind = _KIND[word.lower()]
    return _shifted(kind[0], int(kind[1:]), today)


def _year(word: str, today: date) -> int:
    if word.endswith("年前"):
        return today.year - number(word.removesuffix("年前"))
    return int(word[:4]) if word[:4].isdecimal() else _of_word(word, today).first.year


def _word(match: re.Match[str], today: date) -> Span:
    return _of_word(match["word"], today)


def _week_and_day(match: re.Match[str], today: date) -> Span:
    """Return that day of that week, or the days from the one to the other: 来週の土曜と日曜."""
    monday = _of_word(match["word"], today).first
    first = match["weekday"] or "土"
    last = match["also"] or (first if match["weekday"] else "日")
    days = [monday + _WEEKDAYS.index(day) * _DAY for day in (first, last)]
    return Span(min(days), max(days))


def _month_and_day(match: re.Match[str], today: date) -> Span:
    return _day_in(_of_word(match["word"], today), number(match["day"]))


def _day_in(month: Span, day: int) -> Span:
    """Return the day of a month; the month where it has no such day."""
    return _days(month.first.replace(day=day)) if 1 <= day <= month.last.day else month


def _year_and_month(match: re.Match[str], today: date) -> Span:
    year, month = _year(match["word"], today), number(match["month"])
    return _day_in(_month(year, month), number(match["day"] or "0"))


def _year_and_season(match: re.Match[str], today: date) -> Span:
    """Return three months; winter is the one that begins in that year."""
    return _month(_year(match["word"], today), _SEASONS[match["season"].lower()], 3)


def _ago(match: re.Match[str], today: date) -> Span:
    """Return a day for days and weeks, the whole month or year for months and years, which are never meant exactly."""
    words = match["count"].lower()
    count = _COUNTS.index(words) + 1 if words in _COUNTS else 1 if words == "an" else number(words)
    count = count if match["side"] in ("後", "from now") else -count
    kind = {"日": "d", "週": "w", "年": "y"}.get(match["unit"][0], match["unit"][0].lower())
    kind = kind if kind in "dwy" else "m"
    return _shifted("d", 7 * count, today) if kind == "w" else _shifted(kind, count, today)


def _half_a_year(match: re.Match[str], today: date) -> Span:
    return _shifted("m", 6 if match["side"] == "後" else -6, today)


def _nearest(weekday: int, sign: int, today: date, today_too: bool = False) -> Span:
    """Return that day of the week before or after today; today itself only where told so."""
    distance = sign * (weekday - today.weekday()) % 7
    return _days(today + sign * (distance or (0 if today_too else 7)) * _DAY)


def _weekday_of(match: re.Match[str]) -> int:
    name = match["weekday"].lower()
    return _WEEKDAYS.index(name) if name in _WEEKDAYS else _ENGLISH_WEEKDAYS.index(name)


def _weekday(match: re.Match[str], today: date) -> Span | None:
    sign = tense(match.string, match.end())
    return _nearest(_weekday_of(match), sign, today, today_too=sign == BEHIND) if sign else None


def _side_and_weekday(match: re.Match[str], today: date) -> Span:
    side = match["side"].lower()
    if side == "this":
        return _days(_shifted("w", 0, today).first + _weekday_of(match) * _DAY)
    return _nearest(_weekday_of(match), AHEAD if side in ("今度", "次", "next") else BEHIND, today)


def _bare_month(match: re.Match[str], today: date) -> Span | None:
    month, sign = _month_of(match["month"]), tense(match.string, match.end())
    return _month(year_of(month, None, sign, today), month) if sign else None


def _month_of(text: str) -> int:
    return (
        [name.lower() for name in MONTHS].index(text.lower()) + 1 if text.isascii() and text.isalpha() else number(text)
    )


def _month_and_year(match: re.Match[str], today: date) -> Span:
    return _month(_year(match["year"], today), _month_of(match["month"]))


def _side_and_season(match: re.Match[str], today: date) -> Span:
    """Return the last such season or month that is over, the next that has not begun, or this year's."""
    name, side = match["name"].lower(), match["side"].lower()
    first, months = (_SEASONS[name], 3) if name in _SEASONS else (_month_of(name), 1)
    spans = [_month(today.year + years, first, months) for years in (-2, -1, 0, 1)]
    if side == "last":
        return [span for span in spans if span.last < today][-1]
    return spans[2] if side == "this" else next(span for span in spans if span.first > today)


def _any(kinds: str) -> str:
    """Return a pattern of the words for these kinds, longest first: 一昨日 is not 昨日."""
    words = [word for word, kind in _KIND.items() if kind[0] in kinds]
    return "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word))))


@cache
def _rules() -> list[tuple[re.Pattern[str], Rule]]:
    # Compiled at the first turn: every command of the command line would wait for it (20 ms).
    before, after = "(?<![A-Za-z])(?:", ")(?![A-Za-z])"
    return [(re.compile(before + pattern + after, re.IGNORECASE), rule) for pattern, rule in _RULES]


_NUMBER = "(?:[0-9０-９]{1,3}|[一二三四五六七八九十]{1,3})"
_ALONE = "(?<![0-9０-９〇一二三四五六七八九十百千数何.])(?<![0-9０-９][、,・~〜-])"  # not the 3日前 of 2、3日前
_YEAR = "(?:19|20)[0-9]{2}"
_NAMES = "|".join(MONTHS)
_EN_DAYS = "|".join(_ENGLISH_WEEKDAYS)
_EN_SEASONS = "spring|summer|autumn|fall|winter"
_RULES = (
    (f"(?!ことし[^のはもに、])(?P<word>{_any('dewmy')})", _word),
    (
        rf"(?P<word>{_any('w')})の?(?:土日|(?P<weekday>[{_WEEKDAYS}])曜日?(?:[とか、や](?P<also>[{_WEEKDAYS}])曜日?)?)",
        _week_and_day,
    ),
    (rf"(?P<word>{_any('m')})の?(?P<day>{_NUMBER})日(?![間分後前目])", _month_and_day),
    (rf"the (?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)? of (?P<word>{_any('m')})", _month_and_day),
    (
        rf"(?P<word>{_any('y')}|{_YEAR}年|{_ALONE}{_NUMBER}年前)の?(?P<month>{_NUMBER})月(?:の?(?P<day>{_NUMBER})日(?![間分後前目]))?",
        _year_and_month,
    ),
    (rf"(?P<word>{_any('y')}|{_YEAR}年|{_ALONE}{_NUMBER}年前)の?(?P<season>[春夏秋冬])", _year_and_season),
    (rf"(?P<season>{_EN_SEASONS}) (?:of )?(?P<word>{_YEAR}|{_any('y')})", _year_and_season),
    (
        rf"{_ALONE}(?P<count>{_NUMBER}) ?(?P<unit>日|週間?|[ヶケカかヵ箇ヵｶ]月|年)(?:間)?(?P<side>[前後])(?![半後])",
        _ago,
    ),
    (
        rf"{_ALONE}(?P<count>[0-9]{{1,3}}|an?|{'|'.join(_COUNTS[1:])}) (?P<unit>day|week|month|year)s? "
        r"(?P<side>ago|from now)",
        _ago,
    ),
    (f"{_ALONE}半年(?P<side>[前後])", _half_a_year),
    (rf"(?P<side>今度|次|この前|この間|こないだ|前)の(?P<weekday>[{_WEEKDAYS}])曜日?", _side_and_weekday),
    (rf"(?P<side>last|next|this) (?P<weekday>{_EN_DAYS})", _side_and_weekday),
    (
        rf"(?<![一-鿿々ァ-ヺ・])(?<!毎週の)(?P<weekday>[{_WEEKDAYS}])(?:曜日?(?=[にはもの、]|から|[朝昼夜晩午])|曜日(?=[一-鿿])(?!曜))",
        _weekday,
    ),
    (rf"on (?P<weekday>{_EN_DAYS})", _weekday),
    (rf"{_ALONE}(?<!年)(?<!年の)(?P<month>{_NUMBER})月(?=に|から|の(?:初|終|中|末))", _bare_month),
    (rf"in (?P<month>{_NAMES})", _bare_month),
    (rf"(?:in )?(?P<month>{_NAMES}),? (?:of )?(?P<year>{_YEAR}|{_any('y')})", _month_and_year),
    (rf"(?P<side>last|next|this) (?P<name>{_EN_SEASONS}|{_NAMES})", _side_and_season),
)
