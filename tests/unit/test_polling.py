"""Turns that a robot polls for: one job a turn, whatever becomes of the thread that answers it."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from stackmem import polling as module
from stackmem.converse import Said
from stackmem.exceptions import InvalidInput, NotFound, TransientError
from stackmem.models import Turn, TurnJob
from stackmem.polling import KEPT, Polling
from tests.running import until
from tests.scripted import Answer, say
from tests.unit.conftest import ScriptedModel
from tests.unit.world import TURN_TIMEOUT_S, World, again


@pytest.fixture
def polling(world: World) -> Iterator[Polling]:
    polling = Polling(world.conversation, world.clock)
    yield polling
    idle(polling)  # its threads have given their connections back


def done(polling: Polling, job: TurnJob) -> Turn:
    """Poll until the turn is there."""
    return until(lambda: polling.look(job.owner, str(job.id))[1], "the job is done")  # type: ignore[no-any-return]


def idle(polling: Polling) -> None:
    """Wait until no thread has anything in hand."""
    until(lambda: not polling._running.jobs, "nothing is being answered")


class Gate:
    """A model that answers when it may."""

    def __init__(self, model: ScriptedModel, reply: str = "おまたせ"):
        self.open = threading.Event()
        self._reply = reply
        model.script = self._answer

    def _answer(self, _: Any) -> Answer:
        assert self.open.wait(30)
        return say(self._reply)


def test_the_words_are_stored_before_the_number_is_given(world: World, polling: Polling, model: ScriptedModel) -> None:
    gate = Gate(model)
    job = polling.begin(Said("home", "ただいま", "s"))
    turn = Turn.get_by_id(job.turn)
    assert (turn.user, turn.state) == ("ただいま", "open")
    found, answer = polling.look("home", str(job.id))
    assert (found.id, answer) == (job.id, None)
    assert found.state in ("waiting", "running")
    gate.open.set()
    assert done(polling, job).reply == "おまたせ"
    assert again(job).state == "done"


def test_a_lost_poll_can_be_repeated(polling: Polling, model: ScriptedModel) -> None:
    model.script = [say("うん")]
    job = polling.begin(Said("home", "聞いて", "s"))
    done(polling, job)
    assert [polling.look("home", str(job.id))[1].reply for _ in range(3)] == ["うん"] * 3  # type: ignore[union-attr]
    assert len(model.asked) == 1


def test_the_same_key_gets_the_same_job_and_doubles_nothing(polling: Polling, model: ScriptedModel) -> None:
    gate = Gate(model)
    said = Said("home", "一回だけ", "s", key="k")
    jobs = {polling.begin(said).id for _ in range(5)}
    gate.open.set()
    assert len(jobs) == 1
    done(polling, TurnJob.get())
    assert polling.begin(said).id in jobs
    idle(polling)
    assert (Turn.select().count(), len(model.asked)) == (1, 1)


def test_a_turn_that_was_waited_for_can_be_polled_under_its_key(
    world: World, polling: Polling, model: ScriptedModel
) -> None:
    model.script = [say("もう答えたよ")]
    turn = world.say("やあ", key="k")
    job = polling.begin(Said("home", "やあ", "s", key="k"))
    assert done(polling, job).id == turn.id
    assert len(model.asked) == 1


def test_another_owner_finds_nothing(polling: Polling, model: ScriptedModel) -> None:
    model.script = [say("ないしょ")]
    job = polling.begin(Said("home", "ひみつ", "s"))
    done(polling, job)
    with pytest.raises(NotFound, match="no job"):
        polling.look("mari", str(job.id))


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.0", "", "１", "9" * 30])
def test_an_unknown_job_is_not_found(polling: Polling, number: str) -> None:
    with pytest.raises(NotFound, match="no job"):
        polling.look("home", number)


def test_empty_words_make_no_job(polling: Polling) -> None:
    with pytest.raises(InvalidInput):
        polling.begin(Said("home", " ", "s"))
    assert TurnJob.select().count() == 0


def left(world: World, text: str = "途中だった") -> TurnJob:
    """A job whose process died in the middle."""
    turn, _ = world.conversation.begin(Said("home", text, "s"))
    return TurnJob.create(  # type: ignore[no-any-return]
        owner="home", turn=turn.id, key=f"turn {turn.id}", state="running", created_at=world.clock.now()
    )


def test_after_a_restart_the_same_turn_is_answered(world: World, polling: Polling, model: ScriptedModel) -> None:
    model.script = [say("続きだよ")]
    job = left(world)
    world.clock.advance(seconds=TURN_TIMEOUT_S + 1)
    polling.resume()
    idle(polling)
    assert (again(job).state, Turn.get_by_id(job.turn).reply) == ("done", "続きだよ")
    assert Turn.select().count() == 1


def test_after_a_restart_a_process_that_is_alone_waits_for_nobody(
    polling: Polling, world: World, model: ScriptedModel
) -> None:
    model.script = [say("すぐに続き")]
    job = left(world)  # its time is not over by the clock
    polling.resume(alone=True)
    idle(polling)
    assert (again(job).state, Turn.get_by_id(job.turn).reply) == ("done", "すぐに続き")


def test_a_poll_goes_on_with_what_nobody_works_at(world: World, polling: Polling, model: ScriptedModel) -> None:
    model.script = [say("続きだよ")]
    job = left(world)
    world.clock.advance(seconds=TURN_TIMEOUT_S + 1)
    assert done(polling, job).reply == "続きだよ"


def test_a_turn_that_may_still_be_answered_elsewhere_is_left_to_it(
    world: World, polling: Polling, model: ScriptedModel
) -> None:
    short = Polling(replace(world.conversation, turn_timeout_s=0.05), world.clock)
    job = left(world)  # its time, by the clock that stands still, is never over
    assert short.look("home", str(job.id))[1] is None
    idle(short)
    assert (model.asked, Turn.get_by_id(job.turn).state) == ([], "open")
    assert again(job).state == "running"


def test_the_fallback_line_of_the_sweep_is_the_answer(world: World, polling: Polling) -> None:
    job = left(world)
    world.clock.advance(seconds=2 * TURN_TIMEOUT_S + 1)
    world.work.sweep()
    found, turn = polling.look("home", str(job.id))
    assert found.state == "done"
    assert turn is not None
    assert turn.degraded
    assert turn.reply in world.persona.fallback
    assert again(job).finished_at == world.clock.now()


def test_a_failure_inside_leaves_the_job_to_the_next_poll(
    world: World, polling: Polling, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.script = lambda _: say("やっと")
    for error in (TransientError("the disk is away"), RuntimeError("a mistake")):
        with monkeypatch.context() as broken:
            failing = threading.Event()

            def fail(*_: Any, error: Exception = error, failing: threading.Event = failing) -> Any:
                failing.set()
                raise error

            broken.setattr(type(world.conversation), "finish", fail)
            job = polling.begin(Said("home", "あれ", "s"))
            assert failing.wait(30)
            idle(polling)
            assert again(job).state == "running"
        world.clock.advance(seconds=TURN_TIMEOUT_S + 1)
        assert done(polling, job).reply == "やっと"


def test_more_turns_than_threads_wait_in_order(
    polling: Polling, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "THREADS", 2)
    gate = Gate(model, "順番だよ")
    jobs = [polling.begin(Said("home", f"話{number}", f"s{number}")) for number in range(5)]
    until(lambda: len(model.asked) == 2, "two are asked")
    assert [again(job).state for job in jobs[2:]] == ["waiting"] * 3
    gate.open.set()
    assert {done(polling, job).reply for job in jobs} == {"順番だよ"}
    assert polling._running.threads == 2


def test_results_are_kept_an_hour_and_turns_for_good(world: World, polling: Polling, model: ScriptedModel) -> None:
    model.script = [say("うん")]
    job = polling.begin(Said("home", "おぼえてて", "s"))
    idle(polling)
    never_ended = left(world)
    world.clock.advance(seconds=KEPT.total_seconds())
    world.work.sweep()
    assert done(polling, job).reply == "うん"
    world.clock.advance(seconds=1)
    world.work.sweep()
    with pytest.raises(NotFound, match="kept for an hour"):
        polling.look("home", str(job.id))
    world.clock.set(never_ended.created_at + 2 * KEPT + timedelta(seconds=1))
    world.work.sweep()
    assert TurnJob.select().count() == 0
    assert Turn.select().count() == 2
