"""Remembering under trouble: a model that is away or talks nonsense, two workers, a session that cannot be read."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.exceptions import Conflict
from stackmem.looks import OPEN_TOPIC
from stackmem.models import Memory, MemorySource, Owner, Session, Turn, Window
from stackmem.rebuilding import rebuild_from_turns
from tests.fakes import FixedClock
from tests.scripted import Answer, content, error, raw, reset
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World, at, decisions, everything, keep, segments, sources_of, states, summaries

BAD = content("わかりました！")


def end(name: str, when: Any) -> None:
    Session.update(ended_at=when).where(Session.name == name).execute()


def turns_of(request: Any) -> list[dict[str, Any]]:
    """Return the turns of a look, [] of a comparison."""
    return json.loads(request["messages"][1]["content"]).get("turns", [])  # type: ignore[no-any-return]


def each(request: Any) -> Answer:
    """Keep every turn as a memory of its own; all comparisons say new."""
    turns = turns_of(request)
    return segments(*[keep([turn["turn_id"]], f"ユーザーは{turn['user']}") for turn in turns]) if turns else decisions()


def hold(rows: list[Turn]) -> None:
    """Hold what is true at every moment, whatever was answered."""
    sources = {row.turn_id for row in MemorySource.select().where(MemorySource.turn.in_([row.id for row in rows]))}
    for row in rows:
        assert row.state in ("pending", "kept", "skipped", "failed")
        assert (row.state == "kept") == (row.id in sources)
    made = MemorySource.select(MemorySource.memory).where(MemorySource.turn.in_([row.id for row in rows]))
    for memory in Memory.select().where(Memory.id.in_(made)):
        assert memory.summary.strip()
        assert memory.topic.strip()


# --- a night without the model ---------------------------------------------------------------------------------------


def night(world: World) -> None:
    """Eight hours of a sweep every five minutes, with somebody talking until midnight."""
    for step in range(96):
        if step < 24 and step % 3 == 0:
            world.turn(f"{step}番目の話をしたよ", session=f"s{step // 6}")
        world.work.sweep()
        for hint in world.queue.taken():
            world.work.run(hint)
        world.clock.advance(minutes=5)


def morning(world: World, model: ScriptedModel) -> None:
    """The model is back: nothing was lost, nothing counted against the turns, everything is remembered."""
    assert set(states()) == {"pending"}
    assert {row.attempts for row in Session.select()} == {0}
    assert Window.select().count() == 0
    model.script = each
    world.clock.advance(minutes=15)
    for _ in range(3):
        world.work.sweep()
        world.settle()
    assert states() == ["kept"] * 8
    assert sorted(summaries()) == sorted(f"ユーザーは{step}番目の話をしたよ" for step in range(0, 24, 3))
    assert {row.delays for row in Session.select()} == {0}


@pytest.mark.parametrize("down", [error(503, "down"), error(429, "slow down"), error(402, "no money left"), reset()])
def test_a_night_without_the_model_costs_no_attempt_and_no_memory(
    world: World, model: ScriptedModel, down: Answer
) -> None:
    model.script = lambda _: down
    night(world)
    asked = len(model.asked)
    assert 4 <= asked <= 4 * 40 * 2  # never more often than every 15 min at last, each with one more try
    morning(world, model)


def test_a_night_without_the_models_address_is_no_other(
    database: Any, embedder: UseEmbedder, chat: OpenAIChat, model: ScriptedModel
) -> None:
    nobody = OpenAIChat("http://127.0.0.1:9/v1", "key", "scripted")
    world = World(embedder, nobody, clock=FixedClock())
    night(world)
    nobody.close()
    back = World(embedder, chat, store=world.store, clock=world.clock)
    morning(back, model)
    assert model.asked


def test_failed_turns_that_are_tried_again_are_remembered(world: World, model: ScriptedModel) -> None:
    world.turn("猫を飼ったよ")
    world.turn("名前はミケだよ")
    end("s", world.clock.now())
    model.script = lambda _: BAD
    for _ in range(5):
        world.settle()
        world.clock.advance(minutes=15)
    assert states() == ["failed", "failed"]
    model.script = each
    world.settle()
    assert states() == ["failed", "failed"]  # not by themselves
    assert world.work.retry("mari") == {"turns": 0, "comparisons": 0}
    assert states() == ["failed", "failed"]
    assert world.work.retry("home") == {"turns": 2, "comparisons": 0}
    for hint in world.queue.taken():
        world.work.run(hint)
    assert states() == ["kept", "kept"]
    assert summaries() == ["ユーザーは猫を飼ったよ", "ユーザーは名前はミケだよ"]
    assert world.work.retry("home") == {"turns": 0, "comparisons": 0}


def test_failed_turns_of_a_talk_that_went_on_are_tried_again_and_nothing_is_doubled(
    world: World, model: ScriptedModel
) -> None:
    world.turns(6)
    model.script = lambda _: BAD
    for _ in range(5):
        world.settle()
        world.clock.advance(minutes=15)
    assert states() == ["failed"] * 6
    model.script = each
    for text in ("猫を飼ったよ", "名前はミケだよ"):
        world.turn(text)
    end("s", world.clock.now())
    world.settle()
    assert states() == ["failed"] * 6 + ["kept"] * 2
    world.work.retry("home")
    world.settle()
    assert states() == ["kept"] * 8
    assert sorted(sources_of(memory) for memory in Memory.select()) == [[number] for number in range(1, 9)]


# --- one bad thing stops no other ------------------------------------------------------------------------------------


def test_a_poisoned_comparison_holds_up_no_other_owner_and_no_look(world: World, model: ScriptedModel) -> None:
    for owner in ("home", "mari"):
        world.memory("PCは12万円だ。", entities=["PC"], owner=owner, said=at("01 10:00"))
        world.memory(f"PCは13万円だ。{owner}", entities=["PC"], owner=owner, said=at("02 10:00"), compared=False)
    world.turn("猫を飼ったよ", session="new")
    end("new", world.clock.now())

    def script(request: Any) -> Answer:
        if turns_of(request):
            return each(request)
        return BAD if "home" in request["messages"][1]["content"] else decisions(("N1", "supersedes", "K1"))

    model.script = script
    world.settle()
    assert summaries("mari") == ["PCは13万円だ。mari"]
    assert states()[-1] == "kept"
    assert Owner.get_by_id("home").retry_at > world.clock.now()
    for _ in range(5):
        world.clock.advance(minutes=15)
        world.settle()
    assert not Window.select().where(~Window.compared).exists()  # it gave up: both stand
    assert summaries() == ["PCは12万円だ。", "PCは13万円だ。home", "ユーザーは猫を飼ったよ"]


def test_a_poisoned_session_holds_up_no_other_owner(world: World, model: ScriptedModel) -> None:
    world.turn("毒のある話", session="bad")
    world.turn("猫を飼ったよ", session="good", owner="mari")
    for name in ("bad", "good"):
        end(name, world.clock.now())
    model.script = lambda request: BAD if "毒" in str(request["messages"][1]) else each(request)
    world.settle()
    assert (states(), summaries("mari")) == (["pending", "kept"], ["ユーザーは猫を飼ったよ"])


# --- two workers -----------------------------------------------------------------------------------------------------


def in_threads(database: Any, *work: Callable[[], Any]) -> list[Any]:
    """Do each piece in a thread with a connection of its own, all at once; return the results or what was raised."""
    together, results = threading.Barrier(len(work)), dict[int, Any]()

    def run(number: int, piece: Callable[[], Any]) -> None:
        with database.connection_context():
            together.wait()
            try:
                results[number] = piece()
            except Exception as exc:
                results[number] = exc

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[number] for number in range(len(work))]


def test_two_workers_at_many_sessions_make_each_memory_once(world: World, model: ScriptedModel, database: Any) -> None:
    names = [f"s{number}" for number in range(6)]
    for name in names:
        world.turn(f"{name}で猫を飼ったよ", session=name)
        world.turn(f"{name}で犬を飼ったよ", session=name)
        end(name, world.clock.now())
    ids = [row.id for row in Session.select().order_by(Session.id)]
    model.script = each

    def worker() -> int:
        return sum(world.remembering.remember(session_id) for session_id in ids)

    results = in_threads(database, worker, worker)
    assert sum(results) == 12
    assert sorted(sources_of(memory) for memory in Memory.select()) == [[number] for number in range(1, 13)]
    assert Window.select().count() == len(model.asked) == 6


def test_a_worker_that_slept_through_its_lease_makes_no_second_memory(
    world: World, model: ScriptedModel, database: Any
) -> None:
    """The first hangs in its call for more than the lease; another does the work; the first's answer is dropped."""
    turn = world.turn("猫を飼ったよ")
    end("s", world.clock.now())
    first_asked, second_done = threading.Event(), threading.Event()

    def script(request: Any) -> Answer:
        if len(model.asked) > 1:
            return each(request)
        first_asked.set()
        assert second_done.wait(4)
        return segments(keep([1], "ユーザーは犬を飼った。"))

    def second() -> int:
        assert first_asked.wait(4)
        world.clock.advance(seconds=91)
        try:
            return world.remembering.remember(turn.session_id)
        finally:
            second_done.set()

    model.script = script
    first, other = in_threads(database, lambda: world.remembering.remember(turn.session_id), second)
    assert isinstance(first, Conflict)
    assert (other, summaries(), states()) == (1, ["ユーザーは猫を飼ったよ"], ["kept"])
    assert Window.select().count() == 1


