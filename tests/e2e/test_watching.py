"""What a running server shows of itself: /metrics, /readyz, and its log."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.running import RunningServer, json_of, until
from tests.scripted import Answer, ScriptedServer, call, content, error, say
from tests.wire import check_problem, send

SECRET = "sk-very-secret-key"
WORDS = "うちの猫の名前はミケっていうの"


def model(request: dict) -> Answer:  # type: ignore[type-arg]
    """Answer, search where it is asked for; refuse by a sentence that repeats the user's words and the key."""
    last = request["messages"][-1]["content"]
    if not request.get("tools") and "turn_id" in last:
        return content('{"segments": [{"turn_ids": [1], "keep": true, "topic": "猫", "summary": "猫はミケ。"}]}')
    if "怒って" in last:
        return error(400, f"I do not like 「{last}」 with {SECRET}")
    if "おぼえてる" in last and request["messages"][-1]["role"] == "user":
        return call("search_memory", {"query": "ペット"})
    return say("そうなんだ。")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home: Path = tmp_path_factory.mktemp("watching") / "home"
    home.mkdir()
    with ScriptedServer(model) as scripted:
        chat = {"chat_base_url": scripted.base_url, "chat_api_key": SECRET, "chat_model": "qwen"}
        with RunningServer(home, log_format="json", rate_per_minute="5", **chat) as running:
            yield running
            assert "Traceback" not in running.said(), running.said()


def figures(server: RunningServer) -> dict[tuple[str, ...], float]:
    """Return what /metrics says, by name and label values."""
    status, text = server.get("/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {(s.name, *sorted(s.labels.values())): s.value for family in families for s in family.samples}


def test_metrics_count_turns_tools_models_and_what_waits(server: RunningServer) -> None:
    server.say(WORDS, "猫の話")
    server.post("/v1/sessions/%E7%8C%AB%E3%81%AE%E8%A9%B1/close")
    server.settle()
    assert server.say("ペットの名前おぼえてる？", "b")["searched"]
    server.get("/v1/turns/99")
    found = figures(server)
    assert found["stackmem_turn_seconds_count",] == 2
    assert found["stackmem_tool_seconds_count", "search_memory"] == 1
    assert found["stackmem_model_seconds_count", "answered", "turn"] == 3
    assert found["stackmem_model_seconds_count", "answered", "remember"] >= 1
    assert found["stackmem_model_tokens_total", "prompt", "turn"] == 33
    assert found["stackmem_errors_total", "404", "http"] == 1
    assert found["stackmem_degraded_turns_total",] == 0
    assert (found["stackmem_turns", "kept"], found["stackmem_turns", "pending"]) == (1, 1)
    assert found["stackmem_memories", "active"] == 1
    assert found["stackmem_oldest_pending_seconds",] >= 0
    assert (found["stackmem_index_lag_seconds",], found["stackmem_waiting", "index"]) == (0, 0)
    assert found["stackmem_broker_up",] == 1
    assert {key[1] for key in found if key[0] == "stackmem_queue_messages"} <= {"live", "index", "batch"}
    text = server.get("/metrics")[1]
    assert not any(word in text for word in ('home"', "猫", "ミケ", "ペット"))


def test_ready_with_reasons_and_no_model_is_asked(server: RunningServer) -> None:
    before = figures(server)
    status, ready = server.get("/readyz")
    assert (status, ready["ready"]) == (200, True)
    after = figures(server)
    for outcome in ("answered", "failed"):
        key = ("stackmem_model_seconds_count", outcome, "turn")
        assert after.get(key) == before.get(key)


def test_a_failure_is_counted_and_its_log_line_holds_ids_but_neither_words_nor_key(server: RunningServer) -> None:
    turn = server.say("怒ってみて、ミケのことで", "c")
    assert turn["degraded"]
    found = figures(server)
    assert found["stackmem_degraded_turns_total",] == 1
    assert sum(value for key, value in found.items() if key[0] == "stackmem_errors_total" and "model" in key) >= 1

    def lines() -> list[dict]:  # type: ignore[type-arg]
        return [json.loads(line) for line in server.said().splitlines() if line.startswith("{")]

    line = until(lambda: [one for one in lines() if one.get("turn_id") == turn["turn_id"]], "it is logged")[0]
    assert (line["level"], line["session_id"], line["logger"]) == ("WARNING", "c", "stackmem.thinking")
    assert line["time"].endswith("+00:00")
    assert "did not answer" in line["message"]
    assert SECRET not in server.said()
    assert "怒って" not in server.said()


def test_a_token_has_so_many_requests_a_minute_and_the_others_have_theirs(server: RunningServer) -> None:
    one, other = (json_of(server.home, "devices", "add", name)["token"] for name in ("one", "other"))

    def ask(token: str, path: str = "/v1/persona") -> Any:
        return send(server.url, "GET", path, x_forwarded_for="192.0.2.9", authorization=f"Bearer {token}")

    assert [ask(one).status for _ in range(6)] == [200] * 5 + [429]
    refused = ask(one, "/v1/sessions")
    check_problem(refused, 429, "More than 5 requests in a minute")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert ask(one, "/healthz").status == 200
    assert ask(one, "/").status == 429
    assert ask(other).status == 200
    assert all(server.get("/v1/persona")[0] == 200 for _ in range(7))


def test_a_broker_that_is_down_is_a_reason_and_no_more(home: Path) -> None:
    with socket.socket() as nobody:  # bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        with RunningServer(home, broker_url=f"redis://127.0.0.1:{nobody.getsockname()[1]}/0") as server:

            def broker() -> str:
                status, ready = server.get("/readyz")
                assert (status, ready["ready"]) == (200, True)
                return "".join(reason for reason in ready["reasons"] if "STACKMEM_BROKER_URL" in reason)

            until(broker, "the broker is a reason")
            assert server.say("まだ話せる？")["reply"]
            assert figures(server)["stackmem_broker_up",] == 0
