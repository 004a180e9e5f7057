"""Fixtures that every kind of test shares."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests import shapes
from tests.running import RunningServer
from tests.services import Postgres

pytest_plugins = ["tests.requiring"]

# Containers often set this. Every process of a test would then compile our sources anew: a third of what it costs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

DATA = Path(__file__).parents[2] / "shared" / "data" / "real-persona-chat"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes ``--numprocesses=auto`` is: one a core, as tests start servers and a browser.

    Four at most: a container may see more cores than it is given.
    """
    return min(os.cpu_count() or 1, 4)


@pytest.fixture(scope="session")
def real_logs() -> Path:
    """The folder of real conversations that may lie beside the checkout."""
    if not DATA.is_dir():
        pytest.skip("The real conversations (../shared/data) are not beside this checkout.")
    return DATA


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder of its own."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def server(home: Path) -> Iterator[RunningServer]:
    """A running server with all defaults: no key, no services."""
    with RunningServer(home) as running:
        yield running


@pytest.fixture(scope="session")
def postgres_server() -> Postgres:
    """A PostgreSQL cluster of this test process's own."""
    return shapes.running(Postgres)


@pytest.fixture(scope="session")
def one_process() -> None:
    """Leave a test out where another shape is asked for: it is about `stackmem up`, or about SQLite's file."""
    if shapes.shape_of_all() != shapes.ONE_PROCESS:
        pytest.skip(f"It is about the shape of one process, and {shapes.SWITCH} asks for another.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write what a test printed or logged so that it can be sent to the process that gathers it: as UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
