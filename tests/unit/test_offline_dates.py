"""The offline model's dates: what relative words mean on the day they were said."""

from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.adapters.offline.dates import occurred, resolve
from stackmem.adapters.offline.relative import number

THURSDAY = datetime.fromisoformat("2026-07-02T20:15:00+09:00")


def days(sentence: str, at: datetime = THURSDAY, japanese: bool = True) -> tuple[str, str] | None:
    _, span = resolve(sentence, at, japanese)
    return (span.first.isoformat(), span.last.isoformat()) if span else None


@pytest.mark.parametrize(
    ("sentence", "day"),
    [
        ("来月3日に京都に行く", "2026-08-03"),
        ("来月の3日に京都に行く", "2026-08-03"),
        ("来月三日に京都に行くことにしたよ", "2026-08-03"),
        ("来月３日に行く", "2026-08-03"),
        ("来月二十五日に行く", "2026-08-25"),
        ("再来月の十日に引っ越す", "2026-09-10"),
        ("家賃の引き落としは今月25日なんだ", "2026-07-25"),
        ("先月の10日に健康診断を受けた", "2026-06-10"),
        ("来年の1月31日に退職する", "2027-01-31"),
        ("去年の8月15日に生まれた", "2025-08-15"),
        ("2024年の5月3日に買った", "2024-05-03"),
        ("3日前に買った", "2026-06-29"),
        ("三日前に買った", "2026-06-29"),
        ("十日前に買った", "2026-06-22"),
        ("２週間前に始めた", "2026-06-18"),
        ("10日後に届く", "2026-07-12"),
    ],
)
def test_a_day_of_another_month_or_some_days_away_is_that_day(sentence: str, day: str) -> None:
    assert days(sentence) == (day, day)


def test_a_day_that_the_month_does_not_have_leaves_the_month() -> None:
    assert days("先月の31日に会った") == ("2026-06-01", "2026-06-30")
    assert days("去年の2月30日に会った") == ("2025-02-01", "2025-02-28")


@pytest.mark.parametrize(
    ("sentence", "first", "last"),
    [
        ("来月3日間休む", "2026-08-01", "2026-08-31"),
        ("去年の夏に北海道に行った", "2025-06-01", "2025-08-31"),
        ("去年の春に入社した", "2025-03-01", "2025-05-31"),
        ("去年の秋に始めた", "2025-09-01", "2025-11-30"),
        ("去年の冬はスキーをした", "2025-12-01", "2026-02-28"),
        ("おととしの夏に結婚した", "2024-06-01", "2024-08-31"),
        ("今年の夏休みはハワイに行く", "2026-06-01", "2026-08-31"),
        ("2024年の夏に引っ越した", "2024-06-01", "2024-08-31"),
        ("去年の12月に引っ越した", "2025-12-01", "2025-12-31"),
        ("来年の3月に卒業する", "2027-03-01", "2027-03-31"),
        ("来年の三月に卒業する", "2027-03-01", "2027-03-31"),
        ("3ヶ月前に引っ越した", "2026-04-01", "2026-04-30"),
        ("8か月前に引っ越した", "2025-11-01", "2025-11-30"),
        ("5年前に結婚した", "2021-01-01", "2021-12-31"),
        ("一年前に結婚した", "2025-01-01", "2025-12-31"),
        ("先週末にキャンプした", "2026-06-27", "2026-06-28"),
        ("再来週は出張", "2026-07-13", "2026-07-19"),
        ("来週の土曜と日曜に行く予定", "2026-07-11", "2026-07-12"),
        ("来週の土日は温泉に行く", "2026-07-11", "2026-07-12"),
        ("2年前の夏に行った", "2024-06-01", "2024-08-31"),
        ("三年前の12月に行った", "2023-12-01", "2023-12-31"),
        ("半年前に転職した", "2026-01-01", "2026-01-31"),
        ("3月に引っ越した", "2026-03-01", "2026-03-31"),
        ("10月に引っ越した", "2025-10-01", "2025-10-31"),
        ("10月に引っ越す", "2026-10-01", "2026-10-31"),
        ("3月に卒業する予定", "2027-03-01", "2027-03-31"),
    ],
)
def test_seasons_months_and_years_are_spans(sentence: str, first: str, last: str) -> None:
    assert days(sentence) == (first, last)


@pytest.mark.parametrize(
    ("sentence", "day"),
    [
        ("土曜日に映画を見に行った", "2026-06-27"),
        ("土曜に飲んだ", "2026-06-27"),
        ("土曜の夜は飲み会でした", "2026-06-27"),
        ("土曜日にすし屋に行ったよ", "2026-06-27"),
        ("日曜日買い物に行ったよ", "2026-06-28"),
        ("土曜から旅行に行くんだ", "2026-07-04"),
        ("土曜に映画見てくる", "2026-07-04"),
        ("水曜に検査を受けてきた", "2026-07-01"),
        ("木曜日に行った", "2026-07-02"),
        ("土曜日に行く", "2026-07-04"),
        ("土曜日に行くんだ", "2026-07-04"),
        ("土曜日に行くって言ったじゃん", "2026-07-04"),
        ("土曜日に行くことにした", "2026-07-04"),
        ("土曜日に行きたいな", "2026-07-04"),
        ("土曜は行かないよ", "2026-07-04"),
        ("土曜に友達と会います", "2026-07-04"),
        ("木曜日に行く", "2026-07-09"),
        ("今度の土曜に行く", "2026-07-04"),
        ("今度の木曜にデート", "2026-07-09"),
        ("この前の土曜に会った", "2026-06-27"),
        ("先週の土曜に会った", "2026-06-27"),
        ("来週の月曜に会う", "2026-07-06"),
        ("再来週の月曜に会う", "2026-07-13"),
    ],
)
def test_a_weekday_is_the_last_or_the_next_by_the_tense(sentence: str, day: str) -> None:
    assert days(sentence) == (day, day)


