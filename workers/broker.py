"""How the broker stands: whether it answers, and how many messages lie in its queues. Nobody waits for it."""

import threading
import time
from dataclasses import dataclass, field

from workers.app import app

QUEUES = ("live", "index", "batch")
FRESH = 5.0  # seconds for which a look is good
WAIT = 0.5  # seconds a look may keep somebody waiting; what it finds later is there for the next one


@dataclass(frozen=True)
class Standing:
    """Messages by queue (a queue nobody has used yet is left out); ``answers`` is None until the first look is over."""

    answers: bool | None = None
    messages: dict[str, int] = field(default_factory=dict)


def look() -> Standing:
    """Ask the broker now; a broker that does not answer is no error."""
    messages: dict[str, int] = {}
    try:
        with app.connection_for_write(transport_options={"max_retries": 0}) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0.05, interval_step=0, timeout=2)
            for queue in QUEUES:
                try:
                    # Passive: it is only asked about. One that is missing costs the channel.
                    with connection.channel() as channel:
                        messages[queue] = channel.queue_declare(queue, passive=True).message_count
                except connection.channel_errors:
                    continue
    except Exception:  # the edge of the process: kombu raises what each broker's library does
        return Standing(answers=False)
    return Standing(True, messages)


class BrokerWatch:
    """The newest look at the broker, taken in a thread of its own when somebody wants one and it is too old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._standing, self._at = Standing(), float("-inf")
        self._looking: threading.Thread | None = None

    def standing(self) -> Standing:
        """Return the newest look; waits half a second at most for a new one."""
        with self._lock:
            if time.monotonic() - self._at > FRESH and (self._looking is None or not self._looking.is_alive()):
                self._looking = threading.Thread(target=self._look, name="broker", daemon=True)
                self._looking.start()
            looking = self._looking
        if looking is not None:
            looking.join(WAIT)
        return self._standing

    def _look(self) -> None:
        self._standing = look()
        self._at = time.monotonic()