# --- any answer ------------------------------------------------------------------------------------------------------

GOOD = json.dumps({"segments": [keep([1, 2], "ユーザーは猫を飼った。")]}, ensure_ascii=False)


@pytest.mark.parametrize(
    "said",
    [
        f"```json\n{GOOD}\n```",
        f"はい、こちらです：\n```\n{GOOD}\n```\nほかに何かありますか？",
        f"<think>猫の話だな。{{}}</think>{GOOD}",
        f"猫の話だな。</think>{GOOD}",
        GOOD[:-2],  # cut off after the summary
        json.dumps(GOOD, ensure_ascii=False),
        GOOD.replace('"keep": true', '"keep": "true"').replace("[1, 2]", '["1", 2, 2, 2, 9, -1]'),
        json.dumps(json.loads(GOOD)["segments"]),
    ],
)
def test_a_good_answer_in_any_wrapping_makes_its_memory(world: World, model: ScriptedModel, said: str) -> None:
    world.turns(2)
    end("s", world.clock.now())
    model.script = [content(said)]
    world.settle()
    assert summaries() == ["ユーザーは猫を飼った。"]
    assert (states(), sources_of(Memory.get())) == (["kept", "kept"], [1, 2])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff\xfe\x00", b"null", b"[]", b"<html>502 Bad Gateway</html>", b'{"choices": []}',
        b'{"choices": [{"message": {"content": null}}]}', b'{"choices": [{"message": {"content": "\\u0000"}}]}',
        b'{"choices": [{"message": {"con',
    ],
)  # fmt: skip
def test_whatever_bytes_come_over_http_the_turns_wait_and_are_remembered_later(
    world: World, model: ScriptedModel, body: bytes
) -> None:
    world.turns(2)
    end("s", world.clock.now())
    model.script = lambda _: raw(body)
    world.settle()
    assert states() == ["pending", "pending"]
    assert Window.select().count() == Memory.select().count() == 0
    assert world.session().retry_at > world.clock.now()
    world.clock.set(world.session().retry_at)
    model.script = each
    world.settle()
    assert states() == ["kept", "kept"]


