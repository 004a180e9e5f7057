"""Whatever is sent: one clear sentence, the right status, and nothing is lost."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from tests.running import RunningServer, command, request, until
from tests.wire import Answer, check_problem, send

JSON = "application/json"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for all of them: what one request breaks, the next one finds broken."""
    home = tmp_path_factory.mktemp("bad") / "home"
    home.mkdir()
    with RunningServer(home) as running:
        yield running
        assert "Traceback" not in running.said(), running.said()


@pytest.fixture
def server(shared: RunningServer) -> Iterator[RunningServer]:
    """The shared server; after each test a good turn works, and what was stored before is as it was."""
    before = shared.get(f"/v1/turns/{shared.say('りんごは赤い', 'good')['turn_id']}")
    yield shared
    assert shared.get(f"/v1/turns/{before[1]['turn_id']}") == before
    assert shared.say("次もちゃんと話せる", "good")["reply"]


def turns(server: RunningServer, body: bytes | None, content_type: str | None = JSON, **headers: str) -> Answer:
    return send(server.url, "POST", "/v1/turns", body, content_type=content_type, **headers)


def stored(server: RunningServer) -> list[Any]:
    lines = request("GET", f"{server.url}/v1/export")[1]
    return [json.loads(line) for line in lines.splitlines() if '"kind": "turn"' in line]


# --- the words -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n\t　", "\r\n"])
def test_words_that_are_none_are_refused(server: RunningServer, text: str) -> None:
    before = len(stored(server))
    check_problem(turns(server, json.dumps({"text": text}).encode()), 400, "empty")
    assert len(stored(server)) == before


@pytest.mark.parametrize(
    "text",
    ["あいうえお" * 6_667, "The cat sat on the mat. " * 4_200, "\n" * 50_000 + "x" + " " * 50_000, "x" * 1_000_000],
    ids=["japanese", "english", "mostly white", "nearly the limit"],
)
def test_a_very_long_text_is_answered_and_stored_whole(server: RunningServer, text: str) -> None:
    answer = turns(server, json.dumps({"text": text, "session_id": "long"}, ensure_ascii=False).encode())
    assert answer.status == 200
    assert answer.json["text"] == text
    assert answer.json["reply"]
    assert not answer.json["degraded"]
    assert server.get(f"/v1/turns/{answer.json['turn_id']}")[1]["text"] == text


def test_a_talk_of_very_long_texts_is_looked_at_to_its_end(server: RunningServer) -> None:
    server.say("あいうえお" * 6_667, "long")
    server.post("/v1/sessions/long/close")

    def states() -> set[str]:
        return {turn["state"] for turn in stored(server) if turn["session_id"] == "long"}

    until(lambda: states() <= {"kept", "skipped"}, "every turn is kept or skipped")


def test_more_than_a_megabyte_is_refused(server: RunningServer) -> None:
    check_problem(turns(server, b'{"text": "' + b"x" * 1_100_000 + b'"}'), 413, "too large")


def test_much_more_than_a_megabyte_is_refused_without_being_read(server: RunningServer) -> None:
    claimed = {"content_length": "9999999999", "content_type": JSON}
    check_problem(send(server.url, "POST", "/v1/turns", None, **claimed), 413, "too large")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (rb"\ud800", "�"),
        (rb"a\udfffb", "a�b"),
        (rb"\udc00\ud800", "��"),
        (rb"\ud83d\ude00", "😀"),
        (rb"a\u0000b", "a�b"),
        (rb"\u202e\ufeff\uffff", "\u202e\ufeff\uffff"),
        ("é".encode(), "é"),
    ],
)
def test_nul_and_lone_surrogates_become_one_sign_and_the_rest_stays(
    server: RunningServer, sent: bytes, kept: str
) -> None:
    answer = turns(server, b'{"text": "' + sent + b'"}')
    assert answer.status == 200
    assert answer.json["text"] == kept
    assert server.get(f"/v1/turns/{answer.json['turn_id']}")[1]["text"] == kept
    assert stored(server)[-1]["user"] == kept


