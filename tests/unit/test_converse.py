"""One live turn: the words stored before anything else, the answer stored before it is given."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stackmem.converse import POLL, Conversation, Said, give_up_open_turns
from stackmem.exceptions import Conflict, InvalidInput
from stackmem.models import Session, Turn
from stackmem.ports import Hint
from tests.fakes import FixedClock
from tests.scripted import call, content, say
from tests.unit.conftest import ScriptedModel
from tests.unit.world import TURN_TIMEOUT_S, World, again, at

YES = say("うん")


def in_a_thread(database: Any, work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Begin to work over a connection of its own; the list gets what it returns or raises."""
    outcome: list[Any] = []

    def run() -> None:
        with database.connection_context():
            try:
                outcome.append(work())
            except Exception as exc:
                outcome.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


# --- what is stored --------------------------------------------------------------------------------------------------


def test_the_words_are_stored_before_the_model_is_asked(world: World, model: ScriptedModel, database: Any) -> None:
    def script(_: Any) -> Any:
        with database.connection_context():
            seen.extend((turn.user, turn.state, turn.reply) for turn in Turn.select())
        return YES

    seen: list[tuple[str, str, str]] = []
    model.script = script
    turn = world.say("昨日富士通のPCを買ったよ")
    assert seen == [("昨日富士通のPCを買ったよ", "open", "")]
    stored = again(turn)
    assert (stored.state, stored.reply, stored.ordinal, stored.session.name) == ("pending", "うん", 1, "s")
    assert stored.at == stored.received_at == world.clock.now()
    assert len(stored.uid) == 32


@pytest.mark.parametrize("text", ["", " ", "\n\t　"])
def test_empty_words_are_refused_and_nothing_is_stored(world: World, text: str) -> None:
    with pytest.raises(InvalidInput, match="The text is empty"):
        world.say(text)
    assert Turn.select().count() == Session.select().count() == 0


