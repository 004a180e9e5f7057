"""The Celery app, and the queue that hands it hints."""

import logging
import threading

from celery import Celery
from celery.signals import setup_logging

from stackmem.bootstrap import Runtime, build
from stackmem.config import load_settings
from stackmem.exceptions import SettingsError
from stackmem.logs import set_up
from stackmem.metering import NoMeter
from stackmem.ports import Hint, Meter

log = logging.getLogger(__name__)

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

    def put(self, hint: Hint) -> None:
        """Send one task; log where that fails."""
        try:
            app.send_task(f"workers.{hint.task}", args=[hint.id])
        except Exception as exc:  # the edge of the process: kombu raises what each broker's library does
            self._meter.error("queue", type(exc).__name__)
            log.warning("a hint for %s %s was lost (the sweep will find it): %s", hint.task, hint.id, exc)


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