def test_what_steers_a_terminal_is_stored_and_not_shown_on_one(server: RunningServer) -> None:
    turn = server.say("\a消える\x9b2J", "bell")
    assert turn["text"] == "\a消える\x9b2J"
    shown = command(server.home, "why", str(turn["turn_id"])).stdout
    assert "�消える�2J" in shown
    assert not set("\a\x9b") & set(shown)


# --- the body --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b'{"text": "\xff\xfe"}', "UTF-8"),
        ('{"text": "日本"}'.encode("euc-jp"), "UTF-8"),
        ('{"text": "x"}'.encode("utf-16"), "UTF-8"),
        ('{"text": "ただいま"}'.encode()[:16], "bytes, not of characters"),
        ('{"text": "ただいま"}'.encode()[:17], "bytes, not of characters"),
        (b"{", "JSON"),
        (b"text=hi", "JSON"),
        (b"{'text': 'hi'}", "JSON"),
        (b'{"text": "hi"} {"text": "hi"}', "JSON"),
        (b'{"text": NaN}', "JSON"),
        (b'{"text": "hi", "x": -Infinity}', "JSON"),
        (b'{"text": "a\nb"}', "JSON"),
        (b"\x00", "JSON"),
        (b"1" * 5_000, "JSON"),
        (b"[" * 100_000, "nested"),
        (b'{"text":' * 100_000, "nested"),
        (b'{"text": "hi", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
        (b'{"text": "hi", "x": ' + b"[" * 900 + b"]" * 900 + b"}", "nested"),
        (b"[]", "object"),
        (b'"hi"', "object"),
        (b"5", "object"),
        (b"null", "object"),
        (b"true", "object"),
        (b"{}", "text"),
        (b'{"Text": "hi"}', "text"),
        (b"", "empty"),
        (b" \r\n", "empty"),
    ],
)
def test_a_body_that_is_no_turn_is_refused(server: RunningServer, body: bytes, word: str) -> None:
    before = len(stored(server))
    check_problem(turns(server, body), 400, word)
    assert len(stored(server)) == before


def test_a_byte_order_mark_is_no_harm(server: RunningServer) -> None:
    assert turns(server, b"\xef\xbb\xbf" + b'{"text": "hi"}').status == 200


def test_an_empty_body_without_any_header_gets_a_clear_400(server: RunningServer) -> None:
    check_problem(send(server.url, "POST", "/v1/turns"), 400, "empty")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", "5"),
        ("text", "null"),
        ("text", "[]"),
        ("text", '{"a": "b"}'),
        ("text", "true"),
        ("session_id", "[]"),
        ("session_id", "5"),
        ("session_id", '{"id": "x"}'),
        ("session_id", "false"),
        ("session_id", '" "'),
        ("session_id", json.dumps("x" * 201)),
        ("at", '"tomorrow"'),
        ("at", "1e400"),
        ("at", "1753200000"),
        ("at", "[]"),
        ("at", '"2026-13-01T00:00:00Z"'),
        ("at", '"2026-02-30"'),
        ("at", '"0000-01-01"'),
        ("at", r'"\ud800"'),
        ("client_turn_id", "{}"),
        ("client_turn_id", "5"),
        ("client_turn_id", json.dumps("x" * 201)),
    ],
)
def test_a_field_of_a_wrong_type_or_value_is_refused(server: RunningServer, field: str, value: str) -> None:
    before = len(stored(server))
    given = {"text": '"hi"', field: value}
    body = "{" + ", ".join(f'"{name}": {text}' for name, text in given.items()) + "}"
    check_problem(turns(server, body.encode()), 400)
    assert len(stored(server)) == before


