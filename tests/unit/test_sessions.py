"""Which session a turn belongs to, and when one ends."""

from datetime import timedelta

import pytest

from stackmem import sessions
from stackmem.exceptions import InvalidInput, NotFound
from stackmem.models import Session
from tests.fakes import FixedClock
from tests.unit.world import World, again

IDLE = sessions.IDLE_LIMIT


def for_turn(
    clock: FixedClock, name: str | None = None, device: str | None = None, owner: str = "home"
) -> tuple[int, str, int]:
    row = sessions.session_for_turn(owner, name, device, clock.now())
    return row.id, row.name, row.seq


def receive(session_id: int, clock: FixedClock) -> None:
    Session.update(received_at=clock.now()).where(Session.id == session_id).execute()


def test_an_unknown_name_begins_a_session(world: World, clock: FixedClock) -> None:
    _, name, seq = for_turn(clock, "居間")
    assert (name, seq) == ("居間", 1)
    assert Session.get().named


def test_the_same_name_goes_on_with_the_open_session(world: World, clock: FixedClock) -> None:
    first = for_turn(clock, "s")
    clock.advance(minutes=9, seconds=59)
    assert for_turn(clock, "s") == first


def test_after_the_idle_limit_the_same_name_opens_the_next_sequence(world: World, clock: FixedClock) -> None:
    first, _, _ = for_turn(clock, "kai")
    clock.advance(minutes=10)
    second, name, seq = for_turn(clock, "kai")
    assert (name, seq) == ("kai", 2)
    assert second != first
    assert Session.get_by_id(first).ended_at == clock.now()
    assert Session.get_by_id(second).ended_at is None


def test_the_idle_limit_counts_from_the_last_turn_received(world: World, clock: FixedClock) -> None:
    first, _, _ = for_turn(clock, "s")
    for _ in range(3):
        clock.advance(minutes=9)
        receive(first, clock)
    assert for_turn(clock, "s")[0] == first


def test_a_turn_without_a_name_goes_on_with_its_devices_session(world: World, clock: FixedClock) -> None:
    robot, kitchen, nobody = for_turn(clock, None, "robot"), for_turn(clock, None, "kitchen"), for_turn(clock)
    assert len({robot, kitchen, nobody}) == 3
    assert for_turn(clock, None, "robot") == robot
    assert for_turn(clock, None, "kitchen") == kitchen
    assert for_turn(clock) == nobody
    assert not Session.get_by_id(robot[0]).named


def test_a_turn_without_a_name_never_joins_a_named_session(world: World, clock: FixedClock) -> None:
    named = for_turn(clock, "s", "robot")
    assert for_turn(clock, None, "robot") != named


def test_owners_have_sessions_of_their_own(world: World, clock: FixedClock) -> None:
    home, mari = for_turn(clock, "s"), for_turn(clock, "s", owner="mari")
    assert home[0] != mari[0]
    assert (home[2], mari[2]) == (1, 1)
    assert for_turn(clock, owner="mari")[0] != for_turn(clock)[0]


def test_a_closed_session_is_followed_by_the_next_sequence(world: World, clock: FixedClock) -> None:
    first, name, _ = for_turn(clock, "s")
    assert sessions.close("home", name, clock.now()) == [first]
    assert for_turn(clock, "s")[1:] == ("s", 2)


def test_closing_again_ends_nothing(world: World, clock: FixedClock) -> None:
    first, _, _ = for_turn(clock, "s")
    ended_at = clock.now()
    sessions.close("home", "s", ended_at)
    assert sessions.close("home", "s", clock.advance(seconds=5)) == []
    assert Session.get_by_id(first).ended_at == ended_at


@pytest.mark.parametrize(("owner", "name"), [("home", "other"), ("mari", "s")])
def test_closing_an_unknown_session_is_not_found(world: World, clock: FixedClock, owner: str, name: str) -> None:
    for_turn(clock, "s")
    with pytest.raises(NotFound, match="There is no session"):
        sessions.close(owner, name, clock.now())


def test_a_new_session_makes_a_look_at_the_owners_others_due_and_ends_none(world: World, clock: FixedClock) -> None:
    first, mari = for_turn(clock, "a"), for_turn(clock, "m", owner="mari")
    sessions.close("home", for_turn(clock, "closed")[1], clock.now())
    Session.update(look_due=False).execute()
    for_turn(clock, "b")
    due = {row.name for row in Session.select().where(Session.look_due)}
    assert due == {"a"}
    assert again(Session.get_by_id(first[0])).ended_at is None
    assert Session.get_by_id(mari[0]).ended_at is None


def test_going_on_with_a_session_makes_no_look_due(world: World, clock: FixedClock) -> None:
    for_turn(clock, "a")
    for_turn(clock, "b")
    Session.update(look_due=False).execute()
    for_turn(clock, "a")
    assert not Session.select().where(Session.look_due).exists()


def test_an_imported_session_is_never_gone_on_with(world: World, clock: FixedClock) -> None:
    sessions.begin("home", "log", now=clock.now(), named=True, imported="log#1")
    assert for_turn(clock, "log")[1:] == ("log", 2)


@pytest.mark.parametrize("name", ["x" * 201, "  ", "\n"])
def test_a_name_has_1_to_200_characters(world: World, clock: FixedClock, name: str) -> None:
    with pytest.raises(InvalidInput, match="A session id has 1 to 200 characters"):
        for_turn(clock, name)


def test_idle_sessions_are_ended(world: World, clock: FixedClock) -> None:
    old, _, _ = for_turn(clock, "old")
    clock.advance(minutes=6)
    young, _, _ = for_turn(clock, "young")
    assert sessions.end_idle(clock.advance(minutes=4)) == 0
    assert sessions.end_idle(clock.advance(seconds=1)) == 1
    assert Session.get_by_id(old).ended_at == clock.now()
    assert Session.get_by_id(young).ended_at is None


def test_ordinals_count_from_one_within_a_session(world: World) -> None:
    assert sessions.next_ordinal(world.session("a")) == 1
    assert [turn.ordinal for turn in (*world.turns(2, "a"), *world.turns(1, "b"))] == [1, 2, 1]


def test_the_limits_are_the_designs() -> None:
    assert timedelta(minutes=10) == IDLE
