"""Marks: what a person says of a turn counts before the judge, and becomes a scenario."""

from pathlib import Path
from typing import Any

import pytest

from evals.figures import Agreement, Rate
from evals.live_scores import last_scores
from evals.marked import LENGTH, scenario_of
from evals.marks import agreement, mark, mark_of, marks, unmark, verdicts
from evals.scenario import read
from evals.windows import Tally, write_windows
from stackmem.exceptions import InvalidInput
from stackmem.models import Turn
from stackmem.score_models import Label, Mark, Score
from tests.unit.test_windows import FOUND, NEEDLESS, SEARCHED_FOR_NOTHING, store
from tests.unit.world import ZONE, World, at


def marked(world: World, turn: Turn, kind: str, *right: str) -> Mark:
    mark(turn, kind, right, world.clock.now())
    found = mark_of(turn)
    assert found is not None
    return found


def tally() -> Tally:
    return Tally.of(verdicts(Label.select().order_by(Label.turn)))


def test_each_mark_goes_before_the_judges_label(offline: World) -> None:
    turns = [offline.turn(f"話{n}", searched=searched) for n, searched in enumerate((False, True, True, True))]
    for turn, kind in zip(turns, (NEEDLESS, FOUND, FOUND, SEARCHED_FOR_NOTHING), strict=True):
        store(offline, turn, kind)
    assert (tally().false_trigger_rate, tally().miss_rate) == (Rate(1, 2), Rate(0, 2))
    marked(offline, turns[0], "should_have_searched")
    marked(offline, turns[1], "wrong_memory")
    marked(offline, turns[2], "should_not_have_searched")
    assert (tally().false_trigger_rate, tally().miss_rate) == (Rate(2, 2), Rate(2, 2))
    unmark(turns[0])
    assert tally().miss_rate == Rate(1, 1)
    assert mark_of(turns[0]) is None


def test_windows_and_what_is_shown_count_marks_too(offline: World) -> None:
    turns = [offline.turn(f"話{n}", model="qwen") for n in range(10)]
    for turn in turns:
        store(offline, turn, NEEDLESS)
    marked(offline, turns[3], "should_have_searched")
    assert write_windows("home", offline.clock.now()) == 1
    assert Tally.of_score(Score.get()).miss_rate == Rate(1, 1)
    (shown,) = last_scores([turn.id for turn in turns])
    assert (shown["miss_rate"]["num"], shown["miss_rate"]["den"]) == (1, 1)
    assert shown["marked"] == {"turns": 1, "accuracy": 0.0, "kappa": 0.0}


def test_the_judge_is_set_against_people_where_both_judged(offline: World) -> None:
    first, second = offline.turn("話1", searched=True), offline.turn("話2")
    store(offline, first, SEARCHED_FOR_NOTHING)
    store(offline, second, NEEDLESS)
    marked(offline, first, "should_not_have_searched")
    marked(offline, second, "should_have_searched")
    assert agreement(Label.select()) == Agreement(both=0, only_first=1, only_second=0, neither=1)


@pytest.mark.parametrize(
    ("kind", "columns", "says"),
    [
        ("nonsense", {}, "A mark is one of"),
        ("wrong_memory", {}, "did not search"),
        ("should_have_searched", {"searched": True}, "This turn searched"),
        ("should_have_searched", {"imported": True}, "answered here"),
        ("should_have_searched", {"state": "open"}, "answered here"),
    ],
)
def test_a_mark_that_cannot_be_true_is_refused(offline: World, kind: str, columns: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        mark(offline.turn("話", **columns), kind, [], offline.clock.now())


def test_a_mark_names_only_memories_of_its_owner(offline: World) -> None:
    theirs = offline.memory("アリスの猫はタマ。", owner="alice")
    with pytest.raises(InvalidInput, match="There is no memory"):
        mark(offline.turn("猫の名前は？"), "should_have_searched", [theirs.id], offline.clock.now())


def test_a_second_mark_takes_the_place_of_the_first_and_others_see_neither(offline: World) -> None:
    turn = offline.turn("話", searched=True)
    marked(offline, turn, "wrong_memory")
    assert marked(offline, turn, "should_not_have_searched").kind == "should_not_have_searched"
    assert [row.turn_id for row in marks("home", 1, 10).rows] == [turn.id]
    assert marks("alice", 1, 10).rows == []


# --- as a scenario ---------------------------------------------------------------------------------------------------


def exported(tmp_path: Path, one: Mark) -> Any:
    path = tmp_path / f"marked-{one.turn_id}.yaml"
    path.write_text(scenario_of(one, ZONE), "utf-8")
    return read(path, ZONE).scenario


def test_a_missed_memory_becomes_a_scenario_that_the_reader_takes(offline: World, tmp_path: Path) -> None:
    cat = offline.memory("ユーザーの猫の名前はミケ。", "うちの猫はミケっていうの", said=at("20 09:00"))
    dog = offline.memory("ユーザーの犬の名前はポチ。", "うちの犬はポチ", said=at("21 09:00"), session="dog")
    offline.turn("やあ")
    turn = offline.turn("猫の名前なんだっけ", "わからないや", memory_ids=[dog.id])
    offline.turn("ざんねん")
    scenario = exported(tmp_path, marked(offline, turn, "should_have_searched", cat.id))
    assert (scenario.language, scenario.tags) == ("ja", ["recall"])
    assert [said.user for said in scenario.past] == ["うちの猫はミケっていうの", "うちの犬はポチ"]
    assert [said.keep for said in scenario.past] == [True, None]
    assert len(scenario.conversation.turns) == LENGTH
    expected = scenario.conversation.turns[1].expect
    assert (expected.search, expected.evidence) == (True, [scenario.past[0].id])
    assert [asked.expect.search for asked in scenario.conversation.turns[2:]] == ["either"] * 8


def test_a_needless_search_becomes_one_with_what_was_found_as_history(offline: World, tmp_path: Path) -> None:
    cat = offline.memory("The user's cat is called Mike.", "My cat is called Mike", said=at("20 09:00"))
    turn = offline.turn("Go forward", "", searched=True, memory_ids=[cat.id])
    scenario = exported(tmp_path, marked(offline, turn, "should_not_have_searched"))
    assert (scenario.language, scenario.tags) == ("en", ["false_trigger"])
    assert scenario.conversation.turns[0].expect.search is False
    assert scenario.conversation.turns[0].expect.evidence == []
    assert [said.user for said in scenario.past] == ["My cat is called Mike"]


def test_a_long_talk_is_cut_around_the_turn_and_clocks_that_went_back_do_not_break_it(
    offline: World, tmp_path: Path
) -> None:
    said = [offline.turn(f"話{n}", at=at(f"22 10:{n:02}")) for n in range(20)]
    Turn.update(at=at("22 09:00")).where(Turn.id.in_([said[9].id, said[13].id])).execute()
    scenario = exported(tmp_path, marked(offline, said[12], "should_have_searched"))
    words = [asked.user for asked in scenario.conversation.turns]
    assert len(words) == LENGTH
    assert "話12" in words
    assert "話13" not in words


def test_the_judges_right_memories_are_taken_where_the_person_named_none(offline: World, tmp_path: Path) -> None:
    cat = offline.memory("ユーザーの猫の名前はミケ。", "うちの猫はミケ", said=at("20 09:00"))
    turn = offline.turn("猫の名前は？", searched=True)
    store(offline, turn, (True, True, [cat.id], False))
    scenario = exported(tmp_path, marked(offline, turn, "wrong_memory"))
    assert scenario.conversation.turns[0].expect.evidence == [scenario.past[0].id]
