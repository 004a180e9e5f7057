"""What can break around several processes, while robots talk. Each test asserts what is true in the end."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.checking import rows
from tests.faults.talking import ROUNDS, check_rows, settle, talking
from tests.running import RunningServer, environment
from tests.services import Redis
from tests.shapes import settings_of
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.faults

dice = random.Random(20261130)
each_round = pytest.mark.parametrize("number", range(ROUNDS))


def some_time() -> None:
    time.sleep(dice.uniform(0, 0.3))  # not to wait for something: to come at another moment


@each_round
def test_processes_killed_at_random_moments(cluster: RunningServer, number: int) -> None:
    with talking(cluster, f"殺{number}") as robots:
        for part in dice.sample(cluster.parts, len(cluster.parts)):
            some_time()
            cluster.kill(part)
            if part != "web":
                robots.said(1)  # the robots notice nothing
            cluster.start_part(part)
            cluster.wait_until_up()


@each_round
def test_a_broker_stopped_and_started(cluster: RunningServer, broker: Any, number: int) -> None:
    with talking(cluster, f"止{number}") as robots:
        some_time()
        broker.stop()
        refused = len(robots.refused)
        robots.said(10)  # with looks due, whose hints are lost
        assert len(robots.refused) == refused
        broker.start()


def test_a_broker_that_refuses_what_is_published(cluster: RunningServer, broker: Any) -> None:
    with talking(cluster, "拒") as robots:
        refused = len(robots.refused)
        again = _refuse(broker, cluster)
        robots.said(14)
        assert len(robots.refused) == refused
        again()


def _refuse(broker: Any, server: RunningServer) -> Callable[[], None]:
    """Let the broker refuse every message; return what ends that."""
    if isinstance(broker, Redis):
        broker.ask("CONFIG", "SET", "maxmemory", "1")
        return lambda: broker.ask("CONFIG", "SET", "maxmemory", "0")
    where = ("--vhost", urlsplit(settings_of(server.home)["broker_url"]).path[1:])
    limit = '{"max-length": 0, "overflow": "reject-publish"}'
    broker.control("set_policy", *where, "full", ".*", limit, "--apply-to", "queues")
    return lambda: broker.control("clear_policy", *where, "full")


def test_a_broker_short_of_memory_that_confirms_nothing(cluster: RunningServer, broker: Any) -> None:
    with talking(cluster, "黙") as robots:
        broker.control("set_vm_memory_high_watermark", "absolute", "1")
        refused = len(robots.refused)
        robots.said(14)
        assert len(robots.refused) == refused
        broker.control("set_vm_memory_high_watermark", "absolute", "1GB")


@each_round
def test_a_broker_that_forgets_everything(cluster: RunningServer, broker: Any, number: int) -> None:
    with talking(cluster, f"忘{number}") as robots:
        for _ in range(5):
            some_time()
            broker.flush()
            robots.said(2)


@each_round
def test_connections_to_the_database_that_are_cut(cluster: RunningServer, database: Any, number: int) -> None:
    name = urlsplit(settings_of(cluster.home)["database_url"]).path[1:]
    with talking(cluster, f"切{number}") as robots:
        for _ in range(5):
            some_time()
            database.cut(name)
            robots.said(2)


@each_round
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_database_server_that_is_started_again(cluster: RunningServer, database: Any, how: str, number: int) -> None:
    with talking(cluster, f"再{how}{number}"):
        some_time()
        getattr(database, how)()
        some_time()
        database.start()


def test_hints_that_are_delivered_many_times(cluster: RunningServer) -> None:
    with talking(cluster, "重") as robots:
        robots.said(6)
        ids = [row[0] for row in rows(cluster.home, "SELECT id FROM session ORDER BY id DESC LIMIT 2")]
        send = (
            "from workers import app\n"
            f"for session in {ids} * 10:\n"
            "    app.send_task('workers.remember', args=[session])\n"
            "for task in ['workers.index', 'workers.compare'] * 10:\n"
            "    app.send_task(task, args=['home'])\n"
        )
        sent = subprocess.run([sys.executable, "-c", send], env=environment(cluster.home), check=False)
        assert sent.returncode == 0


def test_a_second_beat_does_nothing_twice(cluster: RunningServer) -> None:
    code = (
        "import celeryconfig\n"
        "for entry in celeryconfig.beat_schedule.values():\n"
        "    entry['schedule'] = 0.3\n"
        "from celery.__main__ import main\n"
        "import sys; sys.argv = ['celery', '-A', 'workers', 'beat', '-l', 'INFO']; main()\n"
    )
    with talking(cluster, "二") as robots, cluster.log_of("beat").open("ab") as log:
        second = subprocess.Popen(
            [sys.executable, "-c", code], env=environment(cluster.home), cwd=cluster.home.parent, stdout=log, stderr=log
        )
        try:
            until(lambda: cluster.log_of("beat").read_text().count("Sending due task sweep") >= 5, "it ticks often")
            robots.said(6)
        finally:
            second.terminate()
            second.wait(PATIENCE)
    assert rows(cluster.home, "SELECT turn_id FROM label GROUP BY turn_id HAVING count(*) > 1") == []


def test_an_answered_turn_outlives_the_signal_that_ends_its_process(cluster: RunningServer) -> None:
    answers: list[Any] = []

    def talk(number: int) -> None:
        with suppress(OSError):  # not taken any more: nothing was acknowledged
            said = {"text": f"{number}番の電車で京都へ行く", "session_id": f"end-{number}"}
            answers.append(cluster.post("/v1/turns", said))

    robots = [threading.Thread(target=talk, args=(number,)) for number in range(6)]
    for robot in robots:
        robot.start()
    until(lambda: answers, "one is answered")
    cluster.processes["web"].terminate()
    assert cluster.processes["web"].wait(10) == 0
    for robot in robots:
        robot.join()
    cluster.start_part("web")
    cluster.wait_until_up()
    stored = {row[0] for row in rows(cluster.home, "SELECT id FROM turn")}
    assert {answer["turn_id"] for status, answer in answers if status == 200} <= stored
    for number in range(6):
        cluster.post(f"/v1/sessions/end-{number}/close")
    settle(cluster)
    check_rows(cluster.home)
