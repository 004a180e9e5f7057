"""What goes over the wire: what a robot with 30 lines of HTTP can read, and what slow clients cannot break."""

import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.running import RunningServer, until
from tests.wire import answer_on, check_problem, connected, send

pytestmark = pytest.mark.usefixtures("one_process")

JSON = "application/json"
TURN = json.dumps({"text": "こんにちは"}, ensure_ascii=False).encode()
ANSWER = {
    *("turn_id", "session_id", "text", "reply", "emotion", "action", "audio_url"),
    *("searched", "memory_ids", "degraded", "model"),
}
MEMORY = {
    *("memory_id", "topic", "summary", "entities", "memory_type", "occurred_at", "source_turn_ids", "status"),
    *("owner", "entity_keys", "occurred_from", "occurred_to", "said_at", "superseded_by"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server, with a memory of a cat in it."""
    home = tmp_path_factory.mktemp("http") / "home"
    home.mkdir()
    with RunningServer(home) as running:
        running.say("うちの猫の名前はミケっていうの", "monday")
        running.post("/v1/sessions/monday/close")
        running.settle()
        yield running
        assert "Traceback" not in running.said(), running.said()


def post_turn(version: str = "1.1", **headers: str) -> bytes:
    lines = [f"POST /v1/turns HTTP/{version}", f"Content-Type: {JSON}", f"Content-Length: {len(TURN)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + TURN


# --- lengths, versions, methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/v1/persona"),
        ("GET", "/v1/sessions"),
        ("GET", "/v1/memories"),
        ("GET", "/v1/memories?q=cat"),
        ("GET", "/v1/turns/1"),
        ("GET", "/v1/export"),
        ("POST", "/v1/import"),
        ("POST", "/v1/sessions/monday/close"),
        ("HEAD", "/v1/turns/1"),
        ("OPTIONS", "/v1/turns"),
        ("GET", "/nothing"),
        ("GET", "/v1/turns/999"),
        ("PATCH", "/v1/turns"),
    ],
)
def test_every_answer_comes_with_its_length_and_never_chunked(
    server: RunningServer, version: str, method: str, path: str
) -> None:
    assert send(server.url, method, path, version=version).status < 500


def test_an_answer_is_utf8_that_is_not_escaped(server: RunningServer) -> None:
    answer = send(server.url, "POST", "/v1/turns", TURN, content_type=JSON)
    assert "こんにちは".encode() in answer.body
    assert b"\\u" not in answer.body
    assert answer.headers["content-type"] == JSON
    for path in ("/v1/persona", "/v1/memories", "/v1/export", "/v1/memories?q=%E7%8C%AB"):
        assert b"\\u" not in send(server.url, "GET", path).body
    assert "日本" in check_problem(send(server.url, "GET", "/v1/turns/日本"), 404)


def test_a_reply_to_a_robot_is_small(server: RunningServer) -> None:
    assert len(send(server.url, "POST", "/v1/turns", TURN, content_type=JSON).body) < 2_000


def test_a_client_of_http_1_0_without_a_host_is_answered_and_let_go(server: RunningServer) -> None:
    with connected(server.url) as connection:
        connection.sendall(post_turn("1.0"))
        answer = answer_on(connection, "POST")
        assert answer.status == 200
        assert answer.json["text"] == "こんにちは"
        assert connection.recv(1) == b""


def test_a_connection_can_be_used_again(server: RunningServer) -> None:
    with connected(server.url) as connection:
        for _ in range(3):
            connection.sendall(post_turn(Host="robot"))
            assert answer_on(connection, "POST").status == 200


def test_an_error_leaves_the_connection_usable(server: RunningServer) -> None:
    with connected(server.url) as connection:
        for _ in range(2):
            connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: robot\r\n\r\n")
            assert answer_on(connection).status == 404


def test_a_chunked_request_is_understood(server: RunningServer) -> None:
    chunks = b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in (TURN[:7], TURN[7:]))
    head = f"POST /v1/turns HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with connected(server.url) as connection:
        connection.sendall(head + chunks + b"0\r\n\r\n")
        assert answer_on(connection, "POST").json["text"] == "こんにちは"


def test_an_address_with_unescaped_utf8_is_understood(server: RunningServer) -> None:
    server.say("hi", "台所")
    answer = send(server.url, "POST", "/v1/sessions/台所/close")
    assert answer.json == {"session_id": "台所", "closed": True}


# --- what is no HTTP -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # the beginning of TLS
        (b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST /v1/turns HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", 400),
        (b"POST /v1/turns HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /v1/turns HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /v1/turns HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /v1/turns HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 300_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_no_http_is_told_so_like_any_other_error(server: RunningServer, sent: bytes, status: int) -> None:
    with connected(server.url) as connection:
        connection.sendall(sent)
        check_problem(answer_on(connection), status)
    assert send(server.url, "GET", "/healthz").status == 200


# --- slow, half closed, gone -----------------------------------------------------------------------------------------


def test_a_client_that_closes_its_side_still_gets_its_answer(server: RunningServer) -> None:
    for version in ("1.0", "1.1"):
        with connected(server.url) as connection:
            connection.sendall(post_turn(version))
            connection.shutdown(socket.SHUT_WR)
            assert answer_on(connection, "POST").json["text"] == "こんにちは"


def test_a_client_that_sends_byte_by_byte_is_answered_while_others_go_on(server: RunningServer) -> None:
    with connected(server.url) as connection:
        for number, byte in enumerate(post_turn(Host="robot")):
            connection.sendall(bytes([byte]))
            if number % 50 == 0:
                assert send(server.url, "GET", "/healthz").status == 200
        assert answer_on(connection, "POST").json["text"] == "こんにちは"


def test_many_clients_that_never_finish_shut_nobody_out(server: RunningServer) -> None:
    request = post_turn(Host="robot")
    with ExitStack() as stack:
        for length in range(150):
            connection = stack.enter_context(connected(server.url))
            connection.sendall(request[: 1 + length % (len(request) - 1)])
        assert server.say("まだ話せる？")["reply"]
    assert server.say("まだ話せる？")["reply"]


def test_clients_that_vanish_in_the_middle_leave_no_trace(server: RunningServer) -> None:
    before = server.get("/v1/sessions?limit=1000")[1]["count"]
    for end in (5, 60, -1):
        with connected(server.url) as connection:
            connection.sendall(post_turn(Host="robot", X_Session_Id="vanished")[:end])
            # Closed by a reset, as a robot that loses its power does in the end.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert send(server.url, "GET", "/healthz").status == 200
    assert server.get("/v1/sessions?limit=1000")[1]["count"] == before


def test_a_turn_whose_client_is_gone_is_kept_all_the_same(server: RunningServer) -> None:
    with connected(server.url) as connection:
        connection.sendall(post_turn(Host="robot", X_Session_Id="gone"))

    def kept() -> bool:
        return any(row["session_id"] == "gone" for row in server.get("/v1/sessions")[1]["sessions"])

    until(kept, "the turn of the client that is gone is stored")


def test_forty_turns_at_once_are_forty_turns(server: RunningServer) -> None:
    texts = [f"{number}番目の話" for number in range(40)]
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda text: server.say(text, "crowd"), texts))
    assert [answer["text"] for answer in answers] == texts
    assert len({answer["turn_id"] for answer in answers}) == 40


def test_the_same_key_at_once_is_one_turn(server: RunningServer) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: server.say("一回だけ", "once", client_turn_id="once"), range(8)))
    assert len({answer["turn_id"] for answer in answers}) == 1
    assert len({answer["reply"] for answer in answers}) == 1


# --- names of the fields ---------------------------------------------------------------------------------------------


def get(server: RunningServer, path: str) -> Any:
    status, answer = server.get(path)
    assert status == 200, answer
    return answer


def test_a_turn_and_its_trace_have_the_fields_of_the_specification(server: RunningServer) -> None:
    answer = server.say("飼ってるペットの名前おぼえてる？", "fields")
    assert set(answer) == ANSWER
    assert answer["searched"]
    turn = get(server, f"/v1/turns/{answer['turn_id']}")
    assert set(turn) >= ANSWER - {"audio_url"} | {"at", "state", "trace"}
    assert set(turn["trace"]) >= {"calls", "model_calls", "durations_ms"}
    assert set(turn["trace"]["durations_ms"]) >= {"model", "embed", "search", "total"}
    (call,) = turn["trace"]["calls"]
    assert set(call) >= {"tool", "arguments", "hits", "relaxed", "duration_ms"}
    assert set(call["hits"][0]) >= {"memory_id", "retrieval_score", "source_checked", "source_turn_ids"}


def test_memories_have_the_fields_of_the_specification(server: RunningServer) -> None:
    listed, found = get(server, "/v1/memories"), get(server, "/v1/memories?q=cat")
    for answer in (listed, found):
        assert set(answer) == {"memories", "count"}
        assert answer["count"] == len(answer["memories"])
    assert set(listed["memories"][0]) >= MEMORY
    assert set(found["memories"][0]) >= MEMORY | {"retrieval_score", "source_checked"}
    assert found["memories"][0]["source_checked"] is False
    memory = get(server, f"/v1/memories/{found['memories'][0]['memory_id']}")
    assert memory.pop("history") == []
    assert memory in listed["memories"]
    sources = get(server, f"/v1/memories/{memory['memory_id']}/sources")
    assert sources["memory_id"] == memory["memory_id"]
    assert [turn["turn_id"] for turn in sources["turns"]] == memory["source_turn_ids"]
    assert sources["turns"][0]["user"] == "うちの猫の名前はミケっていうの"


def test_memories_are_narrowed_as_asked(server: RunningServer) -> None:
    cat = get(server, "/v1/memories?q=cat&limit=1")["memories"][0]
    day = cat["said_at"][:10]
    other = next(kind for kind in ("episode", "decision", "preference") if kind != cat["memory_type"])

    def found(query: str) -> bool:
        return cat["memory_id"] in {memory["memory_id"] for memory in get(server, f"/v1/memories?{query}")["memories"]}

    for wide in (f"since={day}", f"until={day}", f"type={cat['memory_type']}", "status=active", "entity="):
        assert found(wide), wide
        assert found(f"q=cat&{wide}"), wide
    for narrow in ("until=2020-01-01", "since=2999-01-01", f"type={other}", "status=superseded"):
        assert not found(narrow), narrow
    for narrow in ("until=2020-01-01", "since=2999-01-01", "status=superseded"):  # a type is relaxed
        assert not found(f"q=cat&{narrow}"), narrow
    assert not found("entity=nobody")
    assert get(server, "/v1/memories?limit=1")["count"] == 1


def test_an_export_has_lines_of_three_kinds(server: RunningServer) -> None:
    answer = send(server.url, "GET", "/v1/export")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    kinds = {line["kind"] for line in lines}
    assert kinds == {"session", "turn", "memory"}
    turn = next(line for line in lines if line["kind"] == "turn")
    assert set(turn) >= {"turn_id", "session_id", "at", "user", "reply", "emotion", "action", "state"}
    memory = next(line for line in lines if line["kind"] == "memory")
    assert set(memory) >= MEMORY
    assert memory["superseded_by"] is None


def test_taking_an_export_back_adds_nothing(server: RunningServer) -> None:
    before = send(server.url, "GET", "/v1/export").body
    answer = send(server.url, "POST", "/v1/import", before, content_type="application/x-ndjson")
    assert answer.json["skipped_lines"] == []
    assert (answer.json["turns"], answer.json["memories"]) == (0, 0)
    assert answer.json["already_there"] == before.count(b'{"kind": "turn"')
    assert send(server.url, "GET", "/v1/export").body == before


def test_health_and_readiness_say_how_things_are(server: RunningServer) -> None:
    assert get(server, "/healthz")["status"] == "ok"
    ready = get(server, "/readyz")
    assert ready["ready"] is True
    assert any("No chat model is set" in reason for reason in ready["reasons"])


def test_the_persona_says_what_the_body_must_know(server: RunningServer) -> None:
    persona = get(server, "/v1/persona")
    assert persona["name"] == "スタックチャン"
    assert set(persona["emotions"]) >= {"neutral", "happy", "angry", "sad", "doubt", "sleepy"}
    assert set(persona["actions"]) >= {"none", "nod", "shake", "look_up", "look_down", "tilt"}
    assert (persona["first_person"], persona["language"], persona["error"]) == ("ぼく", "ja", None)
    assert get(server, "/v1/persona?client=kai")["emotions"][-2:] == ["surprised", "sleepy"]


def test_a_client_gets_its_own_word_and_one_that_nobody_knows_stores_nothing(server: RunningServer) -> None:
    asked = {"text": "うれしいな、ありがとう！", "session_id": "words", "client_turn_id": "words"}
    assert server.post("/v1/turns", asked)[1]["emotion"] == "happy"
    assert server.post("/v1/turns?client=vrm", asked)[1]["emotion"] == "joy"
    _, job = server.post("/v1/turns?wait=0", asked)
    told = until(lambda: get(server, f"/v1/jobs/{job['job_id']}?client=vrm").get("emotion"), "the job is done")
    assert told == "joy"
    for path in ("/v1/persona", f"/v1/jobs/{job['job_id']}"):
        check_problem(send(server.url, "GET", f"{path}?client=aibo"), 400, "kai, stack-chan, vrm")
    assert server.post("/v1/turns?client=aibo", {"text": "だれ", "session_id": "aibo"})[0] == 400
    assert "aibo" not in {row["session_id"] for row in get(server, "/v1/sessions")["sessions"]}


def test_the_offline_rules_say_who_they_are_to_any_chat_client(server: RunningServer) -> None:
    asking = {"model": "gpt-4o", "messages": [{"role": "user", "content": "おはよう"}]}
    for more in ({}, {"model": "stackmem-raw"}):
        status, answer = server.post("/v1/chat/completions", asking | more)
        assert (status, answer["model"]) == (200, "offline")
        assert answer["choices"][0]["message"]["content"] == "おはよう！"
        assert answer["usage"]["total_tokens"] > 0
