"""Worker and beat in threads of one process, for ``stackmem up``."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery, bootsteps
from celery.beat import EmbeddedService
from celery.worker import WorkController

from workers.app import app
from workers.consumer import AttentiveConsumer
from workers.tasks import stopping

log = logging.getLogger(__name__)

LIVE_THREADS = 2
AT_START = ("workers.score",)  # beat's own first one comes a minute later; what `Work.start` finds needs none


class ThreadWorker(WorkController):
    """A worker in a thread: it installs no signal handlers, and says by a callback when it consumes."""

    def __init__(self, *args: Any, on_ready: Callable[[], None], **kwargs: Any):
        self._on_ready = on_ready
        super().__init__(*args, **kwargs)

    def on_consumer_ready(self, consumer: Any) -> None:
        """Tell that tasks are taken from now on (a worker in a thread sends no ``worker_ready``)."""
        self._on_ready()


class Embedded:
    """One consumer a queue, and beat; each in a thread. Only ``live`` has more than one thread."""

    def __init__(self, queues: Sequence[str] = ("live", "index", "batch"), *, beat: bool = True) -> None:
        self.ready = threading.Event()
        self._waiting = len(queues)
        self._lock = threading.Lock()
        self._workers = [self._worker(queue, LIVE_THREADS if queue == "live" else 1) for queue in queues]
        self._beat = EmbeddedService(app, thread=True, scheduler_cls="celery.beat:Scheduler") if beat else None
        self._threads = [
            threading.Thread(target=worker.start, name=f"worker-{number}", daemon=True)
            for number, worker in enumerate(self._workers)
        ]

    def _worker(self, queue: str, concurrency: int) -> ThreadWorker:
        # A worker narrows its app's queues to those it consumes, so two workers in one process need an app each.
        own = Celery("stackmem", set_as_current=False)
        own.config_from_object("celeryconfig")
        return ThreadWorker(
            app=own,
            hostname=f"{queue}@stackmem",
            queues=[queue],
            pool_cls="threads",
            concurrency=concurrency,
            on_ready=self._one_ready,
            consumer_cls=AttentiveConsumer,
            use_eventloop=False,  # there is one a process, and here are several workers
            without_heartbeat=True,
            loglevel="WARNING",
        )

    def _one_ready(self) -> None:
        with self._lock:
            self._waiting -= 1
            if self._waiting == 0:
                self.ready.set()

    def start(self) -> None:
        """Start all threads."""
        stopping.clear()
        for thread in self._threads:
            thread.start()
        if self._beat:
            self._beat.start()
            for name in AT_START:
                try:
                    app.send_task(name)
                except Exception as exc:  # the process's edge: a broker that is down must not stop the start
                    log.warning("%s is done when beat says so: the broker does not answer (%s)", name, exc)

    def stop(self, patience_s: float = 5) -> bool:
        """Stop; return whether all work ended in time.

        What is being done is finished unless it waits for a model; that, like what was waiting, is found again by
        its state at the next start.
        """
        stopping = threading.Thread(target=self._stop, name="stopping", daemon=True)
        stopping.start()
        stopping.join(patience_s)
        return not stopping.is_alive()

    def _stop(self) -> None:
        stopping.set()
        if self._beat:
            # Not waited for: it may sleep for a second more, and has only hints to give.
            self._beat.service.stop()
        for worker in self._workers:
            if worker.blueprint.state == bootsteps.RUN:
                worker.stop()
        for thread in self._threads:
            thread.join()
