"""Robots that talk while something breaks, and what must be true afterwards."""

import contextlib
import http.client
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.checking import LONG_AGO, execute, rows
from tests.running import RunningServer
from tests.waiting import PATIENCE, until

ROUNDS = int(os.environ.get("STACKMEM_TEST_ROUNDS") or 1)  # of what happens at random moments; `make faults`: 50
STANDSTILL = 3  # seconds in which nothing changes: what is waited for is time
PAUSE = 0.1  # seconds between two turns of a robot, and between two tries of one


class Robots:
    """Talk until they are told to stop: what is not acknowledged is said again under the same key."""

    def __init__(self, server: RunningServer, name: str, count: int = 2):
        self._server, self._name = server, name
        self._stop, self._done, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self.answered: dict[str, int] = {}  # words: turn_id
        self.refused: list[Any] = []  # answers that were none
        self.faults: list[str] = []
        self._threads = [threading.Thread(target=self._talk, args=(number,)) for number in range(count)]

    def start(self) -> None:
        """Begin to talk."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Say the last words; everything said is acknowledged then."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for number in range(len(self._threads)):
            self._server.post(f"/v1/sessions/{quote(self._session(number))}/close")
        assert self.faults == []

    def said(self, more: int) -> None:
        """Wait until so many more turns were acknowledged."""
        wanted = len(self.answered) + more
        until(lambda: len(self.answered) >= wanted or self.faults, f"{more} turns are answered: {self.refused[-3:]}")

    def _session(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _talk(self, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            words = f"{self._name}の{number}番は{count}回目に{count * 100 + number}円のりんごを買ったよ"
            self._say(words, number, f"{self._session(number)}-{count}")
            self._stop.wait(PAUSE)

    def _say(self, words: str, number: int, key: str) -> None:
        body = {"text": words, "session_id": self._session(number), "client_turn_id": key}
        for _ in range(int(60 / PAUSE)):
            with contextlib.suppress(OSError, http.client.HTTPException):  # half an answer is none
                status, answer = self._server.post("/v1/turns", body)
                if status == 200:
                    with self._lock:
                        self.answered[words] = answer["turn_id"]
                    return
                self.refused.append((status, answer))
                if status not in (409, 503):
                    self.faults.append(f"{status}: {answer}")
                    return
            time.sleep(PAUSE)
        self.faults.append(f"never acknowledged: {words}")


@contextmanager
def talking(server: RunningServer, name: str) -> Iterator[Robots]:
    """Let robots talk during the block; afterwards check what became of what they said."""
    robots = Robots(server, name)
    robots.start()
    try:
        robots.said(3)
        yield robots
        robots.said(3)
    finally:
        robots.stop()
    check_said(server, robots)


def settle(server: RunningServer) -> dict[str, Any]:
    """Wait until nothing changes by itself any more, time passing quickly; return the status.

    A dead worker's lease, and a hint that nobody will bring, are waited for a minute and more by the clock.
    """
    end, before, since = time.monotonic() + 4 * PATIENCE, None, time.monotonic()
    while time.monotonic() < end:
        now = server.status()
        waiting = (now["turns"]["open"], now["turns"]["pending"], now["index"]["pending"])
        if not any(waiting):
            return now
        if waiting != before:
            before, since = waiting, time.monotonic()
        elif time.monotonic() - since > STANDSTILL:
            pass_time(server)
            since = time.monotonic()
        time.sleep(PAUSE)
    raise AssertionError(f"it never settles: {now}; {server.said()[-3000:]}")


def pass_time(server: RunningServer) -> None:
    """Let so much time pass that leases run out, hints count as lost and delays are over."""
    home = server.home
    execute(home, "UPDATE lease SET until = ?", LONG_AGO)
    execute(home, "UPDATE session SET enqueued_at = NULL, retry_at = NULL")
    execute(home, "UPDATE owner SET index_enqueued_at = NULL, compare_enqueued_at = NULL, retry_at = NULL")
    execute(home, "UPDATE turn SET received_at = ? WHERE state = 'open'", LONG_AGO)
    server.sweep()


def check_said(server: RunningServer, robots: Robots) -> None:
    """Check that all they said is stored once, under the id it was acknowledged with, and became memories once."""
    now = settle(server)
    stored = rows(server.home, "SELECT id, user, state FROM turn")
    by_words = Counter(words for _, words, _ in stored)
    twice = {words: count for words, count in by_words.items() if count > 1}
    assert twice == {}
    ids = {words: identity for identity, words, _ in stored}
    assert {words: ids.get(words) for words in robots.answered} == robots.answered
    assert {state for _, _, state in stored} <= {"kept", "skipped"}
    check_rows(server.home)
    (active,) = rows(server.home, "SELECT count(*) FROM memory WHERE status = 'active'")
    assert now["index"]["points"] == active[0]
    remembered = {row[0] for row in rows(server.home, "SELECT turn_id FROM memory_source")}
    assert {words for words, identity in robots.answered.items() if identity not in remembered} == set()


def check_rows(home: Path) -> None:
    """Check the rows alone, whatever runs on them."""
    from tests.checking import memories_told_twice, sources_of_others

    assert memories_told_twice(home) == []
    assert sources_of_others(home) == []
