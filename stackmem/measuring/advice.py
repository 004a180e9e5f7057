"""Which embedder to take on this machine, and whether in stackmem's own process."""

import math
from collections.abc import Iterator, Sequence

from stackmem.measuring.kept import LIKE_FP32
from stackmem.measuring.rows import Costs, Row

LIVE_MS = 300  # of a query: it comes on top of the model's seconds, and a longer one is heard as a pause
SPARE_MB = 500  # to be left free
SLOW_LOAD_S = 10  # a restart of stackmem should not leave searches waiting longer


def advice(rows: Sequence[Row]) -> Iterator[str]:
    """Yield plain sentences: which one to take and how to run it, and which ones do not fit, and why."""
    reasons = {row: why_not(row) for row in rows}
    fit = [row for row in rows if not reasons[row]]
    if best := choice(fit):
        yield f"Take {best.name}, {best.dim} dimensions ({_settings(best)}): {_found(best)}. {_place(best)}"
    elif any(row.costs for row in rows):
        yield "None of them fits: free some memory, or let another machine embed (`stackmem embed-server` there)."
    taken = {row.name for row in fit}
    faults = {row.name: reasons[row] for row in rows if row.name not in taken}
    if faults:
        yield "Not " + "; not ".join(f"{name}: {reason}" for name, reason in faults.items()) + "."


def why_not(row: Row) -> str:
    """Return why an embedder cannot be taken, without a full stop; empty where it can."""
    costs = row.costs
    if row.error or costs is None:
        return (row.error or "nothing was measured").rstrip(".")
    if costs.query_ms > LIVE_MS:
        return f"a query takes {costs.query_ms:.0f} ms, and a talk bears {LIVE_MS}"
    if costs.peak_mb + SPARE_MB > costs.usage.free_mb:
        return f"it takes {_gb(costs.peak_mb)} of the {_gb(costs.usage.free_mb)} that are free"
    if row.cosine is not None and row.cosine < LIKE_FP32:
        return f"its vectors are too far from those of fp32 (cosine {row.cosine:.3f}, at least {LIKE_FP32})"
    return ""


def choice(fit: Sequence[Row]) -> Row | None:
    """Return the cheapest of those that find as much as the best, give or take one standard error."""
    judged = [(row, row.recall) for row in fit if row.recall]
    if not judged:
        return min(fit, key=_cost, default=None)
    best = max(recall.at_1 for _, recall in judged)
    questions = judged[0][1].questions
    error = math.sqrt(best * (questions - best) / questions)
    return min((row for row, recall in judged if recall.at_1 >= best - error), key=_cost)


def _cost(row: Row) -> tuple[float, int]:
    return (row.costs.peak_mb if row.costs else math.inf, row.dim)


def _found(row: Row) -> str:
    costs = row.costs
    assert costs is not None
    finds = f"finds {row.recall.at_1} of {row.recall.questions} first, " if row.recall else ""
    return f"{finds}{costs.query_ms:.0f} ms a query, {_gb(costs.peak_mb)} at the most"


def _place(row: Row) -> str:
    """Say whether it belongs into stackmem's process."""
    costs = row.costs
    assert costs is not None
    if row.embedder == "openai":
        return "It is a server of its own already."
    if reason := _apart(costs):
        return f"Run it as a server of its own (`stackmem embed-server`, STACKMEM_EMBEDDER=openai here): {reason}."
    return "It fits into stackmem's own process."


def _apart(costs: Costs) -> str:
    if costs.peak_mb > costs.usage.free_mb / 2:
        return "it takes most of the free memory, and where that runs out the robot should go on talking"
    if costs.load_s > SLOW_LOAD_S:
        return f"it takes {costs.load_s:.0f} s to load, which every restart of stackmem would wait for"
    return ""


def _settings(row: Row) -> str:
    said = [f"STACKMEM_EMBEDDER={row.embedder}"]
    if row.precision:
        said += [f"STACKMEM_QWEN3_PRECISION={row.precision}", f"STACKMEM_EMBEDDING_DIM={row.dim}"]
    return " ".join(said)


def _gb(megabytes: float) -> str:
    return f"{megabytes / 1000:.1f} GB"
