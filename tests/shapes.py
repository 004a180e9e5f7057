"""The shapes in which stackmem runs: one process without services, or several over a database and a broker."""

import atexit
import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from tests.services import Postgres, RabbitMQ, Redis, Service, required

SWITCH = "STACKMEM_TEST_SHAPE"  # the shape in which every server of a test runs that asks for none
ONE_PROCESS = "one-process"
SHAPES: dict[str, tuple[type[Service], ...]] = {
    ONE_PROCESS: (),
    "postgres-rabbitmq": (Postgres, RabbitMQ),
    "postgres-redis": (Postgres, Redis),
}

Kind = TypeVar("Kind", bound=Service)

_urls: dict[Path, dict[str, str]] = {}


@cache
def running(kind: type[Kind]) -> Kind:
    """Return the service of this test process, started at the first call; it ends with the process."""
    required(kind)
    folder = tempfile.TemporaryDirectory(prefix="stackmem-", ignore_cleanup_errors=True)
    Path(folder.name).chmod(0o755)
    service = kind(Path(folder.name) / kind.__name__.lower())
    service.__enter__()
    atexit.register(folder.cleanup)
    atexit.register(service.kill)
    return service


def shape_of_all() -> str:
    """Return the shape in which servers run that ask for none."""
    shape = os.environ.get(SWITCH, "") or ONE_PROCESS
    if shape not in SHAPES:
        raise pytest.UsageError(f"{SWITCH}={shape}: it is one of {', '.join(SHAPES)}.")
    return shape


def settings_of(home: Path, shape: str | None = None) -> dict[str, str]:
    """Return the addresses of a home folder's database and broker, made at the first call; none for one process.

    Without a shape: those it was given before, else those of every test.
    """
    if home not in _urls:
        wanted = shape_of_all() if shape is None else shape
        if wanted == ONE_PROCESS:
            return {}
        _urls[home] = {"database_url": database_of(home), "broker_url": _broker(SHAPES[wanted][1])}
    return _urls[home]


def database_of(home: Path) -> str:
    """Create a home folder's database; return its address."""
    return running(Postgres).create(f"home_{hashlib.sha256(str(home).encode()).hexdigest()[:16]}")


def copy_home(source: Path, target: Path) -> Path:
    """Copy a home folder that nobody uses, and its database with it; return the copy."""
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("server.json"))
    if urls := settings_of(source):
        name = f"home_{hashlib.sha256(str(target).encode()).hexdigest()[:16]}"
        running(Postgres).execute(f"DROP DATABASE IF EXISTS {name}")
        url = running(Postgres).create(name, urls["database_url"].rpartition("/")[2])
        _urls[target] = {"database_url": url, "broker_url": urls["broker_url"]}
    return target


def _broker(kind: type[Service]) -> str:
    if kind is Redis:
        return running(Redis).url(next(_numbers) % 16)
    node, name = running(RabbitMQ), f"home{next(_numbers)}"
    node.control("add_vhost", name)
    node.control("set_permissions", "--vhost", name, "guest", ".*", ".*", ".*")
    return node.url(name)


_numbers = iter(range(10**6))
