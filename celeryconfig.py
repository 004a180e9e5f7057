"""Celery's settings: plain data, a reason beside each."""

from stackmem.config import load_settings
from stackmem.exceptions import SettingsError

try:
    broker_url = load_settings().broker_url
except SettingsError as exc:
    # `celery -A workers worker` shall say one line, not a stack trace.
    raise SystemExit(f"Error: {exc}") from None
_in_memory = broker_url.startswith("memory")
if _in_memory:
    broker_url = "memory://localhost//"  # kombu warns about an address without a host

# The rows in the database are the truth: nothing waits for a task's result.
result_backend = None
task_ignore_result = True

# With memory:// anything but 0 drops throughput from 2,800 tasks/s to 8; elsewhere one task at a time is fetched.
worker_prefetch_multiplier = 0 if _in_memory else 1
broker_transport_options = {"polling_interval": 0.01} if _in_memory else {}

# A broker that is down must not slow a live turn: the row is committed, the sweep repairs the lost hint.
task_publish_retry = True
task_publish_retry_policy = {"max_retries": 1, "interval_start": 0, "interval_step": 0.01, "interval_max": 0.02}
broker_connection_timeout = 1  # seconds
broker_connection_retry_on_startup = True

# Attempts are counted in the database: a task that kills its worker must not come back for ever.
task_acks_late = True
task_reject_on_worker_lost = False

# Threads: torch and tokenizers hang after a fork, and the work waits for HTTP and the database most of the time.
worker_pool = "threads"
worker_concurrency = 2
worker_hijack_root_logger = False
worker_send_task_events = False

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

beat_schedule = {
    # Finds what a lost hint, a dead worker or the clock left waiting. Expires: a late sweep is of no use.
    "sweep": {"task": "workers.sweep", "schedule": 30.0, "options": {"expires": 25.0}},
    # Compares database and index at night; asked hourly, because a robot's machine may sleep at any one hour.
    "check_index": {"task": "workers.check_index", "schedule": 3600.0, "options": {"expires": 1800.0}},
    # Judges the live turns of the last minute: nobody waits for it. Expires: the next one does the same.
    "score": {"task": "workers.score", "schedule": 60.0, "options": {"expires": 55.0}},
}
