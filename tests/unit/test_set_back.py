"""A clock that jumps back an hour: nothing waits for the hour, nothing is lost or doubled."""

from datetime import timedelta

from stackmem.asking import LONGEST_DELAY
from stackmem.database import lease
from stackmem.models import Lease, Owner, Session, Turn
from stackmem.score_models import JudgeDay, Label
from stackmem.set_back import bring_to_the_present
from tests.unit.world import World, again, states, summaries

HOUR = {"hours": -1}
TOLD = ("うちの猫の名前はモモだよ", "昨日富士通のPCを12万円で買ったよ", "妹の誕生日は5月3日なんだ")


def test_what_was_said_before_and_after_is_remembered_once(offline: World) -> None:
    said = [offline.say(text).id for text in TOLD[:2]]
    offline.work.sweep()
    offline.queue.taken()
    offline.clock.advance(**HOUR)
    said.append(offline.say(TOLD[2]).id)
    offline.clock.advance(minutes=3)  # of silence, no hour
    offline.work.sweep()
    offline.settle()
    offline.clock.advance(minutes=11)  # the session ends
    offline.work.sweep()
    offline.settle()
    assert [turn.id for turn in Turn.select().order_by(Turn.ordinal)] == said
    assert states() == ["kept"] * 3
    assert len(summaries()) == len(set(summaries())) == 3
    assert offline.points() == dict.fromkeys(offline.points(), "active")
    assert len(offline.points()) == 3


def test_a_lost_hint_a_dead_lease_and_a_delay_wait_no_hour(offline: World) -> None:
    offline.turns(6)
    now = offline.clock.now()
    session = offline.session()
    Session.update(enqueued_at=now, retry_at=now + timedelta(minutes=1)).execute()
    Owner.update(compare_enqueued_at=now, retry_at=now).execute()
    Lease.create(name=f"session:{session.id}", holder="dead", until=now + timedelta(seconds=90))
    offline.clock.advance(**HOUR)
    offline.work.sweep()
    assert (again(session).enqueued_at, again(session).retry_at) == (offline.clock.now(), None)
    with lease(f"session:{session.id}", offline.clock) as held:
        assert held is not None
    assert (Owner.get().compare_enqueued_at, Owner.get().retry_at) == (None, None)


def test_a_judge_that_was_down_waits_no_hour(offline: World) -> None:
    turn, later = offline.turn("もしもし"), offline.clock.now() + LONGEST_DELAY
    judge = {"judge": "qwen", "prompt_version": "1", "created_at": offline.clock.now()}
    Label.create(turn=turn.id, owner="home", state="waiting", retry_at=later, **judge)
    JudgeDay.create(day="2026-11-30", calls=3, delays=2, retry_at=later)
    offline.work.sweep()
    assert (Label.get().retry_at, JudgeDay.get().retry_at) == (later, later)
    offline.clock.advance(**HOUR)
    offline.work.sweep()
    assert (Label.get().retry_at, JudgeDay.get().retry_at) == (None, None)
    assert (JudgeDay.get().calls, JudgeDay.get().delays) == (3, 2)


def test_an_open_turn_whose_request_died_is_given_up_in_seconds(offline: World) -> None:
    turn = offline.turn("もしもし", state="open", reply="")
    offline.clock.advance(**HOUR)
    offline.work.sweep()
    assert states(turn) == ["open"]
    offline.clock.advance(minutes=1)
    offline.work.sweep()
    assert states(turn) == ["pending"]


def test_clocks_that_differ_a_little_change_nothing(offline: World) -> None:
    offline.say(TOLD[0])
    before = Session.get().received_at
    offline.clock.advance(seconds=-50)
    assert bring_to_the_present(offline.clock.now()) == 0
    assert Session.get().received_at == before