def test_a_field_that_nobody_knows_is_ignored(server: RunningServer) -> None:
    body = {"text": "hi", "mood": {"a": [1e400]}, "owner": "somebody else"}
    assert turns(server, json.dumps(body).replace("Infinity", "1e400").encode()).status == 200


@pytest.mark.parametrize("field", ["session_id", "at", "client_turn_id"])
def test_a_field_that_is_null_or_empty_is_one_that_is_not_given(server: RunningServer, field: str) -> None:
    assert turns(server, json.dumps({"text": "hi", field: None}).encode()).status == 200
    assert turns(server, json.dumps({"text": "hi", field: ""}).encode()).status == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/xml", "json"])
def test_another_content_type_is_refused(server: RunningServer, kind: str | None) -> None:
    check_problem(turns(server, b'{"text": "hi"}', kind), 415, "application/json")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/json;x"])
def test_json_may_be_named_in_several_ways(server: RunningServer, kind: str) -> None:
    assert turns(server, b'{"text": "hi"}', kind).status == 200


@pytest.mark.parametrize("kind", ["audio/wav", "audio/L16;rate=16000;channels=1", "audio/x-wav"])
def test_sound_is_told_what_to_set(server: RunningServer, kind: str) -> None:
    check_problem(turns(server, b"RIFF" + b"\0" * 961_024, kind, x_session_id="cores3"), 501, "STACKMEM_ASR_BASE_URL")
    check_problem(turns(server, b"", kind), 400, "empty")
    check_problem(send(server.url, "PATCH", "/v1/memories/x", b"RIFF", content_type=kind), 415, "JSON")


def test_a_kai_is_told_what_is_missing_in_words_it_can_show(server: RunningServer) -> None:
    got = send(server.url, "POST", "/kai", bytes(3200), content_type="audio/L16;rate=16000;channels=1")
    assert got.status == 200
    assert "音声認識" in got.json["text"]
    assert (got.json["emotion"], got.json["audio_url"]) == ("sad", None)
    check_problem(send(server.url, "GET", "/kai/lines/no_ears"), 404)
    check_problem(
        send(server.url, "GET", f"/v1/turns/{server.say('ねえ', 'kai')['turn_id']}/audio"), 404, "TTS_BASE_URL"
    )


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_time_that_is_still_to_come_is_refused_and_a_clock_that_runs_ahead_is_not(server: RunningServer) -> None:
    now = datetime.now(UTC)
    far = {"text": "hi", "at": (now + timedelta(minutes=6)).isoformat()}
    near = {"text": "hi", "at": (now + timedelta(minutes=4)).isoformat()}
    check_problem(turns(server, json.dumps(far).encode()), 400, "future")
    check_problem(turns(server, b'{"text": "hi", "at": "9999-12-31T23:59:59Z"}'), 400, "future")
    assert turns(server, json.dumps(near).encode()).status == 200


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "0001-01-01", "1969-12-31T23:59:59+14:00", "20260101T0000"])
def test_a_time_long_ago_is_stored_and_shown(server: RunningServer, at: str) -> None:
    answer = turns(server, json.dumps({"text": "昨日カメラを3万円で買った", "at": at, "session_id": "old"}).encode())
    if at == "0001-01-01":  # in Tokyo: before the first moment there is
        check_problem(answer, 400, "not a time")
        return
    assert answer.status == 200
    assert server.get(f"/v1/turns/{answer.json['turn_id']}")[0] == 200
    assert server.get("/v1/sessions")[0] == 200


# --- sessions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("a/b", "/a", "a//b", "//", "a/", "x/close", "close", "/close"),
        *("a b", " a", "%", "a%2Fb", "%00", "?x=1#y", "a;b=c&d", ".", "..", '"\\', "a\nb", "a\tb"),
        *("台所のロボット", "🤖" * 200, "é", "x" * 200),
    ],
)
def test_a_session_may_have_any_name_and_is_closed_by_it(server: RunningServer, name: str) -> None:
    assert server.say("hi", name)["session_id"] == name
    close = f"/v1/sessions/{quote(name, safe='')}/close"
    assert server.post(close) == (200, {"session_id": name, "closed": True})
    assert server.post(close) == (200, {"session_id": name, "closed": False})
    assert server.get("/v1/sessions?limit=1")[1]["sessions"][0]["session_id"] == name