def test_nul_and_lone_surrogates_are_replaced_everywhere(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: content('{"reply": "い\\u0000\\ud800", "emotion": "\\ud800", "action": "\\u0000"}')
    turn = world.say("あ\x00\ud800", session="s\x00\ud800", key="k\ud800")
    assert again(turn).user == "あ\ufffd\ufffd"
    assert again(turn).reply == "い\ufffd\ufffd"
    assert again(turn).session.name == "s\ufffd\ufffd"
    assert (turn.emotion, turn.action) == ("neutral", "none")


def test_long_words_are_stored_whole_though_the_model_sees_a_part(world: World, model: ScriptedModel) -> None:
    model.script = [YES]
    words = "長い話。" * 25_000
    assert again(world.say(words)).user == words
    assert len(model.asked[0]["messages"][-1]["content"]) < 2000


def test_unknown_emotions_and_actions_become_neutral_and_none(world: World, model: ScriptedModel) -> None:
    model.script = [say("はい", "ecstatic", "servo(90)"), say("はい", "sad", "tilt"), say("はい", "SAD", " nod ")]
    turns = [world.say("あ") for _ in range(3)]
    assert [(turn.emotion, turn.action) for turn in turns] == [("neutral", "none"), ("sad", "tilt"), ("sad", "nod")]


def test_a_reply_without_end_is_cut_at_a_sentence(world: World, model: ScriptedModel) -> None:
    model.script = [say("とても長い返事だよ。" * 100)]
    reply = world.say("話して").reply
    assert len(reply) <= world.persona.reply_characters * 3
    assert reply.endswith("。")


def test_what_was_said_earlier_may_be_told_and_orders_nothing(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: YES
    earlier = world.say("きのうの話", at=at("22 09:00"))
    assert (earlier.at, earlier.received_at) == (at("22 09:00"), world.clock.now())
    assert "2026-07-22T09:00:00+09:00" in model.asked[0]["messages"][0]["content"]


@pytest.mark.parametrize(("ahead", "refused"), [(timedelta(minutes=5), False), (timedelta(minutes=5, seconds=1), True)])
def test_a_clients_clock_may_be_five_minutes_ahead(
    world: World, model: ScriptedModel, ahead: timedelta, refused: bool
) -> None:
    model.script = [YES]
    if refused:
        with pytest.raises(InvalidInput, match="at most 5 minutes ahead"):
            world.say("あ", at=world.clock.now() + ahead)
        assert not Turn.select().exists()
    else:
        assert world.say("あ", at=world.clock.now() + ahead).state == "pending"


def test_turns_of_one_session_follow_each_other(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: YES
    turns = [world.say(text) for text in ("一", "二", "三")]
    assert [turn.ordinal for turn in turns] == [1, 2, 3]
    assert len({turn.session_id for turn in turns}) == 1
    assert len({turn.uid for turn in turns}) == 3
    assert [message["content"] for message in model.asked[2]["messages"] if message["role"] == "user"] == [
        "一", "二", "三",
    ]  # fmt: skip


def test_the_idle_limit_counts_from_when_it_was_received_not_said(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: YES
    first = world.say("あ", at=at("01 00:00"))
    world.clock.advance(minutes=9)
    assert world.say("い").session_id == first.session_id
    world.clock.advance(minutes=10)
    third = world.say("う", at=at("01 00:01"))
    assert (third.session.name, third.session.seq) == ("s", 2)


def test_owners_never_see_each_others_turns(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: YES
    world.say("秘密だよ", session=None)
    world.say("こんにちは", session=None, owner="mari")
    assert "秘密" not in str(model.asked[1]["messages"])


# --- a retry ---------------------------------------------------------------------------------------------------------


def test_the_same_key_gets_the_stored_answer(world: World, model: ScriptedModel) -> None:
    model.script = [say("一回目"), say("二回目")]
    first, second = world.say("あ", key="k"), world.say("あ", key="k")
    assert (second.id, second.reply) == (first.id, "一回目")
    assert (Turn.select().count(), len(model.asked)) == (1, 1)


@pytest.mark.parametrize("other", [{"owner": "mari"}, {"device": "kitchen"}, {"key": "l"}, {"key": None}, {"key": ""}])
def test_a_key_counts_for_its_owner_and_device_alone(world: World, model: ScriptedModel, other: dict[str, Any]) -> None:
    model.script = lambda _: YES
    first = world.say("あ", session=None, key="k", device="robot")
    second = world.say("あ", **{"session": None, "key": "k", "device": "robot", **other})
    assert second.id != first.id


def test_an_empty_session_name_is_none(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: YES
    first, second = world.say("あ", session=""), world.say("い", session=None)
    assert first.session_id == second.session_id
    assert not first.session.named


def test_a_key_has_at_most_200_characters(world: World) -> None:
    with pytest.raises(InvalidInput, match="An Idempotency-Key has at most 200 characters"):
        world.say("あ", key="k" * 201)
    assert not Turn.select().exists()


class Watched(FixedClock):
    """A clock that notes when it was asked the second time in one thread but the first."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.asked, self.waits = threading.get_ident(), 0, threading.Event()

    def now(self) -> datetime:
        if threading.get_ident() != self.main:
            self.asked += 1
            if self.asked >= 3:  # once to open the turn, then at every look at it
                self.waits.set()
        return super().now()


def test_a_retry_during_the_answer_waits_for_it(
    world: World, model: ScriptedModel, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Watched()
    conversation = replace(world.conversation, clock=clock)
    retries: list[tuple[threading.Thread, list[Any]]] = []

    def script(_: Any) -> Any:
        retries.append(in_a_thread(database, lambda: conversation.turn(Said("home", "あ", "s", key="k"))))
        assert clock.waits.wait(10)
        return YES

    monkeypatch.setattr("stackmem.converse.POLL", 0.001)
    model.script = script
    first = conversation.turn(Said("home", "あ", "s", key="k"))
    ((thread, outcome),) = retries
    thread.join()
    assert (outcome[0].id, outcome[0].reply, outcome[0].state) == (first.id, "うん", "pending")
    assert len(model.asked) == 1
    assert POLL < 1


def open_turn(world: World, key: str) -> Turn:
    """A turn that a request began to answer and left."""
    conversation: Conversation = world.conversation
    turn, is_new = conversation.begin(Said("home", "あ", "s", key=key))
    assert is_new
    return turn


def test_a_retry_takes_over_a_turn_whose_request_died(world: World, model: ScriptedModel) -> None:
    model.script = [say("代わりに答えるよ")]
    dead = open_turn(world, "k")
    world.clock.advance(seconds=TURN_TIMEOUT_S + 1)
    taken = world.say("あ", key="k")
    assert (taken.id, taken.reply, again(dead).state) == (dead.id, "代わりに答えるよ", "pending")
    assert Turn.select().count() == 1


def test_a_retry_gives_up_waiting_at_its_own_deadline(world: World) -> None:
    dead = open_turn(world, "k")
    with pytest.raises(Conflict, match="still being answered"):
        replace(world.conversation, turn_timeout_s=0.0).turn(Said("home", "あ", "s", key="k"))
    assert again(dead).state == "open"


def test_of_two_that_answer_the_same_turn_the_first_stands(world: World, model: ScriptedModel, database: Any) -> None:
    def script(_: Any) -> Any:
        with database.connection_context():
            if len(model.asked) == 1:
                world.clock.advance(seconds=TURN_TIMEOUT_S + 1)
                taken.append(world.say("あ", key="k"))
                return say("遅かった")
        return say("早かった")

    taken: list[Turn] = []
    model.script = script
    late = world.say("あ", key="k")
    assert (late.id, late.reply, taken[0].reply) == (taken[0].id, "早かった", "早かった")
    assert again(late).reply == "早かった"


def test_an_apology_does_not_wear_the_face_of_an_answer_without_words(world: World, model: ScriptedModel) -> None:
    model.script = [content('{"reply": null, "emotion": "happy", "action": "nod"}')]
    turn = world.say("あ")
    assert (turn.degraded, turn.reply) == (True, world.persona.fallback_line(turn.id))
    assert (turn.emotion, turn.action) == ("neutral", "none")


def test_a_turn_given_up_by_the_sweep_keeps_its_fallback_line(
    world: World, model: ScriptedModel, database: Any
) -> None:
    def script(_: Any) -> Any:
        with database.connection_context():
            world.clock.advance(seconds=2 * TURN_TIMEOUT_S + 1)
            world.work.sweep()
        return say("遅かった")

    model.script = script
    turn = world.say("あ")
    assert turn.reply == world.persona.fallback_line(turn.id)
    assert (turn.degraded, turn.state) == (True, "pending")


def test_only_open_turns_older_than_the_limit_are_given_up(world: World) -> None:
    old, limit = world.turn("古い", "", state="open"), timedelta(seconds=20)
    world.clock.advance(seconds=20)
    young, answered = world.turn("新しい", "", state="open"), world.turn("済み", "はい")
    assert give_up_open_turns(world.clock.now(), limit, world.persona.fallback_line) == 0
    assert give_up_open_turns(world.clock.advance(seconds=1), limit, world.persona.fallback_line) == 1
    assert (again(old).state, again(old).degraded, again(old).reply) == (
        "pending", True, world.persona.fallback_line(old.id),
    )  # fmt: skip
    assert (again(young).state, again(answered).reply) == ("open", "はい")


# --- what a turn makes due -------------------------------------------------------------------------------------------


def test_the_sixth_turn_not_looked_at_makes_a_look_due(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: YES
    for number in range(5):
        world.say(f"話{number}")
    assert world.queue.taken() == []
    turn = world.say("話5")
    assert world.queue.taken() == [Hint("remember", turn.session_id)]
    assert again(turn).session.enqueued_at == world.clock.now()


def test_turns_that_were_looked_at_do_not_count(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: YES
    turns = [world.say(f"話{number}") for number in range(5)]
    Session.update(looked_to=turns[-1].id).execute()
    for number in range(5):
        world.say(f"続き{number}")
    assert world.queue.taken() == []
    world.say("続き5")
    assert len(world.queue.taken()) == 1


def test_another_session_of_the_owner_makes_a_look_due(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: YES
    first = world.say("富士通のPCを買った", session="a")
    world.say("こんにちは", session="m", owner="mari")
    assert world.queue.taken() == []
    world.say("おはよう", session="b")
    assert world.queue.taken() == [Hint("remember", first.session_id)]
    world.say("いい天気", session="b")
    assert world.queue.taken() == []


def test_a_searched_turn_names_each_memory_once_and_no_waiting_turn(world: World, model: ScriptedModel) -> None:
    memory = world.memory("ユーザーは富士通のPCを13万円で買った。")
    world.turn("富士通のPCの電源が壊れた", session="b")
    world.indexed()
    model.script = [
        call("search_memory", {"query": "富士通のPC"}),
        call("search_memory", {"query": "富士通のPCの値段"}),
        YES,
    ]
    assert world.say("いくらだったっけ").memory_ids == [memory.id]


ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_words_and_any_answer_give_a_stored_turn(
    world: World, model: ScriptedModel, words: str, answer: str, name: str
) -> None:
    model.script = lambda _: content(answer)
    before = Turn.select().count()
    try:
        turn = world.say(words, session=name[:200] or None)
    except InvalidInput:
        assert Turn.select().count() == before
        return
    stored = again(turn)
    assert stored.state == "pending"
    assert stored.reply
    assert stored.emotion in world.persona.emotions
    assert stored.action in world.persona.actions
