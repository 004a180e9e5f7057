"""Searches are timed for what the owner said last, and nothing is left behind."""

import pytest
from click.testing import CliRunner

from stackmem.cli import main
from stackmem.measuring.searching import WHOLE, by_stage, queries, shown
from tests.unit.world import World


def test_queries_are_what_the_owner_said_the_newest_first_and_over_and_over(world: World) -> None:
    for text, owner in (("猫", "home"), ("犬", "home"), ("猫", "home"), ("鳥", "alice")):
        world.turn(text, owner=owner, session=owner)
    assert queries("home", 5) == ["猫", "犬", "猫", "犬", "猫"]
    assert queries("alice", 1) == ["鳥"]
    assert queries("nobody", 3) == []


def test_the_stages_of_every_search_are_its_whole(world: World) -> None:
    found = by_stage(world.index, world.recall, "home", ["猫", "犬"])
    *stages, whole = found.values()
    assert [len(times) for times in found.values()] == [2, 2, 2, 2]
    for place in range(2):
        assert sum(times[place] for times in stages) == pytest.approx(whole[place])
    assert [stage["stage"] for stage in shown(found)][-1] == WHOLE


def test_where_nothing_was_said_there_is_nothing_to_search_for(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STACKMEM_HOME", f"{tmp_path}/home")
    done = CliRunner().invoke(main, ["bench", "search"])
    assert (done.exit_code, done.output) == (
        1,
        "Error: Nothing was said yet, so there is nothing to search for: `stackmem chat` first.\n",
    )
