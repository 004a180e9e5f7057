"""Hints leave in a thread of their own: what a broker does or does not do is no matter to who puts them."""

import threading

import pytest

from stackmem.ports import Hint
from workers.hints import WAITING, Departing

LOOK = Hint("remember", 1)


class Broker:
    """Takes hints, or waits, or fails, as it is told."""

    def __init__(self) -> None:
        self.taken: list[Hint] = []
        self.faults: list[tuple[Hint, str, int]] = []
        self.open = threading.Event()
        self.open.set()
        self.fault: Exception | None = None
        self.asked = threading.Semaphore(0)

    def lost(self, hint: Hint, exc: Exception, more: int) -> None:
        self.faults.append((hint, str(exc), more))

    def send(self, hint: Hint) -> None:
        self.asked.release()
        self.open.wait()
        if self.fault:
            raise self.fault
        self.taken.append(hint)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_hints_leave_in_their_order(broker: Broker) -> None:
    hints = [Hint("remember", number) for number in range(20)]
    departing = Departing(broker.send, broker.lost)
    for hint in hints:
        departing.put(hint)
    assert departing.flush(10)
    assert broker.taken == hints


def test_nothing_is_begun_before_the_first_hint(broker: Broker) -> None:
    departing = Departing(broker.send, broker.lost)
    assert departing.flush(0)
    assert "hints" not in {thread.name for thread in threading.enumerate() if thread is departing._thread}


def test_a_broker_that_says_nothing_keeps_nobody_and_gets_the_same_hint_once(broker: Broker) -> None:
    broker.open.clear()
    departing = Departing(broker.send, broker.lost)
    departing.put(LOOK)
    broker.asked.acquire()  # it is under way: the same one again is another one
    for _ in range(3):
        departing.put(LOOK)
        departing.put(Hint("index", "home"))
    assert not departing.flush(0.01)
    broker.open.set()
    assert departing.flush(10)
    assert broker.taken == [LOOK, LOOK, Hint("index", "home")]


def test_more_than_can_wait_is_left_to_the_sweep(broker: Broker) -> None:
    broker.open.clear()
    departing = Departing(broker.send, broker.lost)
    departing.put(LOOK)
    broker.asked.acquire()
    for number in range(WAITING + 50):
        departing.put(Hint("compare", number))
    broker.open.set()
    assert departing.flush(10)
    assert len(broker.taken) == WAITING + 1


def test_a_broker_that_is_down_loses_what_waits_and_says_so_once(broker: Broker) -> None:
    broker.open.clear()
    broker.fault = OSError("connection refused")
    departing = Departing(broker.send, broker.lost)
    departing.put(LOOK)
    broker.asked.acquire()
    for number in range(5):
        departing.put(Hint("index", f"owner {number}"))
    broker.open.set()
    assert departing.flush(10)
    assert broker.faults == [(LOOK, "connection refused", 5)]
    broker.fault = None
    departing.put(LOOK)
    assert departing.flush(10)
    assert broker.taken == [LOOK]
