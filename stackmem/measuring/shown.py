"""What was measured of embedders, as tables."""

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stackmem.measuring.embedders import Report
from stackmem.measuring.rows import BYTES, Costs, Row

WIDTH = 160  # characters, where it goes into a file


def show(report: Report) -> None:
    """Print the costs (beside the other program first), the vectors, and the advice."""
    found, by_itself = report.rows, report.by_itself
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if by_itself:
        console.print(
            f"{report.beside} by itself: {by_itself.memory_mb:,.0f} MB, {by_itself.cores:.1f} cores; "
            f"{by_itself.free_mb:,.0f} MB are free beside it.",
            markup=False, highlight=False,
        )  # fmt: skip
        console.print(_costs_table("Beside it", [(row, row.beside) for row in found], beside=True))
    if any(row.alone for row in found) or not by_itself:
        console.print(_costs_table("Without it" if by_itself else "", [(row, row.alone) for row in found]))
    if any(row.fingerprint for row in found):
        console.print(_vectors_table(found))
    for sentence in report.advice:
        console.print(sentence, markup=False, highlight=False)


def _costs_table(title: str, found: Iterable[tuple[Row, Costs | None]], *, beside: bool = False) -> Table:
    names = ["load s", "MB loaded", "MB at most", "query ms", "summary ms"]
    names += ["its MB", "its cores", "MB free at least"] if beside else []
    table = _table(title, ["embedder"], names, ["note"])
    for name, (row, costs) in {row.name: (row, costs) for row, costs in found}.items():
        cells = _cost_cells(costs, beside) if costs else ["–"] * len(names)
        table.add_row(name, *cells, Text(row.error))
    return table


def _cost_cells(costs: Costs, beside: bool) -> list[str]:
    cells = [f"{costs.load_s:.1f}", f"{costs.resident_mb:,.0f}", f"{costs.peak_mb:,.0f}"]
    cells += [f"{costs.query_ms:,.1f}", f"{costs.summary_ms:,.1f}"]
    if beside:
        usage = costs.usage
        cells += [f"{usage.memory_mb:,.0f}", f"{usage.cores:.1f}", f"{usage.least_free_mb:,.0f}"]
    return cells


def _vectors_table(found: Sequence[Row]) -> Table:
    questions = next((row.recall.questions for row in found if row.recall), 0)
    title = "Their vectors"
    if questions:
        title = f"What they find: {questions} questions in Japanese, each with one answer among 40 memories"
    table = _table(
        title, ["embedder"], ["dimensions", "bytes a vector", "found first", "among 5", "cosine to fp32"], []
    )
    for row in found:
        if row.fingerprint:
            recall = row.recall
            table.add_row(
                row.name, str(row.dim), f"{row.dim * BYTES:,}",
                str(recall.at_1) if recall else "–", str(recall.at_5) if recall else "–",
                "–" if row.cosine is None else f"{row.cosine:.4f}",
            )  # fmt: skip
    return table


def _table(title: str, left: Sequence[str], right: Sequence[str], last: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right")
    for name in last:
        table.add_column(name, overflow="fold")
    return table