def test_nul_and_half_characters_in_a_session_id_are_replaced_everywhere(server: RunningServer) -> None:
    answer = turns(server, rb'{"text": "hi", "session_id": "a\u0000b\ud800"}').json
    assert answer["session_id"] == "a�b�"
    closed = send(server.url, "POST", "/v1/sessions/a%00b%FF/close")
    assert closed.json == {"session_id": "a�b�", "closed": True}


def test_a_session_id_in_a_header_is_the_one_in_the_body(server: RunningServer) -> None:
    by_body = server.say("hi", "廊下のロボット")
    by_header = turns(server, b'{"text": "hi"}', x_session_id="廊下のロボット").json
    assert by_header["session_id"] == by_body["session_id"]


def test_the_body_wins_over_the_header(server: RunningServer) -> None:
    answer = turns(server, b'{"text": "hi", "session_id": "body"}', x_session_id="header").json
    assert answer["session_id"] == "body"


def test_an_idempotency_key_in_a_header_is_the_one_in_the_body(server: RunningServer) -> None:
    body = json.dumps({"text": "hi", "client_turn_id": "三"}).encode()
    first, again = turns(server, body).json, turns(server, b'{"text": "hi"}', idempotency_key="三").json
    assert first["turn_id"] == again["turn_id"]


@pytest.mark.parametrize("name", ["never", "x" * 201, "x" * 5_000, "%00", "%FF", "%20", "%F0%9F%A4%96x"])
def test_closing_an_unknown_session_is_not_found(server: RunningServer, name: str) -> None:
    check_problem(send(server.url, "POST", f"/v1/sessions/{name}/close"), 404, "no session")


# --- what is not there -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["0", "-1", "1" + "0" * 30, "abc", "1.0", "%00", "１", "1e1", "9" * 18])
def test_an_unknown_turn_is_not_found(server: RunningServer, number: str) -> None:
    check_problem(send(server.url, "GET", f"/v1/turns/{number}"), 404, "no turn")


@pytest.mark.parametrize("identity", ["mem_01ARZ3NDEKTSV4RRFFQ69G5FAV", "x", "%00", "%FF", "1" * 3_000, "日本"])
@pytest.mark.parametrize("part", ["", "/sources"])
def test_an_unknown_memory_is_not_found(server: RunningServer, identity: str, part: str) -> None:
    check_problem(send(server.url, "GET", f"/v1/memories/{identity}{part}"), 404, "no memory")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1", 404),
        ("GET", "/v2/turns", 404),
        ("GET", "/v1/turns/", 404),
        ("GET", "/static/../../etc/passwd", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/v1/sessions//close", 404),
        ("GET", "/" + "x" * 10_000, 404),
        ("GET", "/v1/turns", 405),
        ("PUT", "/v1/turns", 405),
        ("DELETE", "/v1/turns/1", 405),
        ("GET", "/v1/sessions/x/close", 405),
        ("POST", "/v1/memories", 405),
        ("POST", "/v1/jobs/1", 405),
        ("GET", "/v1/import", 405),
        ("POST", "/v1/export", 405),
        ("POST", "/healthz", 405),
        ("BREW", "/healthz", 405),
    ],
)
def test_an_unknown_address_or_method_is_named(server: RunningServer, method: str, path: str, status: int) -> None:
    answer = send(server.url, method, path)
    check_problem(answer, status)
    assert ("allow" in answer.headers) == (status == 405)


