"""Measures all embedders that are here, with and without another program, and says which one to take."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stackmem.config import Settings
from stackmem.indexing import Progress
from stackmem.measuring.advice import advice
from stackmem.measuring.candidates import Candidate, candidates
from stackmem.measuring.other import Other
from stackmem.measuring.rows import Row, rows
from stackmem.measuring.run import Measured, measure
from stackmem.measuring.sample import japanese
from stackmem.measuring.usage import Usage, wait_until_loaded


@dataclass(frozen=True)
class Report:
    """The rows and what follows from them; the other program's name and what it takes by itself, where there is one."""

    rows: Sequence[Row]
    beside: str | None
    by_itself: Usage | None

    @property
    def advice(self) -> list[str]:
        """Plain sentences."""
        return list(advice(self.rows))

    def cosines(self) -> dict[str, float]:
        """Return the cosine to fp32 by fingerprint, where it was measured."""
        return {str(row.fingerprint): row.cosine for row in self.rows if row.cosine is not None}

    def as_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return {
            "beside": {"program": self.beside, **asdict(self.by_itself)} if self.by_itself else None,
            "rows": [row.as_json() for row in self.rows],
            "advice": self.advice,
        }


def measure_all(
    settings: Settings,
    wanted: Collection[str],
    beside: str | None,
    dims: Sequence[int],
    report: Progress,
    *,
    real: bool,
) -> Report:
    """Measure the ``wanted`` embedders (none: all that are here). ``real``: Qwen3's weights are trained ones.

    Raises StackmemError where the other program cannot be started, or ends.
    """
    todo = list(candidates(settings, wanted))
    alone, with_other, by_itself = _measure(todo, beside, report)
    return Report(list(rows(alone, with_other, japanese(), dims, real)), beside, by_itself)


def _measure(
    todo: Sequence[Candidate], beside: str | None, report: Progress
) -> tuple[list[Measured], list[Measured], Usage | None]:
    """Measure all of them with the other program (first, so that a wrong command is known at once), then without.

    A process that ran before cannot be measured without.
    """
    if beside is None:
        return _each(todo, None, lambda done: report(done, len(todo))), [], None
    with Other(beside) as other:
        total = len(todo) * (2 if other.is_command else 1)
        report(0, total)
        by_itself = wait_until_loaded(other)
        with_other = _each(todo, other, lambda done: report(done, total))
    alone = _each(todo, None, lambda done: report(len(todo) + done, total)) if other.is_command else []
    return alone, with_other, by_itself


def _each(todo: Sequence[Candidate], other: Other | None, report: Callable[[int], None]) -> list[Measured]:
    found: list[Measured] = []
    for candidate in todo:
        report(len(found))
        found.append(measure(candidate, other))
    report(len(found))
    return found