NUMBERS = st.lists(st.integers(0, 12), max_size=8) | st.lists(st.integers(0, 50), max_size=45)
SEGMENTS = st.lists(
    st.builds(
        lambda numbers, kept, text: {"turn_ids": numbers, "keep": kept, "topic": "", "summary": text},
        NUMBERS, st.booleans(), st.sampled_from(["猫の話。", "犬の話。", "", " "]),
    ),
    max_size=8,
).map(lambda items: json.dumps({"segments": items}))  # fmt: skip
WRAPPED = st.builds(
    lambda said, form: form.replace("…", said), SEGMENTS, st.sampled_from(["…", "```json\n…\n```", "<think>x</think>…"])
)
CUT = st.builds(lambda said, length: said[:length], SEGMENTS, st.integers(0, 200))
MANY = st.integers(1, 9)  # 200 segments of this turn
ROUNDS = st.lists(
    st.tuples(st.sampled_from([1, 2, 6, 20, 45]), WRAPPED | CUT | MANY | st.text(max_size=20)), min_size=1, max_size=4
)


@given(ROUNDS)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_talk_that_goes_on_under_any_answers_stays_whole(
    world: World, model: ScriptedModel, rounds: list[tuple[int, Any]]
) -> None:
    name = f"s{Session.select().count()}"
    said: list[str] = []

    def rows() -> list[Turn]:
        return list(Turn.select().join(Session).where(Session.name == name).order_by(Turn.ordinal))

    for count, drawn in rounds:
        many = {"segments": [keep([drawn], "話。")] * 200}
        answer = drawn if isinstance(drawn, str) else json.dumps(many)
        said += [turn.user for turn in world.turns(count, name)]
        model.script = lambda _, answer=answer: content(answer)
        world.clock.advance(minutes=15)
        world.remembering.remember(world.session(name).id)
        hold(rows())
        if world.session(name).attempts == 0:
            assert sum(row.state == "pending" for row in rows()) < OPEN_TOPIC
    end(name, world.clock.now())
    for _ in range(5 * 6):  # five attempts at each of as many looks as 180 turns take, and one more
        world.clock.advance(minutes=15)
        world.remembering.remember(world.session(name).id)
    hold(rows())
    assert [row.user for row in rows()] == said
    assert "pending" not in {row.state for row in rows()}
    assert world.session(name).open_topic is None


def test_a_last_topic_that_shares_a_kept_turn_is_made_whole_and_a_rebuild_makes_the_same(
    world: World, model: ScriptedModel
) -> None:
    world.turns(6)
    model.script = lambda _: segments(keep([1, 2], "猫の話。"), keep([2, 6], "犬の話。"))
    world.settle()
    assert (states(), world.session().open_topic) == (
        ["kept", "kept", "skipped", "skipped", "skipped", "kept"],
        None,
    )
    before = everything()
    rebuild_from_turns(world.remembering)
    world.settle()
    assert everything() == before