# --- queries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=-1", "limit=abc", "limit=1001", "limit=1.5", "limit=", "limit=" + "9" * 40, "limit=٣"),
        *("since=tomorrow", "until=2026-13-01", "since=%00", "since=1e400", "until=2026-07-23T25:00"),
        *("type=dream", "type=%00", "status=gone", "status=%FF", "q=x&status=forgotten"),
        *("q=", "q=%20", "q=%E3%80%80", "q=x&type=dream", "q=x&since=never", "q=x&limit=0", "q=x&status=deleted"),
    ],
)
def test_a_bad_query_for_memories_is_refused(server: RunningServer, query: str) -> None:
    check_problem(send(server.url, "GET", f"/v1/memories?{query}"), 400)


@pytest.mark.parametrize(
    "query",
    [
        *("q=" + "x" * 20_000, "q=%00", "q=%FF%FE", "q=%F0%9F%90%B1", "q=%2A%22%27%3B--", "entity=%00", "entity="),
        *("q=x&entity=%00", "q=x&entity=%20", "until=9999-12-31", "since=0001-01-02", "type=", "status=", "since="),
        *("q=x&status=superseded", "nonsense=1", "limit=1000", "q=a&q=b"),
    ],
)
def test_an_odd_query_for_memories_is_answered(server: RunningServer, query: str) -> None:
    answer = send(server.url, "GET", f"/v1/memories?{query}")
    assert answer.status == 200
    assert answer.json["count"] == len(answer.json["memories"])


@pytest.mark.parametrize("limit", ["0", "x", "1001"])
def test_a_bad_limit_of_sessions_is_refused(server: RunningServer, limit: str) -> None:
    check_problem(send(server.url, "GET", f"/v1/sessions?limit={limit}"), 400, "limit")


# --- import ----------------------------------------------------------------------------------------------------------


def test_an_import_names_its_bad_lines_and_takes_the_others(server: RunningServer) -> None:
    lines = [
        b"\xef\xbb\xbf" + '{"session": "i", "at": null, "role": "user", "text": "いちごを買った"}'.encode(),
        b"{",
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"session": "", "role": "user", "text": "x"}',
        b'{"session": "i", "role": "robot", "text": "x"}',
        b'{"session": "i", "role": "user", "text": " "}',
        b'{"session": "i", "role": "user", "text": "x", "at": "soon"}',
        b'{"session": "i", "role": "user", "text": "x", "at": 20260101}',
        b'{"session": 5, "role": [], "text": {}}',
        b'{"kind": "dream"}',
        b'{"kind": "session", "session_id": "q", "session_seq": 1' + b"0" * 30 + b"}",
        b'{"kind": "memory", "memory_id": "x"}',
        b'{"kind": "turn", "x": ' + b"[" * 900 + b"]" * 900 + b"}",
        b"[" * 100_000,
        b'{"session": "i", "at": "9999-12-31T23:30:00Z", "role": "assistant", "text": "\\ud800"}',
    ]
    answer = send(server.url, "POST", "/v1/import", b"\n".join(lines), content_type="application/x-ndjson")
    assert answer.status == 200
    assert [fault["line"] for fault in answer.json["skipped_lines"]] == [2, *range(4, 17)]
    assert all(fault["reason"].endswith(".") for fault in answer.json["skipped_lines"])
    assert answer.json["turns"] == 1
    assert stored(server)[-1]["user"] == "いちごを買った"
    assert server.get("/v1/sessions")[0] == 200


def test_an_import_of_nothing_adds_nothing(server: RunningServer) -> None:
    for body in (b"", b"\n\n", b"\0" * 1_000, bytes(range(256)) * 50):
        answer = send(server.url, "POST", "/v1/import", body)
        assert (answer.status, answer.json["turns"]) == (200, 0)


def test_everything_said_so_far_comes_to_rest(shared: RunningServer) -> None:
    for session in {line["session_id"] for line in stored(shared)}:
        shared.post(f"/v1/sessions/{quote(session, safe='')}/close")
    assert shared.settle()["turns"]["failed"] == 0
