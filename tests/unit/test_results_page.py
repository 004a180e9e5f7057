"""docs/results.md shows the figures that are kept, and says where the prompts have changed since."""

from benchmarks.results import PAGE, page_text


def test_the_page_is_what_the_kept_figures_say() -> None:
    assert PAGE.read_text("utf-8") == page_text(), "run `.venv/bin/python -m benchmarks.results page`"
