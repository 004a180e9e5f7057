"""Background work gives way to live turns, and goes on all the same."""

import threading

import pytest

from stackmem import traffic
from stackmem.traffic import Traffic, live
from tests.scripted import Answer, content, say
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World


def test_nobody_waits_where_nobody_talks() -> None:
    assert Traffic().give_way()


def test_work_goes_on_when_the_last_turn_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "PATIENCE_S", 60)
    here, done = Traffic(), threading.Event()
    with here.turn():
        with here.turn():
            thread = threading.Thread(target=lambda: here.give_way() and done.set())
            thread.start()
        assert not done.is_set()
    thread.join(30)
    assert done.is_set()


def test_work_that_has_waited_long_enough_goes_on_beside_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "PATIENCE_S", 0.001)
    here = Traffic()
    with here.turn():
        assert not here.give_way()


def test_a_turn_is_in_flight_while_its_model_thinks_and_not_after(world: World, model: ScriptedModel) -> None:
    seen = []

    def answer(_: object) -> Answer:
        seen.append(live._turns)
        return say("はい")

    model.script = answer
    world.say("やあ")
    assert seen == [1]
    assert live.give_way()


def test_a_look_is_made_though_robots_never_pause(
    world: World, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "PATIENCE_S", 0.001)
    world.turns(6)
    model.script = [content('{"segments": [{"turn_ids": [1, 2, 3, 4, 5, 6], "keep": false}]}')] * 2
    with live.turn():
        world.work.remember(1)
    assert model.asked
