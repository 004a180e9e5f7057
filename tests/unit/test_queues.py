"""Every task has a queue, and `stackmem up` consumes every queue."""

import inspect

import celeryconfig
from workers import app
from workers.embedded import AT_START, LIVE_THREADS, Embedded


def test_every_task_is_routed_to_a_queue_that_one_process_alone_consumes() -> None:
    app.loader.import_default_modules()
    ours = {name for name in app.tasks if name.startswith("workers.")}
    assert ours == set(celeryconfig.task_routes)
    queues = {route["queue"] for route in celeryconfig.task_routes.values()}
    assert queues == set(inspect.signature(Embedded).parameters["queues"].default)


def test_scoring_has_a_queue_and_a_thread_of_its_own() -> None:
    alone = [name for name, route in celeryconfig.task_routes.items() if route["queue"] == "batch"]
    assert alone == ["workers.score"]
    embedded = Embedded(("live", "batch"), beat=False)
    assert [worker.concurrency for worker in embedded._workers] == [LIVE_THREADS, 1]


def test_what_the_timer_sends_expires_before_it_is_sent_again() -> None:
    for entry in celeryconfig.beat_schedule.values():
        assert entry["task"] in celeryconfig.task_routes
        assert entry["options"]["expires"] < entry["schedule"]
    assert {entry["task"] for entry in celeryconfig.beat_schedule.values()} >= set(AT_START)
