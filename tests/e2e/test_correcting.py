"""What a person decides about memories, over HTTP and by commands: corrected, forgotten on request, tried again."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.checking import LONG_AGO, check_store, execute, files_with, rows
from tests.running import RunningServer, command, json_of, request, until
from tests.scripted import Answer, ScriptedServer, content, error

CAT = "うちの猫の名前はミケっていうの"
LAPTOP = "きのう富士通のノートPCを12万円で買ったんだ"
DOG = "うちの犬の名前はポチっていうの"
SAFE = "うちの金庫の番号は4649だよ"
FORGET_IT = "やっぱりそれ忘れて"


@dataclass(frozen=True)
class Robot:
    """Somebody who talks to the server with the token of their own device."""

    server: RunningServer
    token: str

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> tuple[int, Any]:
        """Send a request."""
        return request(method, self.server.url + path, body, {"Authorization": f"Bearer {self.token}"}, **more)

    def tell(self, session: str, *texts: str) -> list[dict[str, Any]]:
        """Tell something in a session and end it; return the memories made of it, oldest first."""
        for text in texts:
            status, answer = self.ask("POST", "/v1/turns", {"text": text, "session_id": session})
            assert status == 200, answer
        assert self.ask("POST", f"/v1/sessions/{session}/close", {}) == (200, {"session_id": session, "closed": True})
        home = self.server.home
        left = "SELECT count(*) FROM turn WHERE state IN ('open', 'pending')"
        until(lambda: rows(home, left) == [(0,)], "everything is remembered")
        waits = "SELECT (SELECT count(*) FROM memory WHERE outdated) + (SELECT count(*) FROM point_deletion)"
        until(lambda: rows(home, waits) == [(0,)], "everything is in the index")
        until(lambda: rows(home, "SELECT count(*) FROM window WHERE NOT compared") == [(0,)], "it is compared")
        ids = [row[0] for row in rows(home, "SELECT id FROM memory m ORDER BY created_at, id")]
        said = {memory["memory_id"]: memory for memory in self.ask("GET", "/v1/memories")[1]["memories"]}
        names = {turn["turn_id"] for turn in self._turns() if turn["session_id"] == session}
        return [said[each] for each in ids if each in said and names & set(said[each]["source_turn_ids"])]

    def _turns(self) -> list[dict[str, Any]]:
        lines = self.ask("GET", "/v1/export")[1].splitlines()
        return [line for line in map(json.loads, lines) if line["kind"] == "turn"]

    def found(self, query: str) -> list[str]:
        """Return the summaries a search finds, the best first."""
        status, found = self.ask("GET", f"/v1/memories?q={quote(query)}")
        assert status == 200, found
        return [memory["summary"] for memory in found["memories"]]

    def refused(self, status: int, method: str, path: str, body: Any = None, **more: str) -> str:
        """Send a request that must be refused with one sentence; return it."""
        code, problem = self.ask(method, path, body, **more)
        assert (code, problem["status"]) == (status, status), problem
        sentence: str = problem["detail"]
        assert sentence.endswith("."), sentence
        assert "\n" not in sentence
        return sentence


@pytest.fixture(scope="module")
def robots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Robot, Robot]]:
    """One server with two owners: home, and Mari."""
    home = tmp_path_factory.mktemp("correcting") / "home"
    tokens = [json_of(home, "devices", "add", owner, "--owner", owner)["token"] for owner in ("home", "mari")]
    with RunningServer(home) as server:
        yield Robot(server, tokens[0]), Robot(server, tokens[1])
        assert "Traceback" not in server.said(), server.said()


@pytest.fixture(scope="module")
def robot(robots: tuple[Robot, Robot]) -> Robot:
    return robots[0]


# --- over HTTP -------------------------------------------------------------------------------------------------------


def test_a_memory_is_forgotten_and_restored(robot: Robot) -> None:
    (memory,) = robot.tell("a", "妹は大阪に住んでるんだ")
    path = f"/v1/memories/{memory['memory_id']}"
    status, done = robot.ask("DELETE", path)
    assert (status, done["memory_ids"]) == (200, [memory["memory_id"]])
    assert "大阪" not in "".join(robot.found("妹の住まい"))
    assert robot.ask("GET", "/v1/memories?status=forgotten")[1]["memories"][0]["summary"] == memory["summary"]
    robot.refused(404, "GET", path)
    robot.refused(404, "GET", f"{path}/sources")
    status, again = robot.ask("DELETE", path)
    assert (status, again["memory_ids"]) == (200, [memory["memory_id"]])  # twice is once
    assert robot.ask("POST", f"{path}/restore", {}) == (200, {"memory_ids": [memory["memory_id"]]})
    until(lambda: "大阪" in "".join(robot.found("妹の住まい")), "it is found again")
    assert robot.ask("GET", path)[1]["status"] == "active"
    assert robot.refused(404, "POST", f"{path}/restore", {}) == f"{memory['memory_id']} is not forgotten."


def test_a_memory_is_forgotten_for_good_with_its_words(robot: Robot) -> None:
    (memory,) = robot.tell("b", "好きな歌手はミスチルの桜井さんなんだ")
    path = f"/v1/memories/{memory['memory_id']}"
    for query in ("turns=maybe", "now=2", "turns=1&now=x", "now=1&turns=-1"):
        assert robot.refused(400, "DELETE", f"{path}?{query}").endswith("must be 1 or 0.")
    assert robot.ask("GET", path)[0] == 200
    assert robot.ask("DELETE", f"{path}?turns=1&now=1")[0] == 200
    assert robot.ask("GET", f"/v1/turns/{memory['source_turn_ids'][0]}")[1]["text"] == ""
    until(lambda: not files_with(robot.server.home, "ミスチル"), "no file holds it")
    for method, at in (("GET", path), ("DELETE", path), ("POST", f"{path}/restore"), ("GET", f"{path}/sources")):
        assert robot.refused(404, method, at, {} if method == "POST" else None).startswith("There is no memory")


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (400, {}, "application/json"),
        (400, b"", "application/json"),
        (400, b"{", "application/json"),
        (400, ["summary"], "application/json"),
        (400, {"summary": ""}, "application/json"),
        (400, {"summary": None}, "application/json"),
        (400, {"summary": "長" * 2001}, "application/json"),
        (400, {"status": "forgotten"}, "application/json"),
        (400, {"summary": "よい", "memory_id": "mem_1"}, "application/json"),
        (400, {"memory_type": "dream"}, "application/json"),
        (400, {"entities": "ミケ"}, "application/json"),
        (400, {"entities": [""]}, "application/json"),
        (400, {"occurred_at": "そのうち"}, "application/json"),
        (400, {"occurred_from": "2026-07-02", "occurred_to": "2026-07-01"}, "application/json"),
        (415, {"summary": "よい"}, "text/plain"),
        (415, b"RIFF", "audio/wav"),
    ],
)
def test_a_wrong_correction_is_refused_with_a_sentence(
    robot: Robot, cat: dict[str, Any], status: int, body: Any, content_type: str
) -> None:
    robot.refused(status, "PATCH", f"/v1/memories/{cat['memory_id']}", body, content_type=content_type)
    assert robot.ask("GET", f"/v1/memories/{cat['memory_id']}")[1]["status"] == "active"


@pytest.fixture(scope="module")
def cat(robot: Robot) -> dict[str, Any]:
    (memory,) = robot.tell("cat", CAT)
    return memory


def test_a_corrected_memory_is_found_with_what_it_was(robot: Robot) -> None:
    (old,) = robot.tell("c", LAPTOP)
    path = f"/v1/memories/{old['memory_id']}"
    status, new = robot.ask(
        "PATCH", path, {"summary": "富士通のノートPCは13万5千円だった。", "entities": ["富士通", "PC"]}
    )
    assert status == 200, new
    assert new["memory_id"] != old["memory_id"]
    assert (new["summary"], new["source_turn_ids"]) == ("富士通のノートPCは13万5千円だった。", old["source_turn_ids"])
    until(lambda: "富士通のノートPCは13万5千円だった。" in robot.found("ノートPCの値段"), "it is found")
    assert old["summary"] not in robot.found("ノートPCの値段")
    shown = robot.ask("GET", f"/v1/memories/{new['memory_id']}")[1]
    assert [(older["memory_id"], older["status"]) for older in shown["history"]] == [(old["memory_id"], "superseded")]
    assert new["memory_id"] in robot.refused(409, "PATCH", path, {"summary": "また違う。"})
    assert robot.ask("GET", path)[1]["superseded_by"] == new["memory_id"]
    status, gone = robot.ask("DELETE", f"/v1/memories/{new['memory_id']}")
    assert set(gone["memory_ids"]) == {old["memory_id"], new["memory_id"]}  # what it replaced tells the same
    robot.refused(404, "PATCH", path, {"summary": "まだある？"})


def test_anothers_memory_and_one_that_is_not_there_are_the_same_404(robots: tuple[Robot, Robot]) -> None:
    _, mari = robots
    (memory,) = mari.tell("m", DOG)
    assert memory["owner"] == "mari"
    other = "mem_01K0000000000000000000000Z"
    for identity in (memory["memory_id"], other, "x", "%00", "mem_" + "9" * 300):
        path = f"/v1/memories/{identity}"
        for robot in (robots[0], mari) if identity != memory["memory_id"] else (robots[0],):
            for method, at, body in (
                ("GET", path, None),
                ("GET", f"{path}/sources", None),
                ("PATCH", path, {"summary": "わたしのもの。"}),
                ("DELETE", path, None),
                ("DELETE", f"{path}?turns=1&now=1", None),
                ("POST", f"{path}/restore", {}),
            ):
                assert robot.refused(404, method, at, body).startswith("There is no memory"), (method, at)
    assert mari.ask("GET", f"/v1/memories/{memory['memory_id']}")[1] == memory | {"history": []}
    assert mari.ask("DELETE", f"/v1/memories/{memory['memory_id']}")[0] == 200
    robots[0].refused(404, "POST", f"/v1/memories/{memory['memory_id']}/restore", {})
    assert mari.ask("POST", f"/v1/memories/{memory['memory_id']}/restore", {})[0] == 200


# --- what the user asked the robot to forget -------------------------------------------------------------------------


def test_a_wish_to_forget_waits_for_a_person(robot: Robot) -> None:
    home = robot.server.home
    (memory,) = robot.tell("safe", SAFE, FORGET_IT)
    assert "4649" in memory["summary"]
    (asked,) = json_of(home, "status")["forget_requests"]
    assert (asked["text"], [about["memory_id"] for about in asked["memories"]]) == (FORGET_IT, [memory["memory_id"]])
    said = command(home, "status").stdout
    assert f"stackmem memories forget --request {asked['request_id']}" in said
    assert memory["memory_id"] in said
    assert json_of(home, "status", "--owner", "mari")["forget_requests"] == []
    assert "4649" in "".join(robot.found("金庫の番号"))  # nothing is deleted by itself

    others = command(home, "memories", "forget", "--request", str(asked["request_id"]), "--owner", "mari")
    assert (others.returncode, others.stderr) == (1, f"Error: There is no open forget request {asked['request_id']}.\n")
    done = json_of(home, "memories", "forget", "--request", str(asked["request_id"]), "--turns", "--now")
    assert done["memory_ids"] == [memory["memory_id"]]
    assert "4649" not in "".join(robot.found("金庫の番号"))
    assert not files_with(home, "4649")
    assert json_of(home, "status")["forget_requests"] == []


def test_a_wish_to_forget_may_be_dropped(robot: Robot) -> None:
    home = robot.server.home
    (memory,) = robot.tell("code", "うちのハムスターの名前はだいふくっていうの", FORGET_IT)
    (asked,) = json_of(home, "status")["forget_requests"]
    number = str(asked["request_id"])
    assert "nothing was forgotten" in command(home, "memories", "dismiss", number).stdout
    assert json_of(home, "status")["forget_requests"] == []
    assert robot.ask("GET", f"/v1/memories/{memory['memory_id']}")[1]["status"] == "active"
    again = command(home, "memories", "dismiss", number)
    assert (again.returncode, again.stderr) == (1, f"Error: There is no open forget request {number}.\n")


# --- by commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_server", [False, True], ids=["alone", "with a server"])
def test_commands_correct_a_memory_and_know_its_other_names(robot: Robot, home: Path, with_server: bool) -> None:
    if with_server:
        home = robot.server.home
    owner = ("--owner", "kei")
    assert command(home, "chat", *owner, "--session", "s", stdin=LAPTOP + "\n" + CAT + "\n").returncode == 0
    until(lambda: _settled(json_of(home, "status", *owner)), "it is remembered")
    old = json_of(home, "memories", "search", "ノートPC", *owner, "--limit", "1")["memories"][0]
    changes = (
        "--summary",
        "富士通のノートPCは15万円だった。",
        "--topic",
        "PCの値段",
        "--entity",
        "富士通",
        "--entity",
        "PC",
    )
    new = json_of(
        home, "memories", "edit", old["memory_id"], *changes, "--type", "decision", "--at", "2026-07-23", *owner
    )
    assert (new["topic"], new["entities"], new["memory_type"]) == ("PCの値段", ["富士通", "PC"], "decision")
    assert new["occurred_at"][:10] == new["occurred_to"][:10] == "2026-07-23"
    found = json_of(home, "memories", "search", "PCの値段", *owner, "--limit", "1")["memories"][0]
    assert found["memory_id"] == new["memory_id"]
    shown = command(home, "memories", "show", new["memory_id"], *owner).stdout
    assert LAPTOP in shown
    assert f"  before:\n{old['memory_id']}" in shown
    assert old["summary"] in shown
    late = command(home, "memories", "edit", old["memory_id"], "--summary", "x", *owner)
    assert (late.returncode, late.stderr) == (
        1,
        f"Error: This memory was replaced by {new['memory_id']}: correct that one.\n",
    )

    about = ("memories", "list", "--entity", "Fujitsu", *owner)
    assert json_of(home, *about)["count"] == 0
    added = json_of(home, "memories", "alias", "富士通", "Fujitsu", *owner)
    assert [set(each["names"]) for each in added["aliases"]] == [{"富士通", "Fujitsu"}]
    assert json_of(home, *about)["memories"][0]["memory_id"] == new["memory_id"]
    found = json_of(home, "memories", "search", "Fujitsu", *owner)["memories"]
    assert found[0]["memory_id"] == new["memory_id"]
    assert json_of(home, "memories", "alias", "--remove", "FUJITSU", "富士通", *owner) == {"aliases": []}
    assert json_of(home, *about)["count"] == 0


def _settled(status: dict[str, Any]) -> bool:
    return not (status["turns"]["open"] or status["turns"]["pending"] or status["index"]["pending"])


# --- what failed is tried again --------------------------------------------------------------------------------------


class Model:
    """A memory model that a test makes good, bad or unreachable."""

    def __init__(self) -> None:
        self.state = "bad"

    def __call__(self, asked: Any) -> Answer:
        if self.state == "down":
            return error(503, "overloaded")
        if self.state == "bad":
            return content("ごめんなさい、JSONって何ですか？")
        given = json.loads(asked["messages"][-1]["content"])
        if "turns" not in given:
            return content('{"decisions": []}')
        kept = [
            {"turn_ids": [turn["turn_id"]], "keep": True, "topic": "話", "summary": turn["user"], "entities": [],
             "memory_type": "episode"}
            for turn in given["turns"]
        ]  # fmt: skip
        return content(json.dumps({"segments": kept}, ensure_ascii=False))


@pytest.mark.parametrize("with_server", [False, True], ids=["alone", "with a server"])
def test_turns_that_failed_are_remembered_on_retry(home: Path, with_server: bool) -> None:
    model = Model()
    with ScriptedServer(model) as memory_model:
        settings = {"memory_base_url": memory_model.base_url, "memory_model": "m"}
        server = RunningServer(home, **settings)
        server.start()
        server.say(CAT, "s")
        server.post("/v1/sessions/s/close")
        until(lambda: rows(home, "SELECT attempts FROM session") == [(1,)], "the first attempt failed")
        # The delays grow to 40 s: the time that passes is left out, the attempts are not.
        execute(home, "UPDATE session SET attempts = 4, retry_at = ?, enqueued_at = NULL", LONG_AGO)
        key = json.loads((home / "server.json").read_text())["key"]
        assert server.post("/v1/admin/sweep", {}, **{"X-Stackmem-Key": key})[0] == 200
        until(lambda: rows(home, "SELECT state FROM turn") == [("failed",)], "the turn has failed")
        assert server.status()["turns"]["failed"] == 1
        assert "stackmem retry" in command(home, "status", **settings).stdout
        if not with_server:
            server.stop()
        model.state = "good"
        assert json_of(home, "retry", **settings) == {"turns": 1, "comparisons": 0}
        until(lambda: rows(home, "SELECT count(*) FROM memory WHERE NOT outdated") == [(1,)], "it is remembered")
        status = json_of(home, "status", **settings)
        assert (status["turns"]["failed"], status["turns"]["kept"], status["index"]["points"]) == (0, 1, 1)
        assert json_of(home, "memories", "search", "猫の名前", **settings)["memories"][0]["summary"] == CAT
        server.stop()
    check_store(home, turns=1)


def test_what_waits_for_a_model_that_was_down_is_tried_at_once(home: Path) -> None:
    model = Model()
    model.state = "down"
    with (
        ScriptedServer(model) as memory_model,
        RunningServer(home, memory_base_url=memory_model.base_url, memory_model="m") as server,
    ):
        server.say(CAT, "s")
        server.post("/v1/sessions/s/close")
        until(lambda: rows(home, "SELECT delays FROM session") == [(1,)], "the model was down")
        execute(home, "UPDATE session SET delays = 8, retry_at = '2999-01-01T00:00:00.000000+00:00'")
        model.state = "good"
        assert json_of(home, "retry") == {"turns": 0, "comparisons": 0}
        until(lambda: rows(home, "SELECT state FROM turn") == [("kept",)], "it is remembered", 20)
