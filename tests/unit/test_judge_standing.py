"""The judge is judged: its agreement with labelled turns, read strictly, decides what its rates are worth."""

import json
from typing import Any

import pytest

from evals.figures import Agreement
from evals.judge.labels import Labels, packaged_labels, read_labels
from evals.judge.standing import Standing, agreement, assess, standing_of, trust
from evals.judge.turn import PROMPT_VERSION, Case, Shown, Verdict
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.exceptions import InvalidInput, TransientError
from stackmem.score_models import JudgeStanding
from tests.fakes import FixedClock
from tests.scripted import Answer, content, error
from tests.unit.conftest import ScriptedModel

NOW = FixedClock().now()


def line(identity: str = "L1", **more: Any) -> dict[str, Any]:
    """A turn that searched, found and needed the memory m1."""
    turn = {
        "id": identity, "language": "ja", "context": [{"user": "ただいま", "reply": "おかえり"}],
        "user": "いくらだっけ",
        "reply": "13万円", "searched": True, "memories": [{"id": "m1", "summary": "13万円。", "at": "2026-07-01"}],
        "returned": ["m1"], "needed": True, "right": ["m1"], "found": True, "difficulty": "easy", "source": "own",
    }  # fmt: skip
    return turn | more


def small_talk(identity: str, **more: Any) -> dict[str, Any]:
    return line(identity, user="うん", searched=False, returned=[], needed=False, right=[], found=None, **more)


def labels(*lines: dict[str, Any]) -> Labels:
    return read_labels("\n".join(json.dumps(each, ensure_ascii=False) for each in lines))


def say(needed: bool, right: list[int] | None = None) -> Answer:
    return content(json.dumps({"needed": needed, "right": right, "reason": ""}))


def nobody(done: int, total: int) -> None:
    pass


# --- the labelled turns ----------------------------------------------------------------------------------------------


def test_the_labelled_turns_that_come_with_stackmem_are_read() -> None:
    packaged = packaged_labels()
    assert len(packaged.turns) >= 120
    assert len(packaged.version) == 12


def test_a_labelled_turn_is_a_case_and_a_verdict() -> None:
    (turn,) = labels(line()).turns
    assert turn.case == Case(
        "いくらだっけ",
        "13万円",
        True,
        [("ただいま", "おかえり")],
        [Shown("m1", "2026-07-01", "13万円。")],
        frozenset({"m1"}),
    )
    assert turn.verdict == Verdict(True, ("m1",))


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        ("{", "line 2: "),
        ("[]", "line 2: : Input should be"),
        (json.dumps(line("L2", reply=1)), "line 2: reply: Input should be a valid string."),
        (json.dumps(line("L2", needed="true")), "line 2: needed: "),
        (json.dumps(line("L2", memories=[{"id": "m1"}])), "line 2: memories.0.summary: Field required."),
        (json.dumps(line("L2", note="")), "line 2: note: Extra inputs are not permitted."),
        (json.dumps(line("L1")), "line 2: L1 stands there twice."),
        (json.dumps(line("L2", right=["m9"])), "line 2: m9 is none of its memories."),
        (json.dumps(line("L2", returned=["m8"])), "line 2: m8 is none of its memories."),
        (json.dumps(line("L2", needed=False)), "line 2: it names right memories, but needed none."),
        (json.dumps(line("L2", found=None)), "line 2: found is null, which does not follow"),
    ],
)
def test_a_fault_is_named_with_its_line(second: str, fault: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_labels(f"{json.dumps(line())}\n{second}")
    assert f"labels.jsonl, {fault}" in str(caught.value)


# --- agreement -------------------------------------------------------------------------------------------------------


def test_agreement_has_the_values_worked_out_by_hand() -> None:
    turns = labels(
        line("found"),
        line("not found", returned=[], found=False),
        line("not searched", searched=False, returned=[], found=None),
        small_talk("needless"),
        small_talk("also"),
        small_talk("unanswered"),
    ).turns
    said = {
        "found": {"needed": True, "right": ["m1"]},
        "not found": {"needed": True, "right": []},  # found and missed: the judge saw nothing to find
        "not searched": {"needed": True, "right": ["m1"]},
        "needless": {"needed": True, "right": ["m1"]},  # missed, by the judge
        "also": {"needed": False, "right": []},
        "unanswered": None,
    }
    assert agreement(turns, said) == {
        "needed": Agreement(both=3, only_first=0, only_second=1, neither=1),
        "found": Agreement(both=1, only_first=0, only_second=0, neither=1),
        "missed": Agreement(both=1, only_first=1, only_second=1, neither=2),
    }


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((8, 2, 2, 8), "trustworthy"),  # kappa .6
        ((8, 2, 3, 7), "not trustworthy"),  # .5
        ((10, 0, 0, 0), "not trustworthy"),  # undefined: it always said yes, and so did people
    ],
)
def test_a_rate_is_trusted_from_kappa_six_tenths_on(counts: tuple[int, int, int, int], said: str) -> None:
    sure = Agreement(10, 0, 0, 10)
    standing = Standing("j", "v", 20, 0, {"needed": Agreement(*counts), "missed": sure}, NOW)
    assert (trust(standing, "false_trigger_rate"), trust(standing, "miss_rate")) == (said, "trustworthy")
    standing = Standing("j", "v", 20, 0, {"needed": sure, "missed": Agreement(*counts)}, NOW)
    assert (trust(standing, "false_trigger_rate"), trust(standing, "miss_rate")) == ("trustworthy", said)
    assert trust(None, "miss_rate") == "never judged"


