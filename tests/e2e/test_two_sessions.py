"""The main job: told in one session, asked in another, on both kinds of embedded index."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checking import check_store, rows
from tests.running import RunningServer, json_of

TOLD = (
    "うちの猫の名前はミケっていうの",
    "きのう富士通のノートPCを12万円で買ったんだ",
    "アレルギーがあるからエビは食べられない",
)
SMALL_TALK = ("こんにちは", "右を向いて", "今日はいい天気だね", "ありがとう")


@pytest.fixture(params=["edge:", "local:"])
def either_index(request: pytest.FixtureRequest, home: Path) -> Iterator[RunningServer]:
    with RunningServer(home, index_url=request.param) as running:
        yield running


def test_what_was_told_in_one_session_is_found_in_the_next(either_index: RunningServer) -> None:
    server = either_index
    for text in TOLD:
        server.say(text, "monday")
    assert server.post("/v1/sessions/monday/close")[0] == 200
    server.settle()

    for text in SMALL_TALK:
        turn = server.get(f"/v1/turns/{server.say(text, 'friday')['turn_id']}")[1]
        assert (turn["trace"]["model_calls"], turn["searched"]) == (1, False), text

    answer = server.say("飼ってるペットの名前おぼえてる？", "friday")
    assert answer["searched"]
    assert "ミケ" in answer["reply"]
    assert answer["model"] == "offline"

    trace = server.get(f"/v1/turns/{answer['turn_id']}")[1]["trace"]
    (call,) = trace["calls"]
    assert "ペット" in call["arguments"]["query"]
    first = call["hits"][0]
    assert first["memory_id"] in answer["memory_ids"]
    sources = server.get(f"/v1/memories/{first['memory_id']}/sources")[1]["turns"]
    assert [turn["turn_id"] for turn in sources] == first["source_turn_ids"]
    assert sources[0]["user"] == TOLD[0]

    server.post("/v1/sessions/friday/close")
    server.settle()
    server.stop()
    kind = "local" if "local" in str(server._settings) else "edge"
    check_store(server.home, turns=len(TOLD) + len(SMALL_TALK) + 1, kind=kind)


def test_english_is_remembered_in_english(server: RunningServer) -> None:
    for text in ("My cat is called Momo", "I bought a Fujitsu laptop yesterday for 1200 dollars", "Turn left"):
        server.say(text, "one")
    server.post("/v1/sessions/one/close")
    server.settle()
    answer = server.say("What's my cat's name?", "two")
    assert answer["searched"]
    assert "Momo" in answer["reply"]
    found = json_of(server.home, "memories", "search", "price of the laptop", "--limit", "1")
    assert "1200 dollars" in found["memories"][0]["summary"]


def test_turns_without_a_session_id_continue_one_session(server: RunningServer) -> None:
    first, second = server.say("こんにちは"), server.say("元気？")
    assert first["session_id"] == second["session_id"]


def test_the_same_name_after_closing_opens_the_next_sequence(server: RunningServer) -> None:
    server.say("こんにちは", "robot")
    assert server.post("/v1/sessions/robot/close") == (200, {"session_id": "robot", "closed": True})
    assert server.post("/v1/sessions/robot/close") == (200, {"session_id": "robot", "closed": False})
    server.say("またね", "robot")
    assert [row["session_seq"] for row in server.get("/v1/sessions")[1]["sessions"]] == [2, 1]


def test_a_retry_with_the_same_key_doubles_nothing(server: RunningServer) -> None:
    first = server.say("カレーが好き", "s", client_turn_id="7")
    again = server.say("カレーが好き", "s", client_turn_id="7")
    status, by_header = server.post(
        "/v1/turns", {"text": "カレーが好き", "session_id": "s"}, **{"Idempotency-Key": "7"}
    )
    assert status == 200
    assert first == again == by_header
    assert rows(server.home, "SELECT count(*) FROM turn") == [(1,)]
