"""PostgreSQL, Redis and RabbitMQ of a test's own: real servers on free ports, to be stopped, killed and started again.

They need the packages, not what the machine may already run: a test that stops a broker must not stop anybody else's.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import pytest

from tests.waiting import until

Popen = subprocess.Popen[bytes]


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str, *places: str) -> str | None:
    """Return the path of a program that is on the PATH, or in one of these folders (patterns of them)."""
    found = shutil.which(name)
    for place in places:
        found = found or next((str(path) for path in sorted(Path("/").glob(f"{place[1:]}/{name}"), reverse=True)), None)
    return found


class Service(ABC):
    """A server in a folder of its own."""

    package: str  # what to install
    driver: str  # what speaks to it from Python

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self.folder, self.port = folder, free_port()
        self.log = folder / "log.txt"
        self.process: Popen | None = None

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @classmethod
    @abstractmethod
    def is_installed(cls) -> bool:
        """Tell whether this machine has it."""

    def prepare(self) -> None:  # noqa: B027  most need nothing
        """Do what is needed once."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return what starts it in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """Tell whether it serves."""

    def environment(self) -> dict[str, str]:
        """Return its environment."""
        return dict(os.environ)

    def user(self) -> str | None:
        """Return as whom it runs; None: as we do."""
        return None

    def start(self) -> None:
        """Start it and wait until it serves."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, env=self.environment(), user=self.user(), cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
        until(self.answers, f"{self.package} serves; it said: {self.log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """End it as a service manager would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it, and what it started, as a power cut would."""
        self._end(signal.SIGKILL)

    def _end(self, by: signal.Signals) -> None:
        if self.process is None:
            return
        if by is signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, by)
        else:
            self.process.send_signal(by)
        self.process.wait(60)
        self.process = None

    def restart(self) -> None:
        """Stop and start it."""
        self.stop()
        self.start()


class Postgres(Service):
    """A PostgreSQL cluster. Sorts as Japanese is sorted, so that what relies on the order of bytes is found."""

    package = "postgresql"
    driver = "psycopg"
    _places = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin")

    @classmethod
    def is_installed(cls) -> bool:
        return program("initdb", *cls._places) is not None

    def user(self) -> str | None:
        return "postgres" if os.geteuid() == 0 else None  # it refuses to run as root

    def prepare(self) -> None:
        self.data = self.folder / "data"
        self.data.mkdir()
        if self.user():
            for path in (self.folder, self.data):
                shutil.chown(path, self.user())
            self._let_through()
        subprocess.run(
            [str(program("initdb", *self._places)), "-D", str(self.data), "-U", "stackmem", "-A", "trust", "-N",
             "-E", "UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=ja"],
            check=True, stdout=subprocess.DEVNULL, user=self.user(), cwd=self.folder,
        )  # fmt: skip

    def _let_through(self) -> None:
        """Let another user reach the folder: pytest makes its own for us alone."""
        for path in self.folder.parents:
            if path.stat().st_uid == os.geteuid() and path != Path("/"):
                path.chmod(path.stat().st_mode | 0o011)

    def command(self) -> list[str]:
        # What only a power cut loses is no matter here: the processes are killed, the machine is not.
        quick = ("fsync=off", "full_page_writes=off", "max_connections=200")
        where = (f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}")
        options = [part for option in (*quick, *where) for part in ("-c", option)]
        return [str(program("postgres", *self._places)), "-D", str(self.data), *options]

    def stop(self) -> None:
        self._end(signal.SIGINT)  # fast shutdown: SIGTERM would wait for every client to leave

    def answers(self) -> bool:
        import psycopg  # an extra

        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database: str = "postgres") -> str:
        """Return the address of one of its databases."""
        return f"postgresql://stackmem@127.0.0.1:{self.port}/{database}"

    def execute(self, sql: str, *values: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement; return its rows."""
        import psycopg  # an extra

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql, values or None)  # type: ignore[arg-type]  # tests write their own SQL
            return cursor.fetchall() if cursor.description else []

    def create(self, database: str, template: str = "template1") -> str:
        """Create a database; return its address."""
        self.execute(f"CREATE DATABASE {database} TEMPLATE {template}")
        return self.url(database)

    def cut(self, database: str) -> int:
        """Cut every connection to a database; return how many there were."""
        return len(self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", database))


class Redis(Service):
    """A Redis server."""

    package = "redis-server"
    driver = "redis"

    @classmethod
    def is_installed(cls) -> bool:
        return shutil.which("redis-server") is not None

    def command(self) -> list[str]:
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
                "--appendonly", "yes"]  # fmt: skip

    def ask(self, *words: str) -> bytes:
        """Send one command; return the answer as it is."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            connection.sendall(" ".join(words).encode() + b"\r\n")
            return connection.recv(4096)

    def answers(self) -> bool:
        try:
            return self.ask("PING").startswith(b"+PONG")
        except OSError:
            return False

    def flush(self) -> None:
        """Empty it."""
        assert self.ask("FLUSHALL").startswith(b"+OK")

    def url(self, number: int = 0) -> str:
        """Return its address."""
        return f"redis://127.0.0.1:{self.port}/{number}"


class RabbitMQ(Service):
    """A RabbitMQ node."""

    package = "rabbitmq-server"
    driver = "amqp"
    _places = ("/usr/lib/rabbitmq/bin", "/opt/homebrew/sbin")

    @classmethod
    def is_installed(cls) -> bool:
        return program("rabbitmq-server", *cls._places) is not None

    @classmethod
    def _program(cls, name: str) -> str:
        # Debian's own in /usr/sbin changes to another user.
        own = Path("/usr/lib/rabbitmq/bin", name)
        return str(own) if own.exists() else str(program(name, *cls._places))

    def prepare(self) -> None:
        self.distribution_port = free_port()

    def environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")}
        (self.folder / "plugins").write_text("[].\n")
        (self.folder / "rabbitmq.conf").write_text(
            "vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 1MB\n"
        )
        return ours | {
            "HOME": str(self.folder),  # of the cookie
            "RABBITMQ_NODENAME": f"stackmem{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "no-env.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +S 1",  # an idle node takes no processor
        }

    def command(self) -> list[str]:
        return [self._program("rabbitmq-server")]

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.settimeout(5)
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"  # connection.start
        except OSError:
            return False

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl; return what it printed."""
        done = subprocess.run(
            [self._program("rabbitmqctl"), *arguments], env=self.environment(), capture_output=True, text=True,
            check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    def url(self, vhost: str = "/") -> str:
        """Return its address."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{vhost}"


def required(kind: type[Service]) -> None:
    """Skip the test where a service, or its driver, is not installed."""
    pytest.importorskip(kind.driver, reason=f"The extra for {kind.__name__} is not installed.")
    if not kind.is_installed():
        pytest.skip(f"{kind.__name__} is not installed here: apt install {kind.package}")
