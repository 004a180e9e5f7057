"""What was measured, as rows: one for each embedder, precision and dimension."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from stackmem.measuring.candidates import REFERENCE, dims_of
from stackmem.measuring.figures import Recall, cosine, cut, recall
from stackmem.measuring.run import Measured
from stackmem.measuring.sample import Sample
from stackmem.measuring.usage import Usage
from stackmem.ports import Fingerprint, Vector

BYTES = 4  # of one dimension, in the database and in the index: float32


@dataclass(frozen=True)
class Costs:
    """Load time, memory and times of one run (see one.measure), and what the machine did meanwhile (MB, cores)."""

    load_s: float
    resident_mb: float
    peak_mb: float
    query_ms: float
    query_p95_ms: float
    summary_ms: float
    summary_p95_ms: float
    usage: Usage


@dataclass(frozen=True)
class Row:
    """One embedder in one precision and dimension; ``error`` is a sentence where there are no figures."""

    name: str
    embedder: str
    precision: str
    fingerprint: Fingerprint | None
    alone: Costs | None
    beside: Costs | None
    recall: Recall | None  # None also where the weights are random
    cosine: float | None  # to the same model in fp32; None where it is fp32, or that was not measured
    error: str = ""

    @property
    def costs(self) -> Costs | None:
        """The costs that count: beside the other program, where there was one."""
        return self.beside or self.alone

    @property
    def dim(self) -> int:
        """Dimensions; 0 where nothing was measured."""
        return self.fingerprint.dim if self.fingerprint else 0

    def as_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        shown = {name: value for name, value in asdict(self).items() if name not in ("name", "fingerprint")}
        return shown | {"dim": self.dim, "bytes_per_vector": self.dim * BYTES}


def rows(
    alone: Sequence[Measured], beside: Sequence[Measured], sample: Sample, dims: Sequence[int], real: bool
) -> Iterator[Row]:
    """Yield the rows of what was measured without and with the other program (one of the two may be empty).

    ``real``: the weights of models from elsewhere are trained ones; else only the bundled ones find anything.
    """
    first = alone or beside
    references = {
        one.candidate.embedder: one for one in first if one.candidate.precision == REFERENCE and not one.error
    }
    for place, one in enumerate(first):
        other = beside[place] if alone and beside else None
        costs, with_other = _costs(one), _costs(other) if other else None
        row = Row(
            one.candidate.name, one.candidate.embedder, one.candidate.precision, None,
            costs if alone else None, with_other if alone else costs, None, None, _errors(one, other),
        )  # fmt: skip
        if one.error:
            yield row
            continue
        reference = references.get(one.candidate.embedder) if one.candidate.precision else None
        for dim in dims_of(one.candidate, one.fingerprint.dim, dims):
            yield replace(
                row,
                fingerprint=replace(one.fingerprint, dim=dim),
                recall=_recall(one, sample, dim) if real or not one.candidate.cuttable else None,
                cosine=_cosine(one, reference, dim) if reference and reference is not one else None,
            )


def _costs(measured: Measured) -> Costs | None:
    return None if measured.error else Costs(**measured.figures, usage=measured.usage)


def _errors(one: Measured, other: Measured | None) -> str:
    return one.error or (f"Beside it: {other.error}" if other and other.error else "")


def _recall(measured: Measured, sample: Sample, dim: int) -> Recall:
    return recall(cut(measured.queries, dim), cut(measured.summaries, dim), sample.answers)


def _cosine(measured: Measured, reference: Measured, dim: int) -> float:
    return cosine(_all(measured, dim), _all(reference, dim))


def _all(measured: Measured, dim: int) -> Vector:
    import numpy as np

    return np.concatenate([cut(measured.queries, dim), cut(measured.summaries, dim)])
