"""Rates with their uncertainty, the agreement of two judges, and whether two runs differ by more than chance."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Z_95 = 1.959964  # normal quantile of a two-sided interval of 95 %


@dataclass(frozen=True)
class Rate:
    """A part of a whole, both counted. Raises ValueError where the part is negative or larger than the whole."""

    numerator: int
    denominator: int

    def __post_init__(self) -> None:
        if not 0 <= self.numerator <= self.denominator:
            raise ValueError(f"{self.numerator} of {self.denominator} is no rate")

    @property
    def value(self) -> float | None:
        """The share, in [0, 1]; None of nothing."""
        return self.numerator / self.denominator if self.denominator else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's score interval, 95 %, within [0, 1]; None of nothing.

        Wilson 1927, https://doi.org/10.2307/2276774, without correction for continuity.
        """
        if not self.denominator:
            return None
        n, share, z2 = self.denominator, self.numerator / self.denominator, Z_95**2
        middle = (share + z2 / (2 * n)) / (1 + z2 / n)
        half = Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n**2))
        # At the ends of the scale it is exact; computed, it would be off by the last bit.
        low = 0.0 if self.numerator == 0 else middle - half
        return low, 1.0 if self.numerator == n else middle + half

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.numerator + other.numerator, self.denominator + other.denominator)

    def as_json(self) -> dict[str, Any]:
        """Return the counts, the value and the interval's ends, the last three None of nothing."""
        low, high = self.interval or (None, None)
        return {
            "num": self.numerator,
            "den": self.denominator,
            "value": self.value,
            "low": low,
            "high": high,
        }

    def __str__(self) -> str:
        counts = f"{self.numerator}/{self.denominator}"
        if self.value is None or self.interval is None:
            return f"n/a ({counts})"
        low, high = self.interval
        return f"{_short(self.value)} ({counts}, {_short(low)} to {_short(high)})"


def _short(share: float) -> str:
    return f"{share:.2f}".removeprefix("0")


@dataclass(frozen=True)
class Agreement:
    """How two judges answered the same yes-or-no questions, as counts."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool]]) -> "Agreement":
        """Count the pairs of answers, one pair a question."""
        answers = [(bool(first), bool(second)) for first, second in pairs]
        return cls(*(answers.count(pair) for pair in [(True, True), (True, False), (False, True), (False, False)]))

    @property
    def count(self) -> int:
        """How many questions both answered."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def agreeing(self) -> Rate:
        """The questions with the same answer, of all."""
        return Rate(self.both + self.neither, self.count)

    @property
    def accuracy(self) -> float | None:
        """The share of questions with the same answer; None of none."""
        return self.agreeing.value

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa, in [-1, 1]: agreement beyond chance.

        None of no questions, and where chance alone would agree always (both gave one and the same answer throughout).
        Cohen 1960, https://doi.org/10.1177/001316446002000104
        """
        n = self.count
        first, second = self.both + self.only_first, self.both + self.only_second
        by_chance = first * second + (n - first) * (n - second)  # times n squared
        if by_chance == n * n:
            return None
        return (n * (self.both + self.neither) - by_chance) / (n * n - by_chance)


def mcnemar(only_a: int, only_b: int) -> float:
    """Return the exact two-sided p-value, in (0, 1], that A and B err alike, given how often one of them alone erred.

    The binomial form of McNemar 1947, https://doi.org/10.1007/BF02295996; 1 where they never differ.
    """
    n, fewer = only_a + only_b, min(only_a, only_b)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / (1 << n))


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p-values of several comparisons, adjusted for their number, in the order given.

    Holm 1979, https://www.jstor.org/stable/4615733
    """
    adjusted, highest = [0.0] * len(ps), 0.0
    for done, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - done) * ps[place]))
        adjusted[place] = highest
    return adjusted
