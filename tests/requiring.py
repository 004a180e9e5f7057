"""A pytest plugin: with STACKMEM_TEST_REQUIRE=1 a test that is skipped fails.

On somebody's own machine a test that needs a service is skipped with a sentence. In CI everything is there, so a skip
would be a claim that nobody checked. Only what is marked ``qdrant_server`` may be skipped while
STACKMEM_TEST_QDRANT_URL is unset: there is no package of that server to install.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest

SWITCH = "STACKMEM_TEST_REQUIRE"
QDRANT = "STACKMEM_TEST_QDRANT_URL"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"qdrant_server: needs a Qdrant server ({QDRANT})")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    may_be_skipped = item.get_closest_marker("qdrant_server") is not None and not os.environ.get(QDRANT)
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