def test_each_weekday_goes_by_the_predicate_after_it() -> None:
    written, _ = resolve("土曜日に買った本を日曜日に読む", THURSDAY, japanese=True)
    assert written == "土曜日（2026年6月27日）に買った本を日曜日（2026年7月5日）に読む"


@pytest.mark.parametrize(
    "sentence",
    [
        "毎週土曜日に泳ぐ",
        "毎週の土曜日に泳ぐ",
        "土曜日はいつも泳ぐよ",
        "土曜日は英会話に通っています",
        "土曜日が休みなんだ",
        "土曜日になったら行く",
        "金曜ロードショーを見た",
        "2、3日前に買った",
        "数日前に買った",
        "夏っぽいことしてていいですね",
        "1年半前に買った",
        "土曜日曜に泳いだ",
        "一年前後で終わる",
        "誕生日は3月なんだ",
    ],
)
def test_habits_states_and_vague_counts_have_no_date(sentence: str) -> None:
    assert resolve(sentence, THURSDAY, japanese=True) == (sentence, None)


def test_a_day_said_without_its_year_goes_by_the_tense() -> None:
    assert days("12月24日に会った") == ("2025-12-24", "2025-12-24")
    assert days("十二月二十四日に会った") == ("2025-12-24", "2025-12-24")
    assert days("1月3日に会う") == ("2027-01-03", "2027-01-03")
    assert days("妹の誕生日は12月24日なんだ") == ("2026-12-24", "2026-12-24")
    assert days("2020年1月3日に会う") == ("2020-01-03", "2020-01-03")


def test_just_after_midnight_yesterday_is_the_calendar_day_before_in_the_zone_of_the_turn() -> None:
    said = datetime.fromisoformat("2026-07-02T00:30:00+09:00")  # still July 1 in UTC
    _, span = resolve("昨日買った", said, japanese=True)
    assert occurred(span, said)["occurred_at"] == "2026-07-01T00:00:00+09:00"


@pytest.mark.parametrize(
    ("sentence", "first", "last"),
    [
        ("I went there last Saturday", "2026-06-27", "2026-06-27"),
        ("I saw her last Thursday", "2026-06-25", "2026-06-25"),
        ("I will fly next Friday", "2026-07-03", "2026-07-03"),
        ("I lost my key on Saturday", "2026-06-27", "2026-06-27"),
        ("I have a dentist appointment on Friday", "2026-07-03", "2026-07-03"),
        ("We swam a lot last summer", "2025-06-01", "2025-08-31"),
        ("We moved last winter", "2025-12-01", "2026-02-28"),
        ("We marry next summer", "2027-06-01", "2027-08-31"),
        ("We moved here in the summer of last year", "2025-06-01", "2025-08-31"),
        ("I fly on the 3rd of next month", "2026-08-03", "2026-08-03"),
        ("I moved here in March", "2026-03-01", "2026-03-31"),
        ("I moved here in October", "2025-10-01", "2025-10-31"),
        ("I'll move in March", "2027-03-01", "2027-03-31"),
        ("I moved in March 2024", "2024-03-01", "2024-03-31"),
        ("I moved in March of last year", "2025-03-01", "2025-03-31"),
        ("She came two weeks ago", "2026-06-18", "2026-06-18"),
        ("She came a month ago", "2026-06-01", "2026-06-30"),
        ("We married 5 years ago", "2021-01-01", "2021-12-31"),
    ],
)
def test_english_dates_are_found(sentence: str, first: str, last: str) -> None:
    assert days(sentence, japanese=False) == (first, last)


def test_on_its_first_day_a_season_is_no_longer_next_and_not_yet_last() -> None:
    june = datetime.fromisoformat("2026-06-01T09:00:00+09:00")
    assert days("We marry next summer", june, japanese=False) == ("2027-06-01", "2027-08-31")
    assert days("We married last summer", june, japanese=False) == ("2025-06-01", "2025-08-31")
    assert days("We marry this summer", june, japanese=False) == ("2026-06-01", "2026-08-31")
    assert days("We marry this Friday", june, japanese=False) == ("2026-06-05", "2026-06-05")


@pytest.mark.parametrize(
    "sentence", ["On Saturdays I swim", "My birthday is in March", "I work on Saturday", "I may go"]
)
def test_english_habits_and_states_have_no_date(sentence: str) -> None:
    assert resolve(sentence, THURSDAY, japanese=False) == (sentence, None)


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("１２", 12), ("三", 3), ("十", 10), ("十五", 15), ("二十", 20), ("三十一", 31)]
)
def test_numbers_are_read_in_any_script(text: str, value: int) -> None:
    assert number(text) == value


@pytest.mark.parametrize("text", ["二三", "十十", "百"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not in tuple"):
        number(text)


@given(st.dates(), st.sampled_from(["土曜日に行った", "土曜日に行く", "今度の土曜", "この前の土曜"]))
def test_a_weekday_is_always_that_weekday_and_at_most_a_week_away(today: date, sentence: str) -> None:
    _, span = resolve(sentence, datetime.combine(today, datetime.min.time()), japanese=True)
    if span is None:  # only where the calendar ends
        assert today.year in (1, 9999)
    else:
        assert span.first.weekday() == 5
        assert abs((span.first - today).days) <= 7
