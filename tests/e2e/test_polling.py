"""``POST /v1/turns?wait=0`` and ``GET /v1/jobs/{id}``: for robots that cannot wait on one connection."""

import threading
from pathlib import Path
from typing import Any

from tests.checking import rows
from tests.running import Reply, RunningServer, until
from tests.scripted import Answer, ScriptedServer, say
from tests.wire import check_problem, send

TIMEOUT_S = 4  # of a turn
PERSONA = 'name = "{}"\nfallback = ["ごめん"]\nemotions = ["happy"]\nactions = ["nod"]\n'


def polled(server: RunningServer, job_id: int) -> dict[str, Any]:
    """Poll until the job is over."""

    def over() -> dict[str, Any] | None:
        status, job = server.get(f"/v1/jobs/{job_id}")
        assert status == 200, job
        return job if job["state"] not in ("waiting", "running") else None

    return until(over, "the job is over")  # type: ignore[no-any-return]


def test_a_polled_turn_survives_a_kill_and_is_one_turn(home: Path) -> None:
    may_answer = threading.Event()
    (home.parent / "me.toml").write_text(PERSONA.format("ハナコ"), "utf-8")

    def script(request: Any) -> Answer:
        if not may_answer.is_set():
            may_answer.wait(30)
        return say("おかえり！", "happy", "nod")

    with ScriptedServer(script) as model:
        server = RunningServer(
            home,
            chat_base_url=model.base_url,
            chat_model="scripted",
            memory_model="offline",
            judge_model="offline",
            turn_timeout_s=str(TIMEOUT_S),
            persona=str(home.parent / "me.toml"),
        )
        server.start()
        asked = {"text": "ただいま", "session_id": "s", "client_turn_id": "boot-1"}
        status, job = server.post("/v1/turns?wait=0", asked)
        assert (status, set(job)) == (202, {"job_id"})
        assert server.get(f"/v1/jobs/{job['job_id']}")[1]["state"] in ("waiting", "running")
        server.kill()
        may_answer.set()
        with server:
            assert server.get("/v1/persona")[1]["name"] == "ハナコ"
            assert server.post("/v1/turns?wait=0", asked) == (202, job)
            answer = polled(server, job["job_id"])
            assert (answer["state"], answer["text"]) == ("done", "ただいま")
            if answer["degraded"]:  # a machine on which a start takes longer than two turns may take
                assert answer["reply"] == "ごめん"
            else:
                assert (answer["reply"], answer["emotion"], answer["action"]) == ("おかえり！", "happy", "nod")
            assert server.get(f"/v1/jobs/{job['job_id']}") == (200, answer)
            waited = server.say("ただいま", "s", client_turn_id="boot-1")
            assert waited == {name: value for name, value in answer.items() if name not in ("job_id", "state")}
            assert rows(home, "SELECT user FROM turn") == [("ただいま",)]
            _over_http_1_0(server)
            _persona_edited(server, home, model)
            assert "Traceback" not in server.said(), server.said()


def _persona_edited(server: RunningServer, home: Path, model: ScriptedServer) -> None:
    """An edit is used by the next turn; a broken one is told and keeps the old."""
    file = home.parent / "me.toml"
    good = PERSONA.format("タロウ")
    for text, error in ((good, ""), ("name = ", "STACKMEM_PERSONA is wrong"), (good, "")):
        file.write_text(text, "utf-8")
        persona = server.get("/v1/persona")[1]
        assert (persona["name"], error in (persona["error"] or "")) == ("タロウ", True)
        assert any("STACKMEM_PERSONA" in reason for reason in server.get("/readyz")[1]["reasons"]) == bool(error)
    server.say("だれ？")
    assert "タロウ" in model.requests[-1].json["messages"][0]["content"]


def _over_http_1_0(server: RunningServer) -> None:
    """What a small client sees: lengths, an address that is relative, and one sentence where something is wrong."""
    body = '{"text": "もう一回"}'.encode()
    answer = send(server.url, "POST", "/v1/turns?wait=0", body, "1.0", content_type="application/json", host=None)
    assert answer.status == 202
    assert answer.headers["location"] == f"/v1/jobs/{answer.json['job_id']}"
    for wait in ("1", ""):
        status, turn = server.post(f"/v1/turns?wait={wait}", {"text": "待つよ"})
        assert (status, turn["reply"]) == (200, "おかえり！")
    polled(server, answer.json["job_id"])
    refused: list[tuple[str, Any]] = [("maybe", {"text": "あ"}), ("0", {"text": " "}), ("0", {})]
    for wait, value in refused:
        reply: Reply = server.post(f"/v1/turns?wait={wait}", value)
        assert reply[0] == 400, reply
    for number in ("0", "99", "x", "%00"):
        check_problem(send(server.url, "GET", f"/v1/jobs/{number}"), 404, "no job")
