"""Real talk is scored by `stackmem up` beside it: a judge that hangs, a kill and a restart cost no turn its label."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.checking import rows
from tests.running import RunningServer, command, environment, json_of, until
from tests.scripted import Answer, ScriptedServer, call, content, hang, say

TOLD = "昨日富士通のPCを12万円で買ったよ"
ASKED = "富士通のPC、いくらだったっけ"
SMALL_TALK = ["ただいま", "疲れたよ", "うん", "そうだね", "いい天気だね", "おなかすいた", "ふーん", "前に進んで"]


def talk(request: Any) -> Answer:
    """Search for what is asked, and for one thing in vain."""
    last = request["messages"][-1]
    asks = last["role"] == "user" and (ASKED in last["content"] or "前に進んで" in last["content"])
    return call("search_memory", {"query": last["content"]}) if asks else say("うん")


class Judge:
    """Hangs at its first call; answers the others when it may; says that only the price needed a memory."""

    def __init__(self) -> None:
        self.calls, self.may_answer = 0, threading.Event()

    def __call__(self, request: Any) -> Answer:
        self.calls += 1
        if self.calls == 1:
            return hang()
        assert self.may_answer.wait(60)
        asked = json.loads(request["messages"][1]["content"])
        needed = asked["user"] == ASKED
        right = [memory["number"] for memory in asked["memories"] if "12万円" in memory["summary"]] if needed else None
        return content(json.dumps({"reason": "r", "needed": needed, "right": right}))


def test_every_live_turn_is_judged_once_whatever_is_killed_and_nobody_waits_for_it(home: Path) -> None:
    judge = Judge()
    with ScriptedServer(talk) as model, ScriptedServer(judge) as judging:
        settings = {
            "chat_base_url": model.base_url, "chat_model": "talker", "memory_model": "offline",
            "judge_base_url": judging.base_url, "judge_model": "strict",
            "chat_timeout_s": "60", "turn_timeout_s": "60",  # a fallback line on a busy machine is never judged
        }  # fmt: skip
        with RunningServer(home, **settings) as server:
            server.say(TOLD, "old")
            server.post("/v1/sessions/old/close")
            server.settle()
            for text in [*SMALL_TALK, ASKED]:
                server.say(text, "new")
            scoring = subprocess.Popen(
                [sys.executable, "-m", "stackmem", "eval", "score"],
                env=environment(home, **settings), cwd=home.parent, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            until(lambda: judge.calls, "the judge was asked")
            scoring.kill()
            scoring.wait()
        assert rows(home, "SELECT count(*) FROM label") == [(0,)]
        before = judge.calls
        with RunningServer(home, **settings) as server:  # judges what was left
            until(lambda: judge.calls > before, "the judge was asked again")
            assert server.say("まだいる？", "new")["reply"] == "うん"
            judge.may_answer.set()
            until(lambda: rows(home, "SELECT count(*) FROM score") == [(1,)], f"a window is full: {server.said()}")
            shown = json_of(home, "eval", "show", **settings)
    (by,) = shown["judges"]
    assert (by["judge"], by["trust"]["miss_rate"]) == ("strict", "never judged")
    (window,) = by["windows"]
    assert (window["first_turn"], window["last_turn"], window["size"]) == (1, 10, 10)
    assert (window["false_trigger_rate"]["num"], window["false_trigger_rate"]["den"]) == (1, 9)
    assert (window["miss_rate"]["num"], window["miss_rate"]["den"]) == (0, 1)
    turns = [json.loads(asked.json["messages"][1]["content"])["user"] for asked in judging.requests]
    assert turns[before : before + 10] == [TOLD, *SMALL_TALK, ASKED]
    assert rows(home, "SELECT count(*) FROM label WHERE state <> 'judged'") == [(0,)]


def test_turns_of_the_offline_model_are_never_judged(home: Path) -> None:
    with ScriptedServer([]) as judging:
        settings = {"judge_base_url": judging.base_url, "judge_model": "strict"}
        with RunningServer(home, **settings) as server:
            server.say("うちの猫の名前はミケっていうの")
        done = command(home, "eval", "score", **settings)
        assert done.returncode == 0, done.stderr
        assert "Judged now: 0 turns." in done.stdout
        assert "There are no rates yet" in command(home, "eval", "show").stdout
    assert judging.requests == []
