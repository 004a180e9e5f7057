import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks._counting import Call
from benchmarks._replay import Hints, opened
from benchmarks._small_talk import TALK
from benchmarks.tool_choice import AFTER_TALK, ALONE, Choice, ask, cost, groups, main, rate, rates, show_wrong
from stackmem.clock import SystemClock
from stackmem.exceptions import ToolsRefused, TransientError
from stackmem.persona import load_persona
from stackmem.ports import ChatAnswer, ChatRequest, ToolCall

PROBE = {"id": "x-01", "question": "うちの猫の名前は？", "at": "2022-09-02T20:40:00+09:00", "search": True}
SEARCH = ChatAnswer("", (ToolCall("1", "search_memory", {"query": "猫の名前"}),), 900, 20)
READ = ChatAnswer("", (ToolCall("1", "read_memory_source", {"memory_ids": ["mem_1"]}),))
REPLY = ChatAnswer('{"reply": "わからないな", "emotion": "neutral", "action": "none"}', (), 900, 20)


def choice(wanted: bool | str, searched: bool | None, log: str = "a", condition: str = ALONE) -> Choice:
    return Choice("a-01", log, condition, wanted, searched)


# --- figures ---------------------------------------------------------------------------------------------------------


def test_both_rates_are_what_a_hand_counts_and_either_and_no_answer_are_left_out() -> None:
    choices = [
        *[choice(False, True)] * 1, *[choice(False, False)] * 28, choice(False, None),
        *[choice(True, False)] * 15, *[choice(True, True)] * 133, choice(True, None),
        choice("either", True), choice("either", False),
    ]  # fmt: skip
    found = rates(choices)
    assert [(figure["num"], figure["den"]) for figure in found.values()] == [(1, 29), (15, 148)]
    assert found["false triggers"]["value"] == 1 / 29
    # Newcombe 1998, table I, method 3
    assert (found["misses"]["low"], found["misses"]["high"]) == pytest.approx((0.0624, 0.1605), abs=0.00006)


def test_the_rate_of_nothing_is_not_a_number() -> None:
    assert rate(0, 0) == {"value": None, "num": 0, "den": 0, "low": None, "high": None}


def test_choices_are_grouped_by_condition_and_log_and_together() -> None:
    choices = [choice(True, True, log, condition) for condition in (ALONE, AFTER_TALK) for log in ("a", "b")]
    assert [(condition, log, len(ours)) for condition, log, ours in groups(choices)] == [
        (ALONE, "a", 1), (ALONE, "b", 1), (ALONE, "all", 2),
        (AFTER_TALK, "a", 1), (AFTER_TALK, "b", 1), (AFTER_TALK, "all", 2),
    ]  # fmt: skip
    assert [log for _, log, _ in groups(choices[:1])] == ["a"]


def test_the_cost_is_that_of_the_answered_calls() -> None:
    calls = [Call("turn", 900, 20, 2.0), Call("turn", 700, 10, 1.0), Call("turn", 0, 0, 9.0, answered=False)]
    assert cost(calls) == {
        "model calls": 2,
        "calls that failed": 1,
        "prompt tokens a call": 800,
        "completion tokens a call": 15,
        "seconds a call": 1.5,
    }
    assert cost([])["seconds a call"] is None


def test_wrong_choices_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    show_wrong([choice(True, False), choice(False, True), choice(True, True), choice(True, None)], lambda probe: probe)
    assert [row.split()[0] for row in capsys.readouterr().out.splitlines()[2:]] == ["miss", "false"]


# --- asking ----------------------------------------------------------------------------------------------------------


class Scripted:
    """A chat model that gives these answers in turn, and keeps what it was asked."""

    name = "scripted"

    def __init__(self, *answers: ChatAnswer | Exception):
        self.answers, self.asked = list(answers), list[ChatRequest]()

    def complete(self, request: ChatRequest) -> ChatAnswer:
        self.asked.append(replace(request, messages=list(request.messages)))  # the thinker goes on with its list
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        yield self.complete(request)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)  # no .env
    for name in ("CHAT_BASE_URL", "MEMORY_BASE_URL", "DATABASE_URL", "TOOL_MODE"):
        monkeypatch.delenv(f"STACKMEM_{name}", raising=False)
    return tmp_path / "home"


def choose(
    home: Path, answers: Sequence[ChatAnswer | Exception], condition: str = ALONE, **settings: Any
) -> tuple[Choice, list[ChatRequest]]:
    chat = Scripted(*answers)
    remote = {"chat_base_url": "http://127.0.0.1:9/v1", "chat_model": "m", **settings}
    with opened(home, SystemClock(), Hints(), **remote) as runtime:
        return ask(runtime, chat, "x", PROBE, condition), chat.asked


def test_a_search_is_counted_by_the_first_answer_alone(home: Path) -> None:
    chosen, asked = choose(home, [SEARCH])
    assert chosen == Choice("x-01", "x", ALONE, True, searched=True, query="猫の名前")
    assert [len(request.messages) for request in asked] == [2]
    assert "2022-09-02" in asked[0].messages[0]["content"]
    assert asked[0].tools


@pytest.mark.parametrize("answer", [REPLY, READ])
def test_a_reply_and_the_other_tool_are_no_search(home: Path, answer: ChatAnswer) -> None:
    chosen, asked = choose(home, [answer])
    assert chosen.searched is False
    assert len(asked) == 1


def test_a_model_that_does_not_answer_has_chosen_nothing(home: Path) -> None:
    assert choose(home, [TransientError("down")])[0].searched is None


def test_ten_turns_of_small_talk_come_before_the_question_in_the_products_own_form(home: Path) -> None:
    _, (request,) = choose(home, [SEARCH], AFTER_TALK)
    roles = [message["role"] for message in request.messages]
    assert roles == ["system", *["user", "assistant"] * 10, "user"]
    assert json.loads(request.messages[2]["content"]) == {"reply": "おかえり！", "emotion": "happy", "action": "nod"}
    assert request.messages[-1]["content"] == PROBE["question"]


def test_in_json_the_answer_says_whether_to_search(home: Path) -> None:
    wanted = ChatAnswer('{"search": {"query": "猫"}, "reply": "", "emotion": "neutral", "action": "none"}')
    chosen, (request,) = choose(home, [wanted], tool_mode="json")
    assert (chosen.searched, chosen.query) == (True, "猫")
    assert not request.tools


def test_in_auto_a_server_without_tools_is_asked_in_json(home: Path) -> None:
    chosen, asked = choose(home, [ToolsRefused(), ChatAnswer('{"search": "猫"}')], tool_mode="auto")
    assert (chosen.searched, len(asked)) == (True, 2)


def test_the_small_talk_uses_the_personas_emotions_and_actions() -> None:
    persona = load_persona("stackchan")
    assert len(TALK) == 10
    assert {emotion for _, _, emotion, _ in TALK} <= set(persona.emotions)
    assert {action for _, _, _, action in TALK} <= set(persona.actions)


def test_the_command_prints_the_rates_and_writes_them(home: Path, real_logs: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--probes", "3", "--wrong", "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    assert "all, after ten turns" in done.output
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert written["cost"]["model calls"] == len(written["choices"]) == 12
    assert written["groups"][2]["misses"]["den"] == 6


def test_once_asks_each_question_alone(home: Path, real_logs: Path) -> None:
    done = CliRunner().invoke(main, ["--probes", "2", "--once", "--log", "he-gu"])
    assert done.exit_code == 0, done.output
    assert "after ten turns" not in done.output
