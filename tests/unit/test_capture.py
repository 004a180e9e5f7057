"""Capture on real talk: the judge's opinion against the memories there are."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evals.capture import capture, sample
from evals.figures import Rate
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.persona import render
from tests.scripted import Answer, ScriptedServer, content, error
from tests.unit.world import World


@contextmanager
def judging(*answers: Answer) -> Iterator[tuple[OpenAIChat, ScriptedServer]]:
    """Yield a judge that answers so."""
    with ScriptedServer(answers) as server:
        yield OpenAIChat(server.base_url, "key", "judge"), server


def keep(*numbers: int) -> Answer:
    """Return the judge's answer."""
    return content(json.dumps({"keep": numbers}))


def test_memories_are_held_against_the_judges_opinion(world: World) -> None:
    kept = world.memory("猫のモモ", "猫の名前はモモだよ", "うん", session="a")
    world.memory("あいさつ", "こんにちは", session="a")
    world.turn("来週京都に行く", session="a", state="skipped")
    world.turn("まだ見ていない", session="a")
    told: list[int] = []
    with judging(keep(1, 4)) as (judge, server):
        found = capture(sample("home", 100, 0), judge, 5, told.append)
    assert found.capture_recall == Rate(1, 2)
    assert found.noise_rate == Rate(1, 2)
    assert [turn.user for turn in found.left_out] == ["来週京都に行く"]
    assert [[turn.user for turn in turns] for turns in found.kept_in_vain] == [["こんにちは"]]
    assert (found.turns, found.unjudged, told) == (4, 0, [1])
    assert found.as_json()["capture_recall"]["num"] == 1
    assert "猫の名前はモモだよ" in server.requests[0].json["messages"][0]["content"]
    assert kept.id


def test_a_memory_that_rests_on_turns_outside_the_sample_is_not_judged(world: World) -> None:
    world.memory("長い話", *(f"話{number}" for number in range(12)), session="a")
    groups = sample("home", 10, 0)
    assert [len(group) for group in groups] == [10] or sum(map(len, groups)) == 10
    with judging(*[keep()] * len(groups)) as (judge, _):
        assert capture(groups, judge, 5, lambda _: None).noise_rate == Rate(0, 0)


def test_a_judge_without_an_opinion_leaves_its_turns_out(world: World) -> None:
    for session in "abc":
        world.memory(f"{session}の話", f"{session}の出来事", session=session)
    with judging(keep(1), content("無理"), keep(7), error(400, "no")) as (judge, _):
        found = capture(sample("home", 100, 0), judge, 5, lambda _: None)
    assert (found.turns, found.unjudged) == (3, 2)
    assert found.capture_recall == Rate(1, 1)


def test_a_sample_is_repeatable_and_of_one_owner(world: World) -> None:
    for number in range(30):
        world.turn(f"話{number}", session=f"s{number % 10}", state="kept")
    world.turn("他人の話", session="m", owner="mari", state="kept")
    one, two, other = (sample("home", 10, seed) for seed in (1, 1, 3))
    assert [turn.id for group in one for turn in group] == [turn.id for group in two for turn in group]
    assert one != other
    assert all(turn.owner == "home" for group in one for turn in group)
    assert sample("nobody", 10, 0) == []


@pytest.mark.parametrize("language", ["ja", "en"])
def test_the_judges_prompts_render(language: str) -> None:
    assert '{"keep": [1, 4]}' in render(f"judge_keep.{language}.md", turns="[]")
    shown = render(f"judge_ask_back.{language}.md", user="あの子", reply="どっち？", candidates="[]")
    assert "どっち？" in shown
    assert "$" not in shown
