"""A pytest plugin: with STACKMEM_TEST_REQUIRE=1 a test that is skipped fails.

On somebody's own machine a test that needs a service is skipped with a sentence. In CI everything is there, so a skip
would be a claim that nobody checked. Only what is marked ``qdrant_server`` or ``qwen3_weights`` may be skipped while
STACKMEM_TEST_QDRANT_URL or STACKMEM_TEST_QWEN3 is unset: no package holds that server, or those weights.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest

SWITCH = "STACKMEM_TEST_REQUIRE"
QDRANT = "STACKMEM_TEST_QDRANT_URL"
QWEN3 = "STACKMEM_TEST_QWEN3"
MAY_BE_SKIPPED = {"qdrant_server": QDRANT, "qwen3_weights": QWEN3}  # marker: what must be set to run it


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"qdrant_server: needs a Qdrant server ({QDRANT})")
    config.addinivalue_line("markers", f"qwen3_weights: needs the real Qwen3-Embedding-0.6B in a folder ({QWEN3})")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    may_be_skipped = any(
        item.get_closest_marker(marker) is not None and not os.environ.get(name)
        for marker, name in MAY_BE_SKIPPED.items()
    )
    if not hasattr(report, "wasxfail") and not may_be_skipped:
        _require(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _require(report)  # a module that skips itself
    return report


def _require(report: Any) -> None:
    if os.environ.get(SWITCH) == "1" and report.outcome == "skipped":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{SWITCH}=1, and this was not run. {reason}"
