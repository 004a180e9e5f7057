"""Every live turn is judged once: whatever fails, comes twice or is forgotten meanwhile."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evals.allowance import Allowance, Metered
from evals.judge.turn import PROMPT_VERSION
from evals.live import BATCH, LiveScoring, Outcome
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.asking import ATTEMPTS
from stackmem.bootstrap import build
from stackmem.config import load_settings
from stackmem.database import lease
from stackmem.exceptions import Conflict
from stackmem.forgetting import forget, purge_due
from stackmem.models import Lease, Turn, proxy
from stackmem.ports import ChatAnswer, ChatRequest
from stackmem.score_models import JudgeDay, Label, Score
from tests.scripted import Answer, content, error
from tests.unit.conftest import ScriptedModel
from tests.unit.test_allowance import REFUSED
from tests.unit.world import ZONE, World, again

BAD = content("さあ")


def said(needed: bool, right: list[int] | None = None, reason: str = "理由") -> Answer:
    return content(json.dumps({"needed": needed, "right": right, "reason": reason}, ensure_ascii=False))


def scoring(world: World, chat: Any, per_day: int = 1000) -> LiveScoring:
    allowance = Allowance(per_day, world.clock, ZONE)
    return LiveScoring(Metered(chat, allowance), allowance, world.embedder, world.clock, ZONE, 5.0)


@pytest.fixture
def judging(world: World, chat: OpenAIChat, model: ScriptedModel) -> LiveScoring:
    """Scoring by the scripted model; it says that no memory was needed until a test says otherwise."""
    model.script = lambda request: said(False)
    return scoring(world, chat)


def live(world: World, user: str = "富士通のPCはいくらだった？", **more: Any) -> Turn:
    return world.turn(user, **{"model": "qwen", **more})


def labels() -> list[tuple[int, str]]:
    return [(row.turn_id, row.state) for row in Label.select().order_by(Label.turn)]


def meanwhile(answer: Answer, what: Callable[[], object]) -> Callable[[Any], Answer]:
    """Answer after something was done to the store in another thread, as a server's other threads do."""

    def answering(request: Any) -> Answer:
        with proxy.obj.connection_context():
            what()
        return answer

    return answering


# --- one turn --------------------------------------------------------------------------------------------------------


