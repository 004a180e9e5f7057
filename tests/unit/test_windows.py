"""Counts and windows over what the judge said."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evals.figures import Rate
from evals.windows import SIZES, Tally, judged, scores, write_windows
from stackmem.models import Session, Turn
from stackmem.score_models import Label, Score
from tests.unit.world import World

NEEDLESS, SEARCHED_FOR_NOTHING = (False, False, [], None), (False, True, [], None)
FOUND, NOT_SEARCHED, NOT_FOUND = (True, True, ["a"], True), (True, False, ["a"], None), (True, True, ["a"], False)
NOTHING_TO_FIND = (True, True, [], None)
KINDS = [NEEDLESS, SEARCHED_FOR_NOTHING, FOUND, NOT_SEARCHED, NOT_FOUND, NOTHING_TO_FIND]

Kind = tuple[bool, bool, list[str], bool | None]


def label(kind: Kind = NEEDLESS, **more: Any) -> Label:
    needed, searched, right, found = kind
    return Label(needed=needed, searched=searched, right_ids=right, found=found, **more)


def store(world: World, turn: Turn, kind: Kind = NEEDLESS, **more: Any) -> None:
    columns = {
        "owner": turn.owner, "state": "judged", "judge": "j", "prompt_version": "v", "created_at": world.clock.now(),
    }  # fmt: skip
    label(kind, turn=turn, **{**columns, **more}).save(force_insert=True)


def turns(world: World, count: int, **more: Any) -> list[Turn]:
    return [world.turn(f"話{number}", model="qwen", **more) for number in range(count)]


def windows(owner: str = "home") -> list[tuple[Any, ...]]:
    rows = Score.select().where(Score.owner == owner).order_by(Score.judge, Score.size, Score.ordinal)
    return [(row.size, row.ordinal, row.first_turn, row.last_turn) for row in rows]


# --- counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "false_triggers", "misses"),
    [
        ([], Rate(0, 0), Rate(0, 0)),
        ([NEEDLESS], Rate(0, 1), Rate(0, 0)),
        ([SEARCHED_FOR_NOTHING], Rate(1, 1), Rate(0, 0)),
        ([FOUND], Rate(0, 0), Rate(0, 1)),
        ([NOT_SEARCHED], Rate(0, 0), Rate(1, 1)),
        ([NOT_FOUND], Rate(0, 0), Rate(1, 1)),
        ([NOTHING_TO_FIND], Rate(0, 0), Rate(0, 0)),
        (KINDS, Rate(1, 2), Rate(2, 3)),
        ([NEEDLESS] * 7 + [SEARCHED_FOR_NOTHING] + [FOUND] * 3 + [NOT_FOUND], Rate(1, 8), Rate(1, 4)),
    ],
)
def test_the_rates_are_what_a_hand_counts(kinds: list[Kind], false_triggers: Rate, misses: Rate) -> None:
    tally = Tally.of(label(kind) for kind in kinds)
    assert (tally.false_trigger_rate, tally.miss_rate) == (false_triggers, misses)


def test_a_miss_says_how_it_was_missed() -> None:
    shown = Tally.of(label(kind) for kind in [NOT_SEARCHED, NOT_FOUND, NOT_FOUND, FOUND]).as_json()
    assert (shown["miss_rate"]["not_searched"], shown["miss_rate"]["not_found"]) == (1, 2)
    assert shown["miss_rate"]["value"] == 0.75
    assert shown["false_trigger_rate"]["value"] is None


@given(st.lists(st.sampled_from(KINDS)))
def test_every_turn_is_counted_once_or_not_at_all(kinds: list[Kind]) -> None:
    tally = Tally.of(label(kind) for kind in kinds)
    assert tally.needless + tally.findable + kinds.count(NOTHING_TO_FIND) == len(kinds)
    for rate in (tally.false_trigger_rate, tally.miss_rate):
        assert rate.value is None or 0 <= rate.value <= 1


# --- windows ---------------------------------------------------------------------------------------------------------


def test_full_windows_of_ten_and_of_fifty_are_written_once(world: World) -> None:
    for number, turn in enumerate(turns(world, 57)):
        store(world, turn, KINDS[number % len(KINDS)])
    assert write_windows("home", world.clock.now()) == 6
    assert windows() == [*[(10, n, 10 * n + 1, 10 * n + 10) for n in range(5)], (50, 0, 1, 50)]
    assert write_windows("home", world.clock.now()) == 0
    tens = [Tally.of_score(row) for row in Score.select().where(Score.size == 10)]
    (fifty,) = (Tally.of_score(row) for row in Score.select().where(Score.size == 50))
    assert sum((tally.false_trigger_rate for tally in tens), Rate(0, 0)) == fifty.false_trigger_rate
    assert sum((tally.miss_rate for tally in tens), Rate(0, 0)) == fifty.miss_rate
    assert fifty == Tally.of(list(judged("home", "j", "v"))[:50])


def test_nine_judged_turns_are_no_window(world: World) -> None:
    for turn in turns(world, 9):
        store(world, turn)
    assert write_windows("home", world.clock.now()) == 0
    assert write_windows("nobody", world.clock.now()) == 0


def test_a_window_tells_which_turns_when_by_whom_and_what(world: World) -> None:
    said = []
    for number in range(10):
        said += turns(world, 1)
        store(world, said[-1], FOUND if number else SEARCHED_FOR_NOTHING)
        world.clock.advance(minutes=1)
    write_windows("home", world.clock.now())
    row = Score.get()
    assert (row.owner, row.judge, row.prompt_version, row.size) == ("home", "j", "v", 10)
    assert (row.from_at, row.to_at) == (said[0].at, said[9].at)
    assert row.to_at - row.from_at == timedelta(minutes=9)
    assert Tally.of_score(row) == Tally(needless=1, false_triggers=1, findable=9)


def test_no_window_reaches_beyond_a_turn_that_is_still_to_be_judged(world: World) -> None:
    said = turns(world, 12)
    for turn in said[:4] + said[5:]:
        store(world, turn)
    assert write_windows("home", world.clock.now()) == 0
    store(world, said[4], state="waiting")
    assert write_windows("home", world.clock.now()) == 0
    Label.update(state="unjudgeable").where(Label.turn == said[4]).execute()
    assert write_windows("home", world.clock.now()) == 1
    assert windows() == [(10, 0, 1, 11)]


def test_no_window_reaches_beyond_a_turn_that_is_being_answered(world: World) -> None:
    open_turn, *said = turns(world, 11)
    Turn.update(state="open", model=None).where(Turn.id == open_turn.id).execute()
    for turn in said:
        store(world, turn)
    assert write_windows("home", world.clock.now()) == 0
    Turn.update(state="pending", degraded=True).where(Turn.id == open_turn.id).execute()
    assert write_windows("home", world.clock.now()) == 1


def test_turns_that_are_never_judged_stand_in_no_windows_way(world: World) -> None:
    said = turns(world, 10)
    for columns in ({"imported": True}, {"degraded": True}, {"settled": True}, {"prompts": "own-tools"}):
        said.insert(5, turns(world, 1)[0])
        Turn.update(columns).where(Turn.id == said[5].id).execute()
    for turn in Turn.select().where(~Turn.imported, ~Turn.degraded, ~Turn.settled, Turn.prompts.is_null()):
        store(world, turn)
    assert write_windows("home", world.clock.now()) == 1


def test_each_owner_and_each_judge_has_windows_of_its_own(world: World) -> None:
    for turn in turns(world, 10):
        store(world, turn)
    for turn in turns(world, 10, owner="mari", session="m"):
        store(world, turn)
    for turn in turns(world, 19):
        store(world, turn, judge="another", prompt_version="w")
    assert write_windows("home", world.clock.now()) == 2
    assert windows() == [(10, 0, 21, 30), (10, 0, 1, 10)]
    assert windows("mari") == []
    assert write_windows("mari", world.clock.now()) == 1
    assert windows("mari") == [(10, 0, 11, 20)]
    assert scores("home", "another", "w").count() == 1


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(23)), looks=st.sets(st.integers(0, 22)))
def test_in_whatever_order_turns_are_judged_the_windows_are_the_same(
    world: World, order: list[int], looks: set[int]
) -> None:
    for table in (Score, Label, Turn, Session):
        table.delete().execute()
    said = turns(world, 23)
    first = said[0].id
    for done, number in enumerate(order):
        store(world, said[number], KINDS[number % len(KINDS)])
        if done in looks:
            write_windows("home", world.clock.now())
    write_windows("home", world.clock.now())
    expected = [(10, 0, first, first + 9), (10, 1, first + 10, first + 19)]
    assert windows() == expected
    for row in Score.select():
        kinds = [KINDS[number % len(KINDS)] for number in range(10 * row.ordinal, 10 * row.ordinal + 10)]
        assert Tally.of_score(row) == Tally.of(label(kind) for kind in kinds)
    assert SIZES == (10, 50)