@pytest.mark.parametrize(("unanswered", "said"), [(4, "trustworthy"), (5, "not trustworthy")])
def test_a_judge_that_leaves_more_than_a_fifth_unanswered_is_not_trusted(unanswered: int, said: str) -> None:
    sure = Agreement(8, 0, 0, 8)
    standing = Standing("j", "v", 20, unanswered, {"needed": sure, "missed": sure}, NOW)
    assert [trust(standing, rate) for rate in ("false_trigger_rate", "miss_rate")] == [said, said]


# --- judging the judge -----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _store(database: Any) -> None:
    """Every test here has a store."""


def test_a_judge_s_agreement_is_stored_under_its_name_and_prompts(
    chat: OpenAIChat, model: ScriptedModel, clock: FixedClock
) -> None:
    model.script = [say(True, [1]), say(False), content("さあ"), content("さあ")]
    told: list[tuple[int, int]] = []
    given = labels(line("L1"), small_talk("L2"), small_talk("L3"))
    standing = assess(chat, given, 5.0, clock, lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert standing == standing_of("scripted") == standing_of("scripted", PROMPT_VERSION)
    assert standing.as_json() == {
        "labels": 3,
        "unanswered": 1,
        "needed": {"accuracy": 1.0, "kappa": 1.0, "turns": 2},
        "found": {"accuracy": 1.0, "kappa": None, "turns": 1},
        "missed": {"accuracy": 1.0, "kappa": None, "turns": 2},
    }
    assert standing.at == clock.now()
    assert standing_of("another") is None
    assert standing_of("scripted", "older prompts") is None


def test_what_was_broken_off_goes_on_and_asks_nothing_twice(
    chat: OpenAIChat, model: ScriptedModel, clock: FixedClock
) -> None:
    given = labels(line("L1"), small_talk("L2"), small_talk("L3"))
    model.script = [say(True, [1]), error(503, "down"), say(False), say(False)]
    with pytest.raises(TransientError):
        assess(chat, given, 5.0, clock, nobody)
    assert standing_of("scripted") is None  # half an opinion is none
    assert assess(chat, given, 5.0, clock, nobody).labels == 3
    assert len(model.asked) == 4


def test_a_judge_that_was_judged_is_judged_anew(chat: OpenAIChat, model: ScriptedModel, clock: FixedClock) -> None:
    given = labels(line("L1"), small_talk("L2"))
    model.script = [say(True, [1]), say(False), say(False), say(False)]
    assert assess(chat, given, 5.0, clock, nobody).agreement["needed"].accuracy == 1.0
    assert assess(chat, given, 5.0, clock, nobody).agreement["needed"].accuracy == 0.5
    assert JudgeStanding.select().count() == 1


def test_other_labels_begin_anew(chat: OpenAIChat, model: ScriptedModel, clock: FixedClock) -> None:
    model.script = [say(True, [1]), error(503, "down"), say(False)]
    with pytest.raises(TransientError):
        assess(chat, labels(line("L1"), small_talk("L2")), 5.0, clock, nobody)
    standing = assess(chat, labels(small_talk("L1")), 5.0, clock, nobody)
    assert standing.labels == 1
    assert standing.agreement["needed"] == Agreement(0, 0, 0, 1)


def test_the_offline_judge_says_itself_that_it_is_not_to_be_trusted(clock: FixedClock) -> None:
    standing = assess(OfflineChat(), packaged_labels(), 5.0, clock, nobody)
    assert standing.unanswered == 0
    assert standing.agreement["needed"].count == standing.labels
    assert trust(standing, "false_trigger_rate") == trust(standing, "miss_rate") == "not trustworthy"