def test_a_label_holds_what_the_judge_said_of_which_memories(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    right, other = world.memory("富士通のPCを13万円で買った。"), world.memory("猫の名前はモモ。")
    world.indexed()
    model.script = [said(True, [1], "値段を聞いている。")]
    turn = live(world, searched=True, memory_ids=[right.id])
    assert judging.run() == Outcome(1)
    row = Label.get()
    assert (row.turn_id, row.owner, row.state, row.judge) == (turn.id, "home", "judged", "scripted")
    assert (row.needed, row.found, row.searched) == (True, True, True)
    assert row.right_ids == [right.id]
    assert set(row.shown_ids) == {right.id, other.id}
    assert (row.reason, row.prompt_version, row.created_at) == ("値段を聞いている。", PROMPT_VERSION, world.clock.now())


def test_a_turn_is_judged_once_however_often_the_task_comes(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    turns = [live(world) for _ in range(3)]
    assert [judging.run().judged for _ in range(3)] == [3, 0, 0]
    assert labels() == [(turn.id, "judged") for turn in turns]
    assert len(model.asked) == JudgeDay.get().calls == 3


def test_tasks_at_the_same_time_judge_a_turn_once(world: World, judging: LiveScoring, model: ScriptedModel) -> None:
    for _ in range(4):
        live(world)
    outcomes: list[int] = []

    def work() -> None:
        with proxy.obj.connection_context():
            outcomes.append(judging.run().judged)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    judging.run()
    assert labels() == [(number, "judged") for number in (1, 2, 3, 4)]
    assert len(model.asked) == 4
    assert sum(outcomes) <= 4


def test_a_run_judges_so_many_turns_and_the_next_one_goes_on(world: World, judging: LiveScoring) -> None:
    for _ in range(BATCH + 3):
        live(world)
    assert [judging.run().judged for _ in range(2)] == [BATCH, 3]
    assert Score.select().where(Score.size == 10).count() == 5
    assert Score.select().where(Score.size == 50).count() == 1


def test_a_power_cut_after_the_answer_costs_one_call_and_no_label(
    world: World, judging: LiveScoring, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = live(world)

    class PowerCut(BaseException):
        pass

    def cut(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(LiveScoring, "_write", cut)
        with pytest.raises(PowerCut):
            judging.run()
    assert labels() == []
    assert judging.run() == Outcome(1)
    assert labels() == [(turn.id, "judged")]
    assert JudgeDay.get().calls == 2


def test_a_lease_lost_while_the_judge_thought_leaves_no_label(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    live(world)
    model.script = meanwhile(said(False), lambda: Lease.delete().execute())
    with pytest.raises(Conflict):
        judging.run()
    assert labels() == []


def test_a_turn_that_another_worker_holds_is_left_to_it(world: World, judging: LiveScoring) -> None:
    turn = live(world)
    with lease(f"judge:{turn.id}", world.clock):
        assert judging.run() == Outcome(0)
    assert judging.run() == Outcome(1)


# --- when not --------------------------------------------------------------------------------------------------------


def test_nothing_is_judged_while_somebody_waits_for_an_answer(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    live(world)
    waiting = live(world, state="open")
    assert judging.run() == Outcome(0, "Somebody waits for an answer.")
    assert model.asked == []
    Turn.update(state="pending").where(Turn.id == waiting.id).execute()
    assert judging.run() == Outcome(2)


def test_somebody_who_begins_to_talk_stops_the_rest(world: World, judging: LiveScoring, model: ScriptedModel) -> None:
    for _ in range(3):
        live(world)
    model.script = meanwhile(said(False), lambda: live(world, "ねえ", state="open"))
    assert judging.run() == Outcome(1, "Somebody waits for an answer.")


def test_turns_of_the_offline_model_ask_no_judge(offline: World, chat: OpenAIChat, model: ScriptedModel) -> None:
    assert offline.say("富士通のPCはいくらだった？").model == "offline"
    assert scoring(offline, chat).run() == Outcome(0)
    assert model.asked == []


def test_the_day_s_calls_end_and_the_next_day_goes_on(world: World, chat: OpenAIChat, model: ScriptedModel) -> None:
    model.script = lambda request: said(False)
    few = scoring(world, chat, per_day=2)
    for _ in range(5):
        live(world)
    done = few.run()
    assert done.judged == 2
    assert "STACKMEM_JUDGE_CALLS_PER_DAY" in done.stopped
    assert few.run().judged == 0
    world.clock.advance(days=1)
    assert few.run().judged == 2
    world.clock.advance(days=1)
    assert few.run() == Outcome(1)
    assert labels() == [(number, "judged") for number in range(1, 6)]


def test_a_repair_that_the_day_does_not_allow_waits_for_the_next(
    world: World, chat: OpenAIChat, model: ScriptedModel
) -> None:
    live(world)
    model.script = [BAD, said(False)]
    assert scoring(world, chat, per_day=1).run().judged == 0
    assert labels() == [(1, "waiting")]
    world.clock.advance(days=1)
    assert scoring(world, chat, per_day=1).run().judged == 1


def test_one_call_a_day_gets_past_a_turn_that_is_always_answered_badly(
    world: World, chat: OpenAIChat, model: ScriptedModel
) -> None:
    bad = live(world, "さいしょ")
    live(world, "つぎ")
    model.script = [*[BAD] * ATTEMPTS, said(False)]
    for _ in range(ATTEMPTS + 1):
        scoring(world, chat, per_day=1).run()
        world.clock.advance(days=1)
    assert labels() == [(bad.id, "unjudgeable"), (bad.id + 1, "judged")]


def test_turns_wait_for_the_vectors_of_memories_that_existed_and_hold_up_nobody_else_s(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    world.memory("猫の名前はモモ。")
    ours, theirs = live(world), live(world, owner="mari", session="m")
    done = judging.run()
    assert done.judged == 1
    assert "no vectors of this embedder yet" in done.stopped
    assert labels() == [(theirs.id, "judged")]
    world.indexed()
    assert judging.run() == Outcome(1)
    assert labels() == [(ours.id, "judged"), (theirs.id, "judged")]
    assert Label.get_by_id(ours.id).shown_ids


# --- a judge that fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [error(503, "down"), error(401, "wrong key"), error(429, "over quota")])
def test_a_judge_that_does_not_answer_is_asked_later_and_no_turn_is_blamed(
    world: World, judging: LiveScoring, model: ScriptedModel, failure: Answer
) -> None:
    for _ in range(3):
        live(world)
    model.script = lambda request: failure
    assert judging.run().stopped.startswith("The judge did not answer: ")
    asked = len(model.asked)
    assert judging.run() == Outcome(0, "The judge did not answer a moment ago.")
    assert len(model.asked) == asked
    assert labels() == []
    world.clock.advance(seconds=5)
    model.script = lambda request: said(False)
    assert judging.run() == Outcome(3)


def test_answers_that_stay_bad_make_a_turn_unjudgeable_and_stop_no_other(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    bad, good = live(world, "だめな話"), live(world, "いい話")

    def script(request: Any) -> Answer:
        return BAD if "だめな話" in json.loads(request["messages"][1]["content"])["user"] else said(False)

    model.script = script
    for attempt, wait_s in enumerate((5, 10, 20, 40), 1):
        judging.run()
        assert labels() == [(bad.id, "waiting"), (good.id, "judged")]
        assert Label.get_by_id(bad.id).attempts == attempt
        assert judging.run() == Outcome(0)
        world.clock.advance(seconds=wait_s)
    judging.run()
    assert labels() == [(bad.id, "unjudgeable"), (good.id, "judged")]
    assert Label.get_by_id(bad.id).attempts == ATTEMPTS
    asked = len(model.asked)
    world.clock.advance(days=1)
    judging.run()
    assert len(model.asked) == asked == 2 * ATTEMPTS + 1


def test_a_turn_that_was_answered_badly_can_be_judged_after_all(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    turn = live(world)
    model.script = [BAD, BAD, BAD, said(False)]
    assert judging.run() == Outcome(0)
    world.clock.advance(seconds=5)
    assert judging.run() == Outcome(1)
    assert labels() == [(turn.id, "judged")]
    assert Label.get().retry_at is None


def test_words_that_the_service_will_not_read_are_not_sent_again(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    turn = live(world)
    model.script = [REFUSED]
    assert judging.run() == Outcome(0)
    assert labels() == [(turn.id, "unjudgeable")]
    world.clock.advance(days=1)
    assert judging.run() == Outcome(0)


# --- forgetting ------------------------------------------------------------------------------------------------------

SECRET = "合言葉は紫キャベツ42"


def stored() -> str:
    tables = [table for table in proxy.obj.get_tables() if not table.startswith("sqlite_")]
    return repr([proxy.execute_sql(f'SELECT * FROM "{table}"').fetchall() for table in tables])


@pytest.mark.parametrize("turns", [False, True])
def test_what_the_judge_wrote_of_a_forgotten_memory_goes_with_it(
    world: World, judging: LiveScoring, model: ScriptedModel, turns: bool
) -> None:
    memory = world.memory(SECRET)
    world.memory("猫の名前はモモ。", owner="mari", session="m")
    world.indexed()
    world.indexed("mari")
    model.script = lambda request: said(True, [1] if "紫" in str(request) else [], "合言葉は紫キャベツだから")
    about = live(world, "合言葉なんだっけ", searched=True, memory_ids=[memory.id])
    near = live(world, "覚えてる？", session="old")  # the source turn is in its context
    theirs = live(world, "覚えてる？", session="m", owner="mari")
    assert judging.run() == Outcome(3)
    forget("home", [memory.id], world.clock.now(), turns=turns, at_once=True)
    purge_due(world.clock.now())
    rows = {row.turn_id: row for row in Label.select()}
    assert (rows[about.id].reason, rows[near.id].reason) == ("", "")
    assert rows[theirs.id].reason
    assert (rows[about.id].needed, rows[about.id].found) == (True, True)  # the count stays
    Label.delete().where(Label.owner == "mari").execute()
    assert ("紫キャベツ" in stored()) is not turns  # its words in the talk stay where they were not asked to go


def test_a_turn_that_is_forgotten_while_the_judge_thinks_gets_no_label(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    turn = live(world, state="kept")
    memory = world.memory_of([turn], SECRET)
    world.indexed()
    model.script = meanwhile(
        said(True, [], SECRET), lambda: forget("home", [memory.id], world.clock.now(), turns=True, at_once=True)
    )
    judging.run()
    assert again(turn).settled
    assert labels() == []


def test_a_memory_that_is_forgotten_while_the_judge_thinks_takes_the_reason_with_it(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    memory = world.memory(SECRET)
    world.indexed()
    live(world, "合言葉なんだっけ")

    def forgotten() -> None:
        forget("home", [memory.id], world.clock.now(), at_once=True)
        purge_due(world.clock.now())

    model.script = meanwhile(said(True, [1], SECRET), forgotten)
    assert judging.run() == Outcome(1)
    assert (Label.get().reason, Label.get().needed) == ("", True)


# --- by a command ----------------------------------------------------------------------------------------------------


def test_the_last_turns_are_judged_now_whoever_waits(world: World, judging: LiveScoring, model: ScriptedModel) -> None:
    for _ in range(5):
        live(world)
    live(world, session="m", owner="mari")
    live(world, state="open")
    told: list[tuple[int, int]] = []
    assert judging.run_now("home", 3, lambda done, total: told.append((done, total))) == Outcome(3)
    assert labels() == [(number, "judged") for number in (3, 4, 5)]
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert judging.run_now("home", 3) == Outcome(0)


def test_a_judge_that_was_down_a_moment_ago_is_asked_all_the_same(
    world: World, judging: LiveScoring, model: ScriptedModel
) -> None:
    live(world)
    model.script = lambda request: error(503, "down")
    assert judging.run().judged == 0
    model.script = lambda request: said(False)
    assert judging.run_now("home", 50) == Outcome(1)


# --- the parts -------------------------------------------------------------------------------------------------------


def test_a_process_without_the_index_can_score(tmp_path: Path) -> None:
    runtime = build(load_settings(home=tmp_path / "home", judge_calls_per_day=7), owns_index=False)
    with runtime.database.connection_context():
        made = LiveScoring.over(runtime)
        assert (made.judge.name, made.allowance.per_day) == ("offline", 7)
        assert made.run() == Outcome(0)


def test_the_offline_rules_judge_turns_that_a_model_answered(world: World) -> None:
    right = world.memory("富士通のPCを13万円で買った。")
    world.indexed()
    live(world, "富士通のPC、いくらだったっけ", searched=True, memory_ids=[right.id])
    live(world, "うん、そうだね", session="t", searched=True)
    assert scoring(world, OfflineChat()).run() == Outcome(2)
    assert [(row.needed, row.found) for row in Label.select().order_by(Label.turn)] == [(True, True), (False, None)]


def test_any_bytes_as_the_judge_s_answer_stop_nothing(world: World) -> None:
    class Odd:
        name = "odd"

        def complete(self, request: ChatRequest) -> ChatAnswer:
            return ChatAnswer('\x00{"needed": true, "right": [1e400, null]}')

    turn = live(world)
    assert scoring(world, Odd()).run() == Outcome(0)
    assert labels() == [(turn.id, "waiting")]
