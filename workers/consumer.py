"""What every worker reads its queues with, its own process's (``worker_consumer``) or a thread's."""

from types import SimpleNamespace
from typing import Any

from celery.worker.consumer import Consumer

LISTEN = 0.1  # seconds for which a worker listens to its broker before it looks whether it shall stop


class QuietConsumer(Consumer):
    """A consumer that only consumes.

    Mingle and Gossip let workers talk to each other, who have nothing to say; Mingle's hello costs a second of every
    start. DelayedDelivery makes 28 queues on RabbitMQ for tasks that are to run later; what waits, waits in the
    database.
    """

    class Blueprint(Consumer.Blueprint):
        """Celery's own steps, without that one."""

        default_steps = [step for step in Consumer.Blueprint.default_steps if not step.endswith(":DelayedDelivery")]

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options, without_mingle=True, without_gossip=True)


class AttentiveConsumer(QuietConsumer):
    """One in a thread that stops at once: Celery's own loop listens for two seconds before it looks."""

    def loop_args(self) -> Any:
        """Return what the loop works with; it only drains the connection, in short pieces."""
        own, connection, *others = super().loop_args()

        def drain_events(timeout: float) -> Any:
            return connection.drain_events(timeout=min(timeout, LISTEN))

        return own, SimpleNamespace(drain_events=drain_events), *others
