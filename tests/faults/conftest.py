"""A server in each shape of several processes, on which one fault after the other happens."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checking import check_store, rows
from tests.faults.talking import ROUNDS, settle
from tests.running import RunningServer
from tests.services import Service, required
from tests.shapes import ONE_PROCESS, SHAPES, running

# What only one broker can do: RabbitMQ's queues are on its disk, and Redis refuses at once.
OF_ONE = {
    "test_a_broker_that_forgets_everything": "postgres-redis",
    "test_a_broker_short_of_memory_that_confirms_nothing": "postgres-rabbitmq",
}
OF_BOTH = ("test_a_broker_that_refuses_what_is_published",)  # in another way; the short round tries all else over one
QUICK = {"turn_timeout_s": "2"}  # after which a turn whose request died is taken over by the robot's next try


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a broker cannot do, and of the short round what is tried over the other broker."""
    left = [item for item in items if item.path.parent == Path(__file__).parent and _is_left_out(item.name)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _is_left_out(name: str) -> bool:
    test = name.partition("[")[0]
    if test in OF_ONE:
        return OF_ONE[test] not in name
    return ROUNDS == 1 and "postgres-redis" in name and test not in OF_BOTH


@pytest.fixture(scope="module", params=[shape for shape in SHAPES if shape != ONE_PROCESS])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Web, worker, scoring worker and beat over PostgreSQL and a broker; its whole store is checked at the end."""
    for kind in SHAPES[request.param]:
        required(kind)
    home = tmp_path_factory.mktemp(request.param) / "home"
    home.mkdir()
    server = RunningServer(home, shape=request.param, **QUICK)
    try:
        server.start()
        yield server
        settle(server)
        assert server.stop() == 0
    finally:
        server.kill()
    # Celery logs a broker that goes away with a trace; we never do.
    assert "went wrong inside" not in server.said(), server.said()[-5000:]
    assert not re.search(r"(GET|POST) \S+ failed", server.said()), server.said()[-5000:]
    check_store(home, rows(home, "SELECT count(*) FROM turn")[0][0])


@pytest.fixture
def broker(cluster: RunningServer, request: pytest.FixtureRequest) -> Any:
    """The broker of the cluster."""
    return running(_kinds(request)[1])


@pytest.fixture
def database(cluster: RunningServer, request: pytest.FixtureRequest) -> Any:
    """The database server of the cluster."""
    return running(_kinds(request)[0])


def _kinds(request: pytest.FixtureRequest) -> tuple[type[Service], ...]:
    return SHAPES[request.node.callspec.params["cluster"]]
