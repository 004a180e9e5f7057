"""A look at a session: split by topic, keep or skip, summarise; no turn is ever lost."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.answers import Segment
from stackmem.exceptions import Conflict
from stackmem.looks import OPEN_TOPIC, TURNS, is_due, next_look, open_topic, unlooked
from stackmem.models import Lease, Memory, Session, Turn, Window
from stackmem.ports import Hint
from stackmem.rebuilding import rebuild_from_turns
from tests.scripted import Answer, ScriptedServer, content, error, hang
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World, again, at, everything, keep, segments, skip, sources_of, states, summaries

BAD = content("わかりました！")


def look(world: World, name: str = "s") -> int:
    """Have a worker look at a session."""
    return world.remembering.remember(world.session(name).id)


def end(world: World, name: str = "s") -> Session:
    """End a session."""
    Session.update(ended_at=world.clock.now()).where(Session.id == world.session(name).id).execute()
    return world.session(name)


def kept_all(request: Any) -> Answer:
    """Keep every turn, each as a topic of its own."""
    turns = json.loads(request["messages"][1]["content"])["turns"]
    return segments(*[keep([turn["turn_id"]], f"{turn['user']}。") for turn in turns])


# --- when a look is due ----------------------------------------------------------------------------------------------


def test_six_turns_not_looked_at_make_a_look_due(world: World) -> None:
    world.turns(5)
    assert not is_due(world.session(), world.clock.now())
    world.turns(1)
    assert is_due(world.session(), world.clock.now())
    assert unlooked(world.session()) == 6


def test_two_minutes_of_silence_make_a_look_due(world: World) -> None:
    world.turns(1)
    assert not is_due(world.session(), world.clock.advance(minutes=1, seconds=59))
    assert is_due(world.session(), world.clock.advance(seconds=1))


def test_the_end_makes_a_look_due(world: World) -> None:
    world.turns(1)
    assert is_due(end(world), world.clock.now())


def test_another_session_makes_a_look_due(world: World) -> None:
    world.turns(1)
    Session.update(look_due=True).execute()
    assert is_due(world.session(), world.clock.now())


def test_without_new_turns_nothing_is_due(world: World) -> None:
    turns = world.turns(3)
    Session.update(looked_to=turns[-1].id, look_due=True).execute()
    assert not is_due(world.session(), world.clock.advance(minutes=5))
    assert is_due(end(world), world.clock.now())  # the open topic is closed by the end
    Turn.update(state="kept").execute()
    assert not is_due(world.session(), world.clock.now())


def test_open_turns_wait_for_their_answer(world: World) -> None:
    world.turns(6, state="open")
    assert not is_due(world.session(), world.clock.advance(minutes=5))
    assert not is_due(end(world), world.clock.now())


def test_after_a_failure_nothing_is_due_before_its_delay(world: World) -> None:
    world.turns(6)
    Session.update(retry_at=world.clock.now() + timedelta(seconds=5)).execute()
    assert not is_due(end(world), world.clock.advance(seconds=4))
    assert is_due(world.session(), world.clock.advance(seconds=1))


def test_a_session_that_is_not_due_or_not_there_costs_no_call(world: World, model: ScriptedModel) -> None:
    world.turns(5)
    assert look(world) == 0
    assert world.remembering.remember(10**6) == 0
    assert model.asked == []
    assert Lease.select().count() == 0


# --- what a look writes ----------------------------------------------------------------------------------------------


def test_a_look_writes_memories_sources_states_and_the_window(world: World, model: ScriptedModel) -> None:
    turns = world.turns(4)
    end(world)
    model.script = [
        segments(skip(1), keep([2, 3], "ユーザーは富士通のPCを13万円で買った。", entities=["富士通"]), skip(4))
    ]
    assert look(world) == 1
    assert states() == ["skipped", "kept", "kept", "skipped"]
    memory = Memory.get()
    assert sources_of(memory) == [turns[1].id, turns[2].id]
    window = Window.get()
    assert memory.window_id == window.id
    assert (window.turn_ids, window.final, window.model) == ([turn.id for turn in turns], True, "scripted")
    assert window.prompt_version
    assert (window.compared, window.owner) == (False, "home")
    session = world.session()
    assert (session.looked_to, session.attempts, session.delays, session.retry_at) == (turns[3].id, 0, 0, None)
    assert world.queue.taken() == [Hint("index", "home")]


def test_a_look_that_keeps_nothing_leaves_nothing_to_compare(world: World, model: ScriptedModel) -> None:
    world.turns(2)
    end(world)
    model.script = [segments(skip(1, 2))]
    assert look(world) == 0
    assert states() == ["skipped", "skipped"]
    assert Window.get().compared
    assert world.queue.taken() == []


def test_the_model_is_shown_numbered_turns_with_their_times(world: World, model: ScriptedModel) -> None:
    world.turn("昨日PCを買った", "いいね", at=at("02 20:15"))
    world.turn("いくらだったっけ", "13万円", searched=True, memory_ids=["mem_x"])
    world.turn("ありがとう", "聞こえなかった", degraded=True)
    world.turn("あ" * 5000, "い" * 5000)
    end(world)
    model.script = [segments(skip(1, 2, 3, 4))]
    look(world)
    talk = model.prompts[0]
    assert (talk["session_ended"], talk["both_speakers"], talk["time_zone"]) == (True, False, "Asia/Tokyo")
    first, recalled, degraded, long = talk["turns"]
    assert first == {
        "turn_id": 1, "at": "2026-07-02T20:15:00+09:00", "day": "木", "user": "昨日PCを買った", "robot": "いいね",
    }  # fmt: skip
    assert recalled["recalled"] is True
    assert degraded["robot"] == ""
    assert (len(long["user"]), len(long["robot"])) == (1500, 1500)
    assert model.asked[0]["response_format"]["type"] == "json_schema"


def test_japanese_is_sent_unescaped(world: World, model: ScriptedModel) -> None:
    world.turn("富士通")
    end(world)
    model.script = [segments(skip(1))]
    look(world)
    assert "富士通" in model.asked[0]["messages"][1]["content"]


@pytest.mark.parametrize(
    ("user", "both", "words"),
    [
        ("こんにちは", False, "スタックチャンは"),
        ("hello", False, "スタックチャン"),
        ("こんにちは", True, "この記録は人間どうしの会話です"),
        ("hello", True, "two people"),
    ],
)
def test_the_prompt_fits_the_language_and_the_speakers(
    world: World, model: ScriptedModel, user: str, both: bool, words: str
) -> None:
    world.session(both_speakers=both)
    world.turn(user, "hello")
    end(world)
    model.script = [segments(skip(1))]
    look(world)
    system = model.asked[0]["messages"][0]["content"]
    assert words in system
    assert "$" not in system
    assert ("スタックチャン" in system) is not both
    assert ("会話" in system) is (user == "こんにちは")


# --- topics ----------------------------------------------------------------------------------------------------------


def test_while_the_session_lives_the_last_topic_stays_pending(world: World, model: ScriptedModel) -> None:
    turns = world.turns(6)
    model.script = [segments(keep([1, 2], "PCを買った。"), skip(3), keep([4, 5, 6], "旅行の話。"))]
    assert look(world) == 1
    assert states() == ["kept", "kept", "skipped", "pending", "pending", "pending"]
    assert summaries() == ["PCを買った。"]
    assert world.session().looked_to == turns[5].id


def test_the_open_topic_is_shown_again_with_the_turns_that_follow(world: World, model: ScriptedModel) -> None:
    world.turns(6)
    model.script = [
        segments(keep([1, 2], "PCを買った。"), keep([3, 4, 5, 6], "旅行の話。")),
        segments(keep([1, 2, 3, 4, 5], "旅行に行くことにした。")),
    ]
    look(world)
    assert look(world) == 0  # nothing new: no call
    world.turn("行くことにした")
    end(world)
    look(world)
    assert [turn["user"] for turn in model.prompts[1]["turns"]] == ["話3", "話4", "話5", "話6", "行くことにした"]
    assert summaries() == ["PCを買った。", "旅行に行くことにした。"]
    assert set(states()) == {"kept"}
    assert Window.select().count() == 2


def test_the_end_of_the_session_closes_the_open_topic_without_a_new_turn(world: World, model: ScriptedModel) -> None:
    world.turns(6)
    model.script = [segments(keep([1, 2, 3, 4, 5, 6], "旅行の話。"))] * 2
    look(world)
    assert states() == ["pending"] * 6
    end(world)
    assert look(world) == 1
    assert states() == ["kept"] * 6


def test_an_open_topic_of_twenty_turns_is_closed(world: World, model: ScriptedModel) -> None:
    model.script = lambda request: segments(
        keep([turn["turn_id"] for turn in json.loads(request["messages"][1]["content"])["turns"]], "長い話。")
    )
    for count in (6, 12, 18):
        world.turns(6)
        assert look(world) == 0
        assert states() == ["pending"] * count
    world.turns(6)
    assert look(world) == 1
    assert states() == ["kept"] * 24


def test_left_out_turns_are_skipped_before_the_last_topic_and_stay_after_it(world: World, model: ScriptedModel) -> None:
    world.turns(6)
    model.script = [segments(keep([2], "一つ。"), keep([4], "二つ。"))]
    look(world)
    assert states() == ["skipped", "kept", "skipped", "pending", "pending", "pending"]


def test_left_out_turns_are_skipped_at_the_end(world: World, model: ScriptedModel) -> None:
    world.turns(4)
    end(world)
    model.script = [segments(keep([2], "一つ。"))]
    look(world)
    assert states() == ["skipped", "kept", "skipped", "skipped"]


def test_a_turn_named_three_times_serves_three_memories_or_one_twice(world: World, model: ScriptedModel) -> None:
    turns = world.turns(2)
    end(world)
    model.script = [segments(keep([1, 1, 1], "犬がいる。"), keep([1, 2], "猫がいる。"), keep([2, 1], "鳥がいる。"))]
    assert look(world) == 3
    assert sorted(sources_of(memory) for memory in Memory.select()) == [
        [turns[0].id], [turns[0].id, turns[1].id], [turns[0].id, turns[1].id],
    ]  # fmt: skip
    assert len({memory.id for memory in Memory.select()}) == 3
    assert states() == ["kept", "kept"]


def test_a_turn_that_serves_the_last_topic_and_another_is_kept(world: World, model: ScriptedModel) -> None:
    world.turns(6)
    model.script = [segments(keep([1, 2, 3], "PCを買った。"), keep([3, 4], "旅行の話。"))]
    look(world)
    kept, pending = (
        [turn for turn in Turn.select() if turn.state == "kept"],
        Turn.select().where(Turn.state == "pending"),
    )
    assert [turn.ordinal for turn in kept][:3] == [1, 2, 3]
    assert {turn.ordinal for turn in pending} | {turn.ordinal for turn in kept} == set(range(1, 7))
    assert "PCを買った。" in summaries()
    for memory in Memory.select():  # whatever was kept was kept whole
        assert {Turn.get_by_id(n).state for n in sources_of(memory)} == {"kept"}


def segment(*numbers: int, kept: bool = True) -> Segment:
    return Segment(turn_ids=list(numbers), keep=kept, summary="x")


@pytest.mark.parametrize(
    ("given_", "count", "still_open"),
    [
        ([], 6, set()),
        ([segment(1, 2), segment(3, 4)], 4, {3, 4}),
        ([segment(3, 4), segment(1, 2)], 4, {3, 4}),
        ([segment(1, 6), segment(2, 3)], 6, {1, 6}),
        ([segment(1, 2, kept=False)], 5, {1, 2, 3, 4, 5}),
        ([segment(1, 2, 3), segment(3, 4, kept=False)], 4, {4}),
        ([segment(*range(1, OPEN_TOPIC))], OPEN_TOPIC - 1, set(range(1, OPEN_TOPIC))),
        ([segment(*range(1, OPEN_TOPIC + 1))], OPEN_TOPIC, set()),
    ],
)
def test_the_open_topic_is_the_last_ones_turns_and_those_after_it(
    given_: list[Segment], count: int, still_open: set[int]
) -> None:
    assert open_topic(given_, count) == still_open


# --- many turns ------------------------------------------------------------------------------------------------------


def test_a_look_takes_forty_turns_and_the_next_goes_on(world: World, model: ScriptedModel) -> None:
    world.turns(TURNS * 2 + 5)
    end(world)
    model.script = kept_all
    assert look(world) == TURNS * 2 + 5
    assert set(states()) == {"kept"}
    assert [prompt["session_ended"] for prompt in model.prompts] == [False, False, True]
    # One open topic goes over from look to look.
    assert [len(prompt["turns"]) for prompt in model.prompts] == [40, 40, 7]
    assert Window.select().count() == 3


def test_exactly_forty_turns_of_an_ended_session_are_one_final_look(world: World) -> None:
    world.turns(TURNS)
    assert next_look(end(world)).final
    world.turn("もう一つ")
    assert not next_look(world.session()).final


def test_two_hundred_segments_lose_no_turn(world: World, model: ScriptedModel) -> None:
    world.turns(10)
    end(world)
    model.script = [segments(*[keep([number % 12], f"話{number}。") for number in range(1, 201)])]
    look(world)
    assert states() == ["kept"] * 10
    assert Memory.select().count() == len({memory.id for memory in Memory.select()}) == 60


# --- empty and bad answers -------------------------------------------------------------------------------------------


def test_nothing_to_remember_must_be_said_twice(world: World, model: ScriptedModel) -> None:
    world.turns(2)
    end(world)
    model.script = [segments(), segments(keep([1, 2], "PCを買った。"))]
    assert look(world) == 1
    assert states() == ["kept", "kept"]


def test_nothing_said_twice_skips_the_turns(world: World, model: ScriptedModel) -> None:
    world.turns(2)
    end(world)
    model.script = [segments(), segments()]
    assert look(world) == 0
    assert states() == ["skipped", "skipped"]


def test_where_the_user_said_nothing_once_is_enough(world: World, model: ScriptedModel) -> None:
    world.turn("", "ぼくから話すよ")
    end(world)
    model.script = [segments()]
    look(world)
    assert (states(), len(model.asked)) == (["skipped"], 1)


def test_a_bad_answer_is_mended_in_the_same_look(world: World, model: ScriptedModel) -> None:
    world.turns(1)
    end(world)
    model.script = [BAD, segments(keep([1], "PCを買った。"))]
    assert look(world) == 1
    assert 'list "segments"' in model.asked[1]["messages"][-1]["content"]


def test_bad_answers_cost_attempts_with_growing_delays_and_then_the_turns_fail(
    world: World, model: ScriptedModel
) -> None:
    turns = world.turns(2)
    end(world)
    model.script = lambda _: BAD
    waits = []
    for attempt in range(1, 5):
        assert look(world) == 0
        session = world.session()
        assert (session.attempts, session.enqueued_at) == (attempt, None)
        assert states() == ["pending", "pending"]
        waits.append((session.retry_at - world.clock.now()).total_seconds())
        assert look(world) == 0  # not before its time
        world.clock.set(session.retry_at)
    assert waits == [5, 10, 20, 40]
    look(world)
    assert states() == ["failed", "failed"]
    assert len(model.asked) == 5 * 2
    session = world.session()
    assert (session.attempts, session.retry_at, session.looked_to) == (0, None, turns[-1].id)
    assert not is_due(session, world.clock.advance(hours=1))
    assert Window.select().count() == Memory.select().count() == 0


def test_after_failed_turns_the_next_ones_are_looked_at_afresh(world: World, model: ScriptedModel) -> None:
    world.turns(2)
    Session.update(attempts=4).execute()
    world.clock.advance(minutes=2)
    model.script = [BAD, BAD, segments(keep([1], "猫がいる。"))]
    look(world)
    assert states() == ["failed", "failed"]
    world.turn("猫がいる")
    end(world)
    assert look(world) == 1
    assert states() == ["failed", "failed", "kept"]


def test_a_good_answer_clears_the_attempts(world: World, model: ScriptedModel) -> None:
    world.turns(1)
    end(world)
    model.script = [BAD, BAD, segments(keep([1], "猫がいる。"))]
    look(world)
    world.clock.set(world.session().retry_at)
    look(world)
    assert (world.session().attempts, world.session().retry_at) == (0, None)


@pytest.mark.parametrize("status", [401, 402, 429, 500, 503])
def test_a_model_that_is_down_costs_only_delays_up_to_fifteen_minutes(
    world: World, model: ScriptedModel, status: int
) -> None:
    world.turns(2)
    end(world)
    model.script = lambda _: error(status, "no")
    waits = []
    for delays in range(1, 11):
        look(world)
        session = world.session()
        assert (session.attempts, session.delays) == (0, delays)
        waits.append((session.retry_at - world.clock.now()).total_seconds())
        world.clock.set(session.retry_at)
    assert waits == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]
    assert states() == ["pending", "pending"]
    model.script = kept_all
    assert look(world) == 2
    assert world.session().delays == 0


def test_a_model_that_hangs_is_down(world: World) -> None:
    with ScriptedServer([hang()]) as server:
        chat = OpenAIChat(server.base_url, "key", "scripted")
        slow = type(world.remembering)(chat, world.persona, world.clock, world.queue, world.remembering.zone, 0.2)
        world.turns(1)
        assert slow.remember(end(world).id) == 0
        chat.close()
    assert (world.session().delays, world.session().attempts, states()) == (1, 0, ["pending"])


def test_one_bad_session_never_blocks_another(world: World, model: ScriptedModel) -> None:
    world.turns(1, "bad")
    world.turns(1, "good")
    for name in ("bad", "good"):
        end(world, name)
    world.turn("毒", session="bad")

    def script(request: Any) -> Answer:
        return BAD if "毒" in request["messages"][1]["content"] else kept_all(request)

    model.script = script
    world.settle()
    assert {turn.session.name: turn.state for turn in Turn.select()} == {"bad": "pending", "good": "kept"}
    for _ in range(5):
        world.clock.advance(minutes=15)
        world.settle()
    assert {turn.session.name: turn.state for turn in Turn.select()} == {"bad": "failed", "good": "kept"}


# --- two workers -----------------------------------------------------------------------------------------------------


def meanwhile(database: Any, model: ScriptedModel, what: Callable[[], Any], answer: Answer) -> list[Any]:
    """Do something over another connection while the model thinks; return a list that gets its result."""
    results: list[Any] = []

    def script(_: Any) -> Answer:
        with database.connection_context():
            results.append(what())
        return answer

    model.script = script
    return results


def test_of_two_workers_one_looks_at_a_session(world: World, model: ScriptedModel, database: Any) -> None:
    world.turns(1)
    end(world)
    second = meanwhile(database, model, lambda: look(world), segments(keep([1], "猫がいる。")))
    assert look(world) == 1
    assert second == [0]
    assert (len(model.asked), Memory.select().count()) == (1, 1)


def steal() -> None:
    Lease.update(holder="another worker").execute()


@pytest.mark.parametrize("answer", [segments(keep([1], "猫がいる。")), BAD])
def test_a_worker_that_lost_its_lease_writes_nothing(
    world: World, model: ScriptedModel, database: Any, answer: Answer
) -> None:
    world.turns(1)
    end(world)
    meanwhile(database, model, steal, answer)
    with pytest.raises(Conflict):
        look(world)
    assert states() == ["pending"]
    assert Memory.select().count() == Window.select().count() == 0
    assert world.session().attempts == 0


def test_a_turn_said_during_a_look_waits_for_the_next(world: World, model: ScriptedModel, database: Any) -> None:
    world.turns(6)
    Session.update(look_due=True).execute()

    def script(_: Any) -> Answer:
        if len(model.asked) == 1:
            with database.connection_context():
                world.turn("あとから")
        return segments(skip(1, 2, 3), skip(4, 5, 6))

    model.script = script
    look(world)
    assert states()[-1] == "pending"
    assert len(model.prompts) == 2  # it was due at once: another session of the owner had begun
    assert model.prompts[1]["turns"][-1]["user"] == "あとから"


def test_a_look_asked_for_is_done_with_when_nothing_came_since(world: World, model: ScriptedModel) -> None:
    world.turns(2)
    Session.update(look_due=True).execute()
    model.script = [segments(keep([1], "猫がいる。"), skip(2))]
    look(world)
    assert not world.session().look_due
    assert states() == ["kept", "pending"]


# --- any answer ------------------------------------------------------------------------------------------------------


def test_a_hallucinated_memory_of_nothing_is_asked_again(world: World, model: ScriptedModel) -> None:
    world.turns(1)
    end(world)
    model.script = [segments(keep([77], "火星に行った。")), segments(keep([1], "猫がいる。"))]
    look(world)
    assert summaries() == ["猫がいる。"]


PIECES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "turn_ids": st.lists(st.integers(-1, 9) | st.text(max_size=2), max_size=8) | st.integers() | st.none(),
            "keep": st.booleans() | st.sampled_from(["true", "no", None, 1]),
            "topic": st.text() | st.none(),
            "summary": st.text() | st.none(),
            "entities": st.lists(st.text()) | st.text() | st.none(),
            "memory_type": st.sampled_from(["episode", "decision", "preference", "wish", None]),
            "occurred_at": st.sampled_from(["2026-07-01", "昨日", "", None, "0001-01-01", "9999-12-31"]),
            "occurred_to": st.sampled_from(["2026-07-02", "x", None]),
        },
    ),
    max_size=5,
).map(lambda items: json.dumps({"segments": items}))
ANSWERS = st.text(st.characters(exclude_categories=())) | PIECES


@given(st.lists(ANSWERS, min_size=1, max_size=4), st.integers(1, 8), st.booleans())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_answer_whatever_loses_a_turn(
    world: World, model: ScriptedModel, answers: list[str], count: int, ended: bool
) -> None:
    name = f"s{Session.select().count()}"
    turns = world.turns(count, name)
    model.script = lambda _: content(answers[len(model.asked) % len(answers)])
    if ended:
        end(world, name)
    for _ in range(6):
        look(world, name)
        world.clock.advance(minutes=15)
    rows = list(Turn.select().where(Turn.session == turns[0].session_id))
    assert len(rows) == count
    sources = {n for memory in Memory.select() for n in sources_of(memory)}
    for row in rows:
        assert row.state in (("kept", "skipped", "failed") if ended else ("pending", "kept", "skipped", "failed"))
        assert (row.state == "kept") == (row.id in sources)
    assert sum(row.state == "pending" for row in rows) < OPEN_TOPIC
    assert again(turns[0]).user == "話1"


def test_the_end_of_a_session_asks_nothing_that_was_asked(world: World, model: ScriptedModel) -> None:
    world.turns(6)
    model.script = [segments(keep([1, 2], "一つ。"), keep([3, 4, 5], "二つ。", entities=["二"]), skip(6))]
    look(world)
    assert states() == ["kept", "kept", "kept", "kept", "kept", "pending"]
    world.turns(2, state="skipped")
    model.script = [*model.script, segments(keep([1], "三つ。"))]
    world.turn("三つ目の話")
    world.clock.advance(minutes=3)
    look(world)
    assert len(model.asked) == 2
    world.clock.advance(minutes=11)
    end(world)
    look(world)
    assert len(model.asked) == 2  # nothing was said since: the last look's words stand
    assert states()[-1] in ("kept", "skipped")
    assert set(summaries()) >= {"一つ。", "二つ。"}
    assert not Turn.select().where(Turn.state == "pending").exists()
    assert world.session().open_topic is None


def test_what_was_said_of_the_open_topic_becomes_its_memory_at_the_end(world: World, model: ScriptedModel) -> None:
    world.turns(6)
    opened = keep([4, 5, 6], "続く話。", entities=["話"], memory_type="decision", occurred_at="2026-08-01")
    model.script = [segments(skip(1, 2, 3), opened)] * 2
    look(world)
    assert states() == ["skipped"] * 3 + ["pending"] * 3
    end(world)
    assert look(world) == 1
    memory = Memory.get()
    assert (memory.summary, memory.memory_type, memory.entities) == ("続く話。", "decision", ["話"])
    assert sources_of(memory) == [4, 5, 6]
    assert len(model.asked) == 1
    before = everything()
    rebuild_from_turns(world.remembering)
    assert len(model.asked) == 1 + 1  # the same one call, and the end again without one
    look(world)
    assert everything()[:4] == before[:4]


def test_a_new_turn_makes_the_end_ask_again(world: World, model: ScriptedModel) -> None:
    world.turns(6)
    model.script = [segments(skip(1, 2, 3), keep([4, 5, 6], "続く話。")), segments(keep([1, 2, 3, 4], "全部の話。"))]
    look(world)
    world.turn("まだ続くよ")
    end(world)
    look(world)
    assert summaries() == ["全部の話。"]


def test_a_look_sees_what_was_said_just_before(world: World, model: ScriptedModel) -> None:
    world.turns(5, state="kept")
    world.turn("それ、13万だった")
    end(world)
    model.script = [segments(keep([1], "13万円だった。"))]
    look(world)
    (prompt,) = model.prompts
    assert [line["user"] for line in prompt["before"]] == ["話3", "話4", "話5"]
    assert all("turn_id" not in line for line in prompt["before"])
    assert [line["turn_id"] for line in prompt["turns"]] == [1]
    assert sources_of(Memory.get()) == [6]


def test_the_one_turn_a_service_will_not_read_fails_alone(world: World, model: ScriptedModel) -> None:
    def script(request: Any) -> Answer:
        shown = json.loads(request["messages"][1]["content"])
        if "毒" in json.dumps(shown, ensure_ascii=False):
            return error(400, {"error": {"code": "data_inspection_failed", "message": "inappropriate content"}})
        return segments(*[keep([turn["turn_id"]], f"{turn['user']}。") for turn in shown["turns"]])

    model.script = script
    texts = [f"話{number}" for number in range(10)]
    texts[6] = "毒のある話"
    for text in texts:
        world.turn(text)
    end(world)
    look(world)
    assert states() == ["kept"] * 6 + ["failed"] + ["kept"] * 3
    assert sorted(summaries()) == sorted(f"{text}。" for text in texts if text != "毒のある話")
    assert len(model.asked) <= 2 * 4 + 1  # halved until it is found, and never asked again
    assert again(world.session()).attempts == 0


def test_turns_said_after_a_bad_look_do_not_fail_with_it(world: World, model: ScriptedModel) -> None:
    def script(request: Any) -> Answer:
        first = json.loads(request["messages"][1]["content"])["turns"][0]["user"]
        return BAD if first == "変な話" else segments(keep([1], "無事な話。"))

    model.script = script
    world.turn("変な話")
    world.turns(5)
    look(world)
    for number in range(1, 5):
        world.turn(f"あとの話{number}")
        world.clock.advance(minutes=5)
        look(world)
    assert states() == ["failed"] * 6 + ["pending"] * 4
    end(world)
    look(world)
    assert states() == ["failed"] * 6 + ["kept"] + ["skipped"] * 3
    assert summaries() == ["無事な話。"]


def test_bad_answers_around_a_refused_turn_end_too(world: World, model: ScriptedModel) -> None:
    """The service refuses one turn and answers rubbish to the others: nothing waits for ever."""

    def script(request: Any) -> Answer:
        if "毒" in request["messages"][1]["content"]:
            return error(400, {"error": {"code": "data_inspection_failed", "message": "inappropriate content"}})
        return BAD

    model.script = script
    for text in ("話1", "話2", "毒のある話", "話3"):
        world.turn(text)
    end(world)
    for _ in range(40):
        look(world)
        world.clock.advance(minutes=16)
    assert states() == ["failed"] * 4
