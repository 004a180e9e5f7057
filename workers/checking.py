"""The check of the broker, which `stackmem doctor` finds through an entry point: stackmem itself knows no Celery."""

import uuid

from stackmem.bootstrap import Runtime
from stackmem.findings import Finding
from stackmem.places import place
from stackmem.witness import absent
from workers.app import app

WAIT = 5  # seconds for a message to come back
MEANWHILE = "Until then nothing is lost, but nothing is remembered either."


def broker(runtime: Runtime) -> Finding:
    """Send a message and take it back; look whether workers take tasks."""
    address = place(runtime.settings.broker_url)
    if address.startswith("memory"):
        return Finding("ok", "memory://: the queue is inside `stackmem up`.")
    try:
        _round_trip(runtime.settings.broker_url)
    except Exception as exc:  # the edge: kombu raises what each broker's library does
        said = " ".join(str(exc).split()) or type(exc).__name__
        return Finding(
            "failed", f"{address} does not work ({said}): start it, or check STACKMEM_BROKER_URL. {MEANWHILE}"
        )
    if missing := absent(runtime.clock.now()):
        return Finding(
            "note",
            f"{address}: a message came back, but no worker has been seen on {' and '.join(missing)}: start `celery -A "
            f"workers worker -Q {','.join(missing)}` and one `celery -A workers beat`. {MEANWHILE}",
        )
    return Finding("ok", f"{address}: a message came back, and workers take tasks.")


def _round_trip(url: str) -> None:
    name = f"doctor.{uuid.uuid4().hex}"
    with app.connection_for_write(url, transport_options={"max_retries": 0}) as connection:
        connection.ensure_connection(max_retries=1, interval_start=0.05, interval_step=0, timeout=2)
        with connection.SimpleBuffer(name) as queue:  # of this connection alone, gone with it
            queue.put(name, timeout=WAIT)
            queue.get(timeout=WAIT)
            queue.consumer.cancel()
            queue.queue.delete()  # Redis would keep its name
