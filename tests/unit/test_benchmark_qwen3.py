"""The benchmark of the Qwen3 embedder measures what it says, here on a tiny model."""

from pathlib import Path

import pytest

from benchmarks.qwen3 import REFERENCE, TOKENS, goals, measure, query
from tests import qwen3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    qwen3.require_packages()
    return qwen3.make_model(tmp_path_factory.mktemp("models") / "Tiny")


@pytest.mark.parametrize("what", [REFERENCE, "int8"])
def test_every_figure_is_measured(folder: Path, what: str) -> None:
    figures = measure(folder, what, 1, 2)
    assert set(figures) == {"load_s", "resident_gb", "peak_gb", "query_ms", "query_least_ms"}
    assert all(figure > 0 for figure in figures.values())


def test_the_query_is_as_long_as_it_says(folder: Path) -> None:
    from stackmem.adapters.qwen3_embedder import TASK
    from stackmem.adapters.qwen3_files import read_card

    assert len(read_card(str(folder)).tokens(f"Instruct: {TASK}\nQuery:{query(folder)}", 512)) == max(
        TOKENS, len(read_card(str(folder)).tokens(f"Instruct: {TASK}\nQuery:", 512))
    )


def test_goals_are_met_or_not() -> None:
    good = {"query_ms": 100.0, "resident_gb": 1.3, "peak_gb": 1.4}
    assert all(goals({"int8": good, REFERENCE: {"query_ms": 1000.0}}).values())
    bad = {"query_ms": 200.0, "resident_gb": 1.9, "peak_gb": 3.3}
    assert not any(goals({"int8": bad, REFERENCE: {"query_ms": 1000.0}}).values())
