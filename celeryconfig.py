"""Celery's settings: plain data, a reason beside each."""

from stackmem.config import load_settings
from stackmem.exceptions import SettingsError

try:
    broker_url = load_settings().broker_url
except SettingsError as exc:
    # `celery -A workers worker` shall say one line, not a stack trace.
    raise SystemExit(f"Error: {exc}") from None
_in_memory = broker_url.startswith("memory")
_over_amqp = broker_url.startswith(("amqp", "pyamqp"))
_over_redis = broker_url.startswith(("redis", "rediss"))
if _in_memory:
    broker_url = "memory://localhost//"  # kombu warns about an address without a host

# The rows in the database are the truth: nothing waits for a task's result.
result_backend = None
task_ignore_result = True

# With memory:// anything but 0 drops throughput from 2,800 tasks/s to 8; elsewhere one task at a time is fetched.
worker_prefetch_multiplier = 0 if _in_memory else 1

broker_transport_options: dict[str, object] = {}
if _in_memory:
    broker_transport_options["polling_interval"] = 0.01  # seconds; the default second is a second of every memory
elif _over_amqp:
    broker_transport_options["confirm_publish"] = True  # a hint the broker refused is told, not lost in silence
elif _over_redis:
    broker_transport_options |= {
        # What a dead worker had taken is given to another one after this; the sweep finds it sooner. Longer than any
        # one piece of work takes, because Redis gives it away under a living worker too (a lease then turns it away).
        "visibility_timeout": 3600,  # seconds
        "socket_connect_timeout": 1,  # seconds; a machine that is switched off refuses nothing, it only never answers
        "socket_timeout": 10,  # seconds; more than the one for which a worker's read waits
        "socket_keepalive": True,  # a router forgets quiet connections
        "health_check_interval": 30,  # seconds
    }

# RabbitMQ keeps quorum queues on the disks of several nodes; classic ones are lost with theirs.
task_default_queue_type = "quorum" if _over_amqp else "classic"
task_create_missing_queue_type = task_default_queue_type

# A broker that is down must not slow a live turn: the row is committed, the sweep repairs the lost hint. Hints leave
# in a thread of their own (workers/hints.py), and are given up soon, so that the next ones are not late as well.
task_publish_retry = True
task_publish_retry_policy = {"max_retries": 1, "interval_start": 0, "interval_step": 0.01, "interval_max": 0.02}
broker_connection_timeout = 1  # seconds
broker_connection_retry_on_startup = True
broker_connection_max_retries = None  # a worker waits for its broker, however long that is away
# Redis without memory refuses even that a task is done: a worker connects again instead of ending for good.
broker_channel_error_retry = True
broker_heartbeat = 30  # seconds; a cut cable is noticed after a minute instead of four

# Attempts are counted in the database: a task that kills its worker must not come back for ever.
task_acks_late = True
task_reject_on_worker_lost = False
# When the broker is lost the work goes on: its result is a row, and a lease keeps who gets the task again from it.
worker_cancel_long_running_tasks_on_connection_loss = False

# Threads: torch and tokenizers hang after a fork, and the work waits for HTTP and the database most of the time.
worker_pool = "threads"
worker_consumer = "workers.consumer:QuietConsumer"
worker_concurrency = 2
worker_hijack_root_logger = False
worker_send_task_events = False
# Nobody asks a worker anything: its two queues for that would be left on the broker by every kill -9.
worker_enable_remote_control = False

timezone = "UTC"
enable_utc = True

imports = ["workers.tasks"]
task_default_queue = "live"
# live: remember and compare, any number of workers. index: one consumer, the owner of the index. batch: scoring, one
# consumer (`celery -A workers worker -Q batch -c 1`): a judge that takes minutes delays no memory, and is not asked
# twice at once.
task_routes = {
    "workers.remember": {"queue": "live"},
    "workers.compare": {"queue": "live"},
    "workers.sweep": {"queue": "live"},
    "workers.index": {"queue": "index"},
    "workers.reindex": {"queue": "index"},
    "workers.check_index": {"queue": "index"},
    "workers.score": {"queue": "batch"},
}

# In memory: what is due stands in the database, and a file that a kill -9 left half written would stop the next start.
beat_scheduler = "celery.beat:Scheduler"
beat_schedule = {
    # Finds what a lost hint, a dead worker or the clock left waiting. Expires: a late sweep is of no use.
    "sweep": {"task": "workers.sweep", "schedule": 30.0, "options": {"expires": 25.0}},
    # Compares database and index at night; asked hourly, because a robot's machine may sleep at any one hour.
    "check_index": {"task": "workers.check_index", "schedule": 3600.0, "options": {"expires": 1800.0}},
    # Judges the live turns of the last minute: nobody waits for it. Expires: the next one does the same.
    "score": {"task": "workers.score", "schedule": 60.0, "options": {"expires": 55.0}},
}
