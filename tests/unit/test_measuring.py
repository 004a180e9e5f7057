"""Figures of embedders, from vectors worked out by hand; what is advised; what is kept of them."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stackmem.measuring.advice import LIVE_MS, SLOW_LOAD_S, SPARE_MB, advice
from stackmem.measuring.candidates import DIMS, PRECISIONS, Candidate, dims_of
from stackmem.measuring.embedders import Report
from stackmem.measuring.figures import Recall, cosine, cut, percentile, recall
from stackmem.measuring.kept import FILE, keep, nearness
from stackmem.measuring.rows import Costs, Row, rows
from stackmem.measuring.run import Measured, failed
from stackmem.measuring.sample import Sample, japanese
from stackmem.measuring.usage import Usage
from stackmem.ports import Fingerprint, Vector

NOW = datetime(2026, 11, 30, 3, tzinfo=UTC)
FIGURES = {
    "load_s": 1.0, "resident_mb": 160.0, "peak_mb": 200.0,
    "query_ms": 2.0, "query_p95_ms": 3.0, "summary_ms": 2.0, "summary_p95_ms": 3.0,
}  # fmt: skip
INT8 = Fingerprint("qwen3-Tiny", 64, "task", "int8")


def unit(*vectors: list[float]) -> Vector:
    return cut(np.array(vectors, dtype=np.float32), len(vectors[0]))


# --- the built-in set ------------------------------------------------------------------------------------------------


def test_the_built_in_set_asks_60_questions_about_40_memories() -> None:
    sample = japanese()
    assert (len(set(sample.summaries)), len(set(sample.questions)), len(sample.answers)) == (40, 60, 60)
    assert set(sample.answers) == set(range(40))
    assert all(summary.count("\n") == 1 for summary in sample.summaries)


def test_no_question_of_the_set_names_the_topic_it_asks_for() -> None:
    sample = japanese()
    topics = [summary.split("\n")[0] for summary in sample.summaries]
    assert [q for q, place in zip(sample.questions, sample.answers, strict=True) if topics[place] in q] == []


# --- figures ---------------------------------------------------------------------------------------------------------


def test_recall_counts_the_first_and_the_first_five() -> None:
    summaries = np.eye(7, dtype=np.float32)
    questions = unit([1, 0, 0, 0, 0, 0, 0], [1, 1.1, 0, 0, 0, 0, 0], [9, 8, 7, 6, 5, 4, 3])
    assert recall(questions, summaries, [0, 0, 0]) == Recall(2, 3, 3)
    assert recall(questions, summaries, [0, 0, 4]) == Recall(1, 3, 3)
    assert recall(questions, summaries, [0, 0, 5]) == Recall(1, 2, 3)


def test_vectors_that_are_all_alike_find_nothing() -> None:
    same = np.ones((6, 2), dtype=np.float32)
    assert recall(same[:1], same, [0]) == Recall(0, 0, 1)


def test_a_cut_vector_is_a_unit_vector_and_zero_stays_zero() -> None:
    np.testing.assert_allclose(cut(np.array([[3, 4, 12]], np.float32), 2), [[0.6, 0.8]], rtol=1e-6)
    np.testing.assert_array_equal(cut(np.array([[0, 0, 1]], np.float32), 2), [[0, 0]])


def test_the_cosine_is_the_mean_over_all_texts() -> None:
    assert cosine(unit([1, 0], [0, 1]), unit([1, 0], [1, 0])) == pytest.approx(0.5)


def test_percentiles_of_nothing_are_an_error() -> None:
    assert percentile([1.0, 2.0, 4.0], 50) == 2.0
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)


def test_only_vectors_that_may_be_cut_are_cut_and_never_beyond_their_width() -> None:
    qwen3 = Candidate("qwen3", "int8", cuttable=True)
    assert dims_of(qwen3, 1024, DIMS) == [1024, 512, 256, 128, 64]
    assert dims_of(qwen3, 300, (64, 256, 64, 512)) == [256, 64]
    assert dims_of(qwen3, 48, DIMS) == [48]
    assert dims_of(Candidate("use"), 512, DIMS) == [512]


# --- rows ------------------------------------------------------------------------------------------------------------

SAMPLE = Sample(("a", "b"), ("a?", "b?"), (0, 1))
EXACT = unit([1, 0, 0, 0], [0, 1, 0, 0])


def measured(candidate: Candidate, queries: Vector = EXACT, summaries: Vector = EXACT, **figures: float) -> Measured:
    fingerprint = Fingerprint(f"{candidate.embedder}-Tiny", queries.shape[1], "task", candidate.precision)
    usage = Usage(8000.0, 7000.0)
    return Measured(candidate, FIGURES | figures, fingerprint, queries, summaries, usage)


def qwen3(precision: str) -> Candidate:
    return Candidate("qwen3", precision, cuttable=True)


def test_each_precision_gets_a_row_a_dimension_with_its_cosine_to_fp32() -> None:
    other = unit([1, 0, 0, 1], [0, 1, 0, 0])
    found = list(rows([measured(qwen3("fp32")), measured(qwen3("int8"), other)], [], SAMPLE, [4, 2], real=True))
    assert [(row.name, row.dim, row.recall) for row in found] == [
        ("qwen3 fp32", 4, Recall(2, 2, 2)),
        ("qwen3 fp32", 2, Recall(2, 2, 2)),
        ("qwen3 int8", 4, Recall(2, 2, 2)),
        ("qwen3 int8", 2, Recall(2, 2, 2)),
    ]
    assert [row.cosine for row in found] == [None, None, pytest.approx((np.sqrt(0.5) + 3) / 4), pytest.approx(1)]
    assert found[3].as_json()["bytes_per_vector"] == 8
    assert str(found[3].fingerprint).startswith("qwen3-Tiny-2-int8-")


def test_without_fp32_there_is_no_cosine() -> None:
    broken = failed(qwen3("fp32"), "Memory ran out.")
    found = list(rows([broken, measured(qwen3("int8"))], [], SAMPLE, [4], real=True))
    assert [(row.name, row.error, row.cosine) for row in found] == [
        ("qwen3 fp32", "Memory ran out.", None),
        ("qwen3 int8", "", None),
    ]


def test_of_random_weights_no_recall_is_told_but_that_of_bundled_ones_is() -> None:
    found = list(rows([measured(Candidate("use")), measured(qwen3("fp32"))], [], SAMPLE, [4], real=False))
    assert [row.recall for row in found] == [Recall(2, 2, 2), None]


def test_what_was_measured_beside_another_program_stands_beside() -> None:
    alone, beside = measured(Candidate("use")), measured(Candidate("use"), query_ms=9.0)
    (row,) = rows([alone], [beside], SAMPLE, [4], real=True)
    assert row.alone is not None
    assert row.beside is not None
    assert (row.alone.query_ms, row.beside.query_ms, row.costs) == (2.0, 9.0, row.beside)
    (row,) = rows([], [beside], SAMPLE, [4], real=True)
    assert (row.alone, row.costs, row.recall) == (None, row.beside, Recall(2, 2, 2))
    (row,) = rows([alone], [failed(Candidate("use"), "It was killed.")], SAMPLE, [4], real=True)
    assert (row.beside, row.error) == (None, "Beside it: It was killed.")


# --- advice ----------------------------------------------------------------------------------------------------------


def row(name: str = "use", found: int | None = 52, free_mb: float = 8000.0, **more: Any) -> Row:
    embedder, _, precision = name.partition(" ")
    costs = Costs(**FIGURES | {key: more.pop(key) for key in list(more) if key in FIGURES}, usage=Usage(free_mb, 0))
    fingerprint = Fingerprint(name, more.pop("dim", 512), "", precision)
    recall = None if found is None else Recall(found, 60, 60)
    return replace(Row(name, embedder, precision, fingerprint, costs, None, recall, None), **more)


def advised(*found: Row) -> str:
    return " ".join(advice(found))


def test_the_smallest_of_those_that_find_as_much_is_advised() -> None:
    wide = row("qwen3 int8", 55, dim=1024, peak_mb=2000, cosine=0.99)
    narrow = row("qwen3 int8", 54, dim=256, peak_mb=2000, cosine=0.99)
    said = advised(row("use", 45), wide, narrow)
    assert said.startswith("Take qwen3 int8, 256 dimensions (STACKMEM_EMBEDDER=qwen3 STACKMEM_QWEN3_PRECISION=int8 ")
    assert advised(row("use", 54), wide, narrow).startswith("Take use, 512 dimensions (STACKMEM_EMBEDDER=use)")


def test_without_trained_weights_cost_alone_decides() -> None:
    assert advised(row("qwen3 int8", None, peak_mb=2000), row("qwen3 bf16", None, peak_mb=1500)).startswith(
        "Take qwen3 bf16"
    )


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"query_ms": LIVE_MS + 1}, "a query takes 301 ms"),
        ({"peak_mb": 4000.0, "free_mb": 4000.0 + SPARE_MB - 1}, "it takes 4.0 GB of the 4.5 GB that are free"),
        ({"cosine": 0.9}, "its vectors are too far from those of fp32 (cosine 0.900"),
        ({"error": "It was killed."}, "It was killed."),
    ],
)
def test_what_does_not_fit_is_not_advised_and_the_reason_is_said(more: dict[str, Any], reason: str) -> None:
    said = advised(row("use", 40), row("qwen3 int8", 60, **more))
    assert said.startswith("Take use")
    assert f"Not qwen3 int8: {reason}" in said
    assert advised(row("qwen3 int8", 60, **more)).startswith("None of them fits")


def test_where_nothing_could_be_measured_no_memory_is_asked_for() -> None:
    missing = replace(row("qwen3 int8", None), alone=None, error="It needs torch.")
    assert advised(missing) == "Not qwen3 int8: It needs torch."


def test_a_precision_that_fits_in_one_dimension_is_not_told_to_be_unfit() -> None:
    assert "Not" not in advised(row("qwen3 int8", 60, cosine=0.99), row("qwen3 int8", 50, dim=64, cosine=0.9))


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({}, "It fits into stackmem's own process."),
        ({"load_s": SLOW_LOAD_S + 2.0}, "(`stackmem embed-server`, STACKMEM_EMBEDDER=openai here): it takes 12 s to"),
        ({"peak_mb": 4001.0}, "it takes most of the free memory"),
    ],
)
def test_what_loads_long_or_takes_most_of_the_memory_gets_a_process_of_its_own(more: Any, place: str) -> None:
    assert place in advised(row("qwen3 int8", 60, **more))


def test_a_server_is_one_already() -> None:
    assert "server of its own already" in advised(row("openai"))


# --- kept ------------------------------------------------------------------------------------------------------------


def kept(**cosines: float | None) -> dict[str, float]:
    """Return what a report of int8 in dimension 64 (``d64``) and others would keep."""
    found = [
        replace(row("qwen3 int8"), fingerprint=replace(INT8, dim=int(dim[1:])), cosine=cosine)
        for dim, cosine in cosines.items()
    ]
    return Report(found, None, None).cosines()


def test_what_was_measured_is_told_and_what_was_not_is_warned_of(tmp_path: Path) -> None:
    keep(tmp_path, kept(d64=0.99, d32=0.91, d48=None), NOW)
    assert nearness(tmp_path, INT8) == (True, "qwen3-Tiny at int8 in 64 dimensions is near fp32: cosine 0.990.")
    for dim, words in ((32, "far from fp32: cosine 0.910"), (48, "never measured"), (33, "never measured")):
        good, sentence = nearness(tmp_path, replace(INT8, dim=dim))
        assert not good
        assert words in sentence


def test_fp32_and_embedders_without_precision_need_no_measurement(tmp_path: Path) -> None:
    for precision in ("", PRECISIONS[0]):
        assert nearness(tmp_path, replace(INT8, precision=precision)) == (True, "")


def test_a_later_measurement_keeps_what_was_measured_of_others(tmp_path: Path) -> None:
    keep(tmp_path, kept(d64=0.99), NOW)
    keep(tmp_path, kept(d32=0.98), NOW)
    keep(tmp_path, kept(d64=0.97), NOW)
    assert nearness(tmp_path, INT8)[1].endswith("0.970.")
    assert nearness(tmp_path, replace(INT8, dim=32))[0]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("damaged", ["", "[]", "{", '{"%s": 3}', '{"%s": {"cosine_to_fp32": "x"}}'])
def test_a_damaged_file_counts_as_never_measured_and_is_mended_by_measuring(tmp_path: Path, damaged: str) -> None:
    (tmp_path / FILE).write_text(damaged.replace("%s", str(INT8)))
    assert "never measured" in nearness(tmp_path, INT8)[1]
    keep(tmp_path, kept(d64=0.99), NOW)
    assert nearness(tmp_path, INT8)[0]
    assert json.loads((tmp_path / FILE).read_text())[str(INT8)]["measured_at"] == "2026-11-30T03:00:00+00:00"
