"""The Celery app, and the queue that hands it hints."""

import logging
import threading
from collections.abc import Collection
from typing import Any

from celery import Celery
from celery.signals import celeryd_after_setup, setup_logging

from stackmem.bootstrap import Runtime, build
from stackmem.config import load_settings
from stackmem.exceptions import Busy, SettingsError
from stackmem.logs import set_up
from stackmem.metering import NoMeter
from stackmem.ports import Hint, Meter
from workers.hints import Departing

log = logging.getLogger(__name__)

PATIENCE = 2  # seconds for a broker to take a hint, and to confirm it: one that is short of memory never does

app = Celery("stackmem")
app.config_from_object("celeryconfig")
# Tasks run in threads that this one did not start: without a default app their retries vanish silently.
app.set_default()


@setup_logging.connect
def _set_up_logging(loglevel: int = logging.WARNING, logfile: str | None = None, **_: object) -> bool:
    """Let a process of Celery's own log as everything else does; Celery then leaves logging alone."""
    set_up(load_settings().log_format, loglevel, logfile)
    return True


_runtime: Runtime | None = None
_lock = threading.Lock()


def check_broker() -> None:
    """Raise SettingsError where the broker's address cannot be read or needs what is not installed; do not connect."""
    try:
        with app.connection_for_write() as connection:
            connection.transport  # noqa: B018  it loads the broker's library
    except (KeyError, ValueError, ImportError, NameError) as exc:
        # NameError: kombu's Kafka transport without its library.
        raise SettingsError(f"STACKMEM_BROKER_URL is wrong: {exc.args[0] if exc.args else exc}.") from exc


class CeleryQueue:
    """Hints as Celery tasks. A broker that is down loses the hint, never the turn."""

    def __init__(self, meter: Meter | None = None):
        self._meter = meter or NoMeter()
        in_memory = str(app.conf.broker_url).startswith("memory")
        # In this process there is nobody to wait for.
        self.departing = None if in_memory else Departing(_send, self._lost)

    def put(self, hint: Hint) -> None:
        """Send one task, or let it depart to another process's broker; log where that fails."""
        if self.departing:
            self.departing.put(hint)
            return
        try:
            _send(hint)
        except Exception as exc:  # the edge of the process
            self._lost(hint, exc)

    def _lost(self, hint: Hint, exc: Exception, more: int = 0) -> None:
        self._meter.error("queue", type(exc).__name__)
        others = f" and {more} more" if more else ""
        log.warning("a hint for %s %s%s was lost (the sweep will find it): %s", hint.task, hint.id, others, exc)


def _send(hint: Hint) -> None:
    app.send_task(f"workers.{hint.task}", args=[hint.id], timeout=PATIENCE, confirm_timeout=PATIENCE)


def use_runtime(runtime: Runtime) -> None:
    """Let the tasks of this process work with a runtime that is there already (``stackmem up``)."""
    global _runtime
    _runtime = runtime


def runtime() -> Runtime:
    """Return this process's runtime, built at the first task: a worker of its own never owns an embedded index."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = build(load_settings(), owns_index=False, queue=CeleryQueue())
        return _runtime


@celeryd_after_setup.connect
def begin_worker(instance: Any, **_: Any) -> None:
    """Stop a worker of its own with one line where it cannot work; else build its runtime."""
    try:
        _check_queues(instance.app.amqp.queues.consume_from)
        database = runtime().database
    except (SettingsError, Busy) as exc:
        raise SystemExit(f"Error: {exc}") from None
    if hasattr(database, "close_idle"):
        database.close_idle()  # a pool of processes would share the connection: they fork after this


def _check_queues(queues: Collection[str]) -> None:
    if "index" in queues and not load_settings().index_is_shared:
        raise SettingsError(
            "This worker is to consume the queue `index`, but an embedded index belongs to the web process, which does "
            "that itself. Start it with -Q live,batch, or set STACKMEM_INDEX_URL=http://… (a Qdrant server)."
        )
