import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.figures import Agreement, Rate, holm, mcnemar

COUNTS = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(sorted)


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, Statistics in Medicine 17:857, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0000),
    ],
)
def test_wilsons_interval_has_the_published_values(part: int, whole: int, low: float, high: float) -> None:
    assert Rate(part, whole).interval == pytest.approx((low, high), abs=0.00006)


@given(COUNTS)
def test_a_rate_and_its_interval_lie_between_zero_and_one_or_are_not_there(counts: list[int]) -> None:
    rate = Rate(*counts)
    if not counts[1]:
        assert (rate.value, rate.interval) == (None, None)
    else:
        assert rate.interval is not None
        assert rate.value is not None
        assert 0 <= rate.interval[0] <= rate.value + 1e-12
        assert rate.value - 1e-12 <= rate.interval[1] <= 1
        assert (rate.interval[0] == 0, rate.interval[1] == 1) == (counts[0] == 0, counts[0] == counts[1])


def test_a_rate_of_nothing_is_not_available() -> None:
    assert str(Rate(0, 0)) == "n/a (0/0)"
    assert Rate(0, 0).as_json() == {"num": 0, "den": 0, "value": None, "low": None, "high": None}


def test_a_rate_shows_its_counts_and_its_interval() -> None:
    assert str(Rate(10, 295)) == ".03 (10/295, .02 to .06)"
    assert str(Rate(29, 29)) == "1.00 (29/29, .88 to 1.00)"
    shown = Rate(1, 29).as_json()
    assert (shown["num"], shown["den"], shown["value"]) == (1, 29, 1 / 29)
    assert (shown["low"], shown["high"]) == pytest.approx((0.0061, 0.1718), abs=0.00006)


def test_rates_of_two_runs_add_their_counts() -> None:
    assert Rate(1, 4) + Rate(2, 6) == Rate(3, 10)
    assert sum([Rate(1, 4), Rate(2, 6)], Rate(0, 0)) == Rate(3, 10)


@pytest.mark.parametrize(("part", "whole"), [(2, 1), (-1, 3), (0, -1)])
def test_a_part_larger_than_the_whole_is_no_rate(part: int, whole: int) -> None:
    with pytest.raises(ValueError, match=f"{part} of {whole} is no rate"):
        Rate(part, whole)


@pytest.mark.parametrize(
    ("counts", "accuracy", "kappa"),
    [
        ((20, 5, 10, 15), 0.7, 0.4),  # by chance (25 * 30 + 25 * 20) / 50² = .5
        ((45, 15, 25, 15), 0.6, 0.1304),  # the two tables of https://en.wikipedia.org/wiki/Cohen%27s_kappa
        ((25, 35, 5, 35), 0.6, 0.2593),
        ((3, 0, 0, 2), 1.0, 1.0),
        ((0, 2, 2, 0), 0.0, -1.0),
    ],
)
def test_cohens_kappa_has_the_values_worked_out_by_hand(
    counts: tuple[int, int, int, int], accuracy: float, kappa: float
) -> None:
    agreement = Agreement(*counts)
    assert agreement.count == sum(counts)
    assert agreement.accuracy == accuracy
    assert agreement.kappa == pytest.approx(kappa, abs=0.00006)


def test_pairs_of_answers_are_counted_by_who_said_yes() -> None:
    pairs = [(True, True), (True, False), (True, False), (False, True), (False, False), (False, False), (False, False)]
    assert Agreement.of(pairs) == Agreement(1, 2, 1, 3)
    assert Agreement.of(iter(pairs)).agreeing == Rate(4, 7)


@pytest.mark.parametrize("pairs", [[], [(True, True)] * 9, [(False, False)]])
def test_judges_that_gave_one_answer_throughout_have_no_kappa(pairs: list[tuple[bool, bool]]) -> None:
    assert Agreement.of(pairs).kappa is None


def test_no_questions_have_no_accuracy() -> None:
    assert Agreement.of([]).accuracy is None


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),  # 2 * 1/2
        (0, 6, 0.03125),  # 2 * 1/64
        (5, 1, 0.21875),  # 2 * (1 + 6)/64
        (2, 8, 0.109375),  # 2 * (1 + 10 + 45)/1024
        (3, 3, 1.0),  # 2 * 42/64, which is more than all
    ],
)
def test_mcnemars_exact_p_has_the_values_worked_out_by_hand(only_a: int, only_b: int, p: float) -> None:
    assert mcnemar(only_a, only_b) == mcnemar(only_b, only_a) == p


def test_mcnemars_p_of_very_many_turns_does_not_overflow() -> None:
    assert 0 <= mcnemar(900, 1_500) < 1e-30


@pytest.mark.parametrize(
    ("ps", "adjusted"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # .005*4, .01*3, .03*2, and .04 not below .06
        ([0.01, 0.02, 0.03, 0.04, 0.05], [0.05, 0.08, 0.09, 0.09, 0.09]),  # R: p.adjust(1:5 / 100, "holm")
        ([0.6, 0.7], [1.0, 1.0]),
        ([], []),
    ],
)
def test_holms_adjusted_p_values_are_those_of_the_book(ps: list[float], adjusted: list[float]) -> None:
    assert holm(ps) == pytest.approx(adjusted)
