"""``/metrics`` for Prometheus: what this process did, and how everything stands in the database that all share.

Several web processes: each answers with its own ``stackmem_*_seconds``, tokens and errors (scrape every one of them,
and sum); the gauges are the same from each. Workers of their own serve no HTTP: what they do shows in the gauges.
Labels are words of ours: no owner, device, session, or anything that was said.
"""

from collections.abc import Iterable, Iterator

from flask import Blueprint, Flask, Response, current_app
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from stackmem import __version__
from stackmem.backlog import Backlog, backlog
from stackmem.bootstrap import Runtime
from web.access import runtime
from workers.broker import BrokerWatch, Standing

blueprint = Blueprint("metrics", __name__)


def register(app: Flask) -> None:
    """Count what goes wrong over HTTP, by its status."""
    app.extensions["stackmem.broker"] = BrokerWatch()

    @app.after_request
    def _count(response: Response) -> Response:
        if response.status_code >= 400:
            runtime().meter.error("http", str(response.status_code))
        return response


def broker() -> Standing:
    """Return how the broker stands."""
    watch: BrokerWatch = current_app.extensions["stackmem.broker"]
    return watch.standing()


@blueprint.get("/metrics")
def metrics() -> Response:
    """Return everything in Prometheus's text format."""
    now = runtime()
    shared = CollectorRegistry()
    shared.register(Shared(now, backlog(now.clock.now()), broker()))
    own = getattr(now.meter, "registry", None)
    body = b"".join(generate_latest(registry) for registry in (own, shared) if registry is not None)
    return Response(body, content_type=CONTENT_TYPE_LATEST)


class Shared(Collector):
    """The gauges of one answer."""

    def __init__(self, runtime: Runtime, found: Backlog, standing: Standing):
        self._runtime, self._found, self._standing = runtime, found, standing

    def collect(self) -> Iterable[Metric]:
        """Yield them."""
        found, standing = self._found, self._standing
        yield InfoMetricFamily("stackmem", "This process.", {"version": __version__})
        yield from _by("turns", "Turns of all owners.", "state", found.turns)
        yield from _by("memories", "Memories of all owners.", "status", found.memories)
        yield from _by(
            "waiting",
            "Work that waits in the database: sessions to look at, memories to index, windows to compare, jobs.",
            "work",
            found.waiting,
        )
        yield from _one("oldest_pending_seconds", "Age of the oldest turn without its look.", found.oldest_pending_s)
        yield from _one("index_lag_seconds", "Age of the oldest memory no search finds yet.", found.index_lag_s)
        yield from _one(
            "delayed_sessions", "Sessions that wait because the memory model did not answer.", found.delayed_sessions
        )
        yield from _one("index_open", "1: searches are answered.", float(self._runtime.index.current is not None))
        if standing.answers is not None:
            yield from _one("broker_up", "1: the broker answers.", float(standing.answers))
            yield from _by("queue_messages", "Messages in the broker's queues.", "queue", standing.messages)


def _one(name: str, text: str, value: float) -> Iterator[Metric]:
    yield GaugeMetricFamily(f"stackmem_{name}", text, value=value)


def _by(name: str, text: str, label: str, values: dict[str, int]) -> Iterator[Metric]:
    family = GaugeMetricFamily(f"stackmem_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    yield family
