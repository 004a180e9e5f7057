"""A web process that ``waitress-serve`` or ``gunicorn`` starts: its runtime, its threads, where it is, its end."""

import atexit
import json
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import psutil

from stackmem.adapters.prometheus_meter import PrometheusMeter
from stackmem.bootstrap import Runtime, build
from stackmem.cli.common import SERVER_FILE
from stackmem.config import load_settings
from stackmem.exceptions import Busy, SettingsError
from stackmem.logs import set_up
from web.banner import Bound, local_url
from web.listening import stop_on_signals

LOOK = 0.1  # seconds between looks whether this process listens already
DRAIN = 3.0  # seconds for which the work of its threads may still end
END = 9.0  # seconds after SIGTERM at which it is gone, whatever still waits for a model


def own_runtime(key: str) -> Runtime:
    """Build the runtime of such a process and start the threads that belong to it."""
    from workers.app import CeleryQueue, check_broker, use_runtime
    from workers.embedded import Embedded

    _end_on_a_signal()
    try:
        settings = load_settings()
        set_up(settings.log_format)
        check_broker()
        meter = PrometheusMeter()
        runtime = build(settings, owns_index=True, queue=CeleryQueue(meter), meter=meter)
    except (SettingsError, Busy) as exc:
        # `waitress-serve` and `gunicorn` shall say one line, not a stack trace.
        raise SystemExit(f"Error: {exc}") from None
    use_runtime(runtime)
    alone = settings.broker_url.startswith("memory")
    # An embedded index is this process's own, so its queue is consumed here; memory:// reaches no other process at all.
    embedded = Embedded(queues=("live", "index", "batch") if alone else ("index",), beat=alone)
    embedded.start()
    runtime.warm_up()
    with runtime.database.connection_context():
        runtime.start()
    announcing = Announcing(settings.home, key)
    announcing.start()

    def stop() -> None:
        announcing.stop()
        embedded.stop(DRAIN)
        runtime.close()

    atexit.register(stop)
    return runtime


def _end_on_a_signal() -> None:
    """Let SIGTERM end ``waitress-serve`` as Ctrl-C does, after the turns in flight; gunicorn has its own handler."""
    alone = threading.current_thread() is threading.main_thread()
    if alone and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        stop_on_signals(_end_in_time)


def _end_in_time() -> None:
    """Go in some seconds: every result is one transaction, so nothing is lost by that."""
    last = threading.Timer(END, os._exit, (0,))
    last.daemon = True
    last.start()


def announce(home: Path, bound: Bound, key: str) -> None:
    """Write where the command line finds this server, readable by this user alone."""
    path = home / SERVER_FILE
    written = path.with_name(f"{SERVER_FILE}.{os.getpid()}")
    written.unlink(missing_ok=True)
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump({"url": local_url(bound), "key": key, "pid": os.getpid()}, out)
    written.replace(path)


def withdraw(home: Path) -> None:
    """Take the announcement back, unless it is another process's by now."""
    path = home / SERVER_FILE
    with suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads(path.read_text())["pid"] == os.getpid():
            path.unlink()


class Announcing(threading.Thread):
    """Announces this server as soon as it listens: only who started it knows where it will."""

    def __init__(self, home: Path, key: str):
        super().__init__(name="announcing", daemon=True)
        self._home, self._key = home, key
        self._ended = threading.Event()

    def run(self) -> None:
        """Wait until this process listens, then say where."""
        while not self._ended.wait(LOOK):
            if bound := listens_on():
                announce(self._home, bound, self._key)
                return

    def stop(self) -> None:
        """Take the announcement back."""
        self._ended.set()
        self.join()
        withdraw(self._home)


def listens_on() -> Bound | None:
    """Return an address on which this process takes connections; None while there is none."""
    for connection in psutil.Process().net_connections(kind="inet"):
        if connection.status == psutil.CONN_LISTEN:
            return str(connection.laddr.ip), int(connection.laddr.port)
    return None
