"""Rates over time as points of a small picture; the template draws them as SVG, with the table behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 360, 180
LEFT, RIGHT, TOP, BOTTOM = 34, 8, 12, 22
SHOWN = 40  # newest points


@dataclass(frozen=True)
class Point:
    """One rate: where it stands, and where its interval begins and ends."""

    x: float
    y: float
    low: float
    high: float
    title: str


@dataclass(frozen=True)
class Chart:
    """What is drawn: points, the lines between them, the grid, and where the model changed."""

    points: Sequence[Point]
    line: str
    grid: Sequence[tuple[float, str]]
    changes: Sequence[tuple[float, str]]


def chart(rates: Sequence[Mapping[str, Any]], titles: Sequence[str], models: Sequence[str]) -> Chart:
    """Return the chart of rates, oldest first, each with ``value``, ``low``, ``high``; a rate of nothing has no point.

    ``models`` names who answered: a line stands where that changes.
    """
    first = max(len(rates) - SHOWN, 0)
    count = len(rates) - first
    step = (WIDTH - LEFT - RIGHT) / max(count, 1)
    xs = [LEFT + step * (place + 0.5) for place in range(count)]
    points = [
        Point(x, _y(rate["value"]), _y(rate["low"]), _y(rate["high"]), title)
        for x, rate, title in zip(xs, rates[first:], titles[first:], strict=True)
        if rate["value"] is not None
    ]
    changes = [
        (xs[place] - step / 2, models[first + place])
        for place in range(1, count)
        if models[first + place] != models[first + place - 1]
    ]
    line = " ".join(f"{point.x:.1f},{point.y:.1f}" for point in points)
    return Chart(points, line, [(_y(share), f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)], changes)


def _y(share: float) -> float:
    return round(TOP + (1 - share) * (HEIGHT - TOP - BOTTOM), 1)
