"""What a day of talk costs: no look without a new turn, one comparison a window, none without anything to compare."""

import json
from typing import Any

from stackmem.converse import due_looks
from stackmem.models import Memory, Session, Turn, Window
from stackmem.ports import Hint
from tests.scripted import Answer
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World, decisions, keep, segments, states

TALK = [
    "うちの猫はミケっていうの", "三毛猫なんだ", "もう5歳だよ", "妹は大阪に住んでる", "妹は看護師なの", "歯医者は8月3日",
    "歯医者は10時から", "富士通のPCを買った", "PCは13万円", "色は黒だよ", "弟が結婚するの", "式は10月",
    "猫のミケが太った", "餌を変えたよ",
]  # fmt: skip


def asked(model: ScriptedModel) -> tuple[list[list[str]], list[list[str]]]:
    """Return the users' words of each look, and the new summaries of each comparison."""
    looks = [[turn["user"] for turn in prompt["turns"]] for prompt in model.prompts if "turns" in prompt]
    compared = [[memory["summary"] for memory in prompt["new"]] for prompt in model.prompts if "new" in prompt]
    return looks, compared


def by_pairs(request: Any) -> Answer:
    """Make a topic of every two turns; a comparison finds nothing."""
    prompt = json.loads(request["messages"][1]["content"])
    if "new" in prompt:
        return decisions(*[(memory["id"], "new", None) for memory in prompt["new"]])
    pairs = [prompt["turns"][start : start + 2] for start in range(0, len(prompt["turns"]), 2)]
    return segments(
        *[
            keep([turn["turn_id"] for turn in pair], f"{pair[0]['user']}。", entities=[pair[0]["user"]])
            for pair in pairs
        ]
    )


def run(world: World, hints: list[Hint]) -> None:
    """Do these pieces of work, and what they put into the queue."""
    while hints:
        for hint in hints:
            world.work.run(hint)
        hints = world.queue.taken()


def sweep(world: World) -> None:
    world.work.sweep()
    run(world, world.queue.taken())


def test_a_live_session_of_fourteen_turns_costs_three_looks_and_none_for_its_end(
    world: World, model: ScriptedModel
) -> None:
    model.script = by_pairs
    for text in TALK:
        turn = world.turn(text)
        run(world, due_looks(turn, world.clock.now()))
        for _ in range(2):  # the beat, every 30 s
            world.clock.advance(seconds=30)
            sweep(world)
    for _ in range(2 * 60 * 3):  # three hours of nobody saying anything, the session ends in them
        world.clock.advance(seconds=30)
        sweep(world)
    looks, compared = asked(model)
    assert looks == [TALK[:6], TALK[4:12], TALK[10:]]
    assert Session.get().ended_at is not None
    assert states() == ["kept"] * 14
    assert Memory.select().count() == 7
    # Each new memory is set against older ones once at most, all of one window in one call.
    summaries = [summary for one in compared for summary in one]
    assert len(summaries) == len(set(summaries))
    assert len(compared) <= Window.select().where(Window.id > 1).count()
    assert all(prompt["known"] for prompt in model.prompts if "new" in prompt)
    calls = len(model.asked)
    world.work.start()  # a restart asks nothing again
    run(world, world.queue.taken())
    for _ in range(50):
        world.clock.advance(minutes=5)
        sweep(world)
    assert len(model.asked) == calls


def test_five_turns_and_a_minute_cost_nothing_yet(world: World, model: ScriptedModel) -> None:
    for text in TALK[:5]:
        run(world, due_looks(world.turn(text), world.clock.now()))
        world.clock.advance(seconds=15)
        sweep(world)
    assert model.asked == []


def test_a_pause_and_a_goodbye_cost_one_look_together(world: World, model: ScriptedModel) -> None:
    model.script = by_pairs
    for text in TALK[:2]:
        world.turn(text)
    world.clock.advance(minutes=2)
    sweep(world)
    assert (len(model.asked), states()) == (1, ["pending", "pending"])
    for _ in range(20):
        world.clock.advance(minutes=1)
        sweep(world)
    assert (len(model.asked), states()) == (1, ["kept", "kept"])


def test_one_comparison_for_all_new_memories_of_a_window(world: World, model: ScriptedModel) -> None:
    for name, summary in (("ミケ", "ユーザーの猫はミケ。"), ("富士通", "ユーザーのPCは富士通。")):
        world.memory(summary, entities=[name])
    turns = [world.turn(text) for text in ("猫のミケが太った", "富士通のPCは黒だよ", "妹は看護師なの")]
    Session.update(ended_at=world.clock.now()).where(Session.id == turns[0].session_id).execute()
    names = ["ミケ", "富士通", "看護師"]

    def script(request: Any) -> Answer:
        if "new" in json.loads(request["messages"][1]["content"]):
            return decisions()
        return segments(*[keep([n], f"{turns[n - 1].user}。", entities=[names[n - 1]]) for n in (1, 2, 3)])

    model.script = script
    world.settle()
    looks, compared = asked(model)
    assert looks == [[turn.user for turn in turns]]
    assert [sorted(one) for one in compared] == [
        ["富士通のPCは黒だよ。", "猫のミケが太った。"]
    ]  # those with candidates
    assert Turn.select().where(Turn.state == "pending").count() == 0
