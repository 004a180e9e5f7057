"""Who may talk to the memory, and whose memories they see."""

import json
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.routes import filled, routes
from tests.running import RunningServer, command, environment, json_of, until
from tests.wire import Answer, check_problem, send

JSON = "application/json"
TOLD = {"home": "うちの猫の名前はミケっていうの", "alice": "うちの犬の名前はポチっていうの"}


@dataclass(frozen=True)
class World:
    """A server on every address, and two owners with a device each."""

    server: RunningServer
    lan_url: str
    tokens: dict[str, str]

    def ask(self, method: str, path: str, body: Any = None, *, local: bool = False, **headers: str) -> Answer:
        """Send a request from the LAN, or from this machine."""
        data = None if body is None else json.dumps(body).encode()
        url = self.server.url if local else self.lan_url
        return send(url, method, path, data, content_type=JSON, **headers)

    def as_owner(self, owner: str, method: str, path: str, body: Any = None) -> Answer:
        """Send a request from the LAN with the token of an owner's device."""
        return self.ask(method, path, body, authorization=f"Bearer {self.tokens[owner]}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, lan: str) -> Iterator[World]:
    home = tmp_path_factory.mktemp("access") / "home"
    tokens = {owner: json_of(home, "devices", "add", f"{owner}'s", "--owner", owner)["token"] for owner in TOLD}
    with RunningServer(home, "--host", "0.0.0.0") as server:
        it = World(server, server.url.replace("127.0.0.1", lan), tokens)
        for owner, text in TOLD.items():
            assert it.as_owner(owner, "POST", "/v1/turns", {"text": text, "session_id": "s"}).status == 200
            assert it.as_owner(owner, "POST", "/v1/sessions/s/close").json["closed"]
            server.settle(owner)
        yield it
        assert "Traceback" not in server.said(), server.said()


PATHS = [
    ("GET", "/readyz"),
    ("GET", "/v1/persona"),
    ("GET", "/v1/sessions"),
    ("GET", "/v1/memories"),
    ("GET", "/v1/memories?q=cat"),
    ("GET", "/v1/turns/1"),
    ("GET", "/v1/jobs/1"),
    ("GET", "/v1/export"),
    ("POST", "/v1/turns"),
    ("POST", "/v1/import"),
    ("POST", "/v1/sessions/s/close"),
    ("GET", "/v1/admin/status"),
    ("GET", "/nothing"),
]


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_from_the_lan_nothing_opens_without_a_token(world: World, method: str, path: str) -> None:
    answer = world.ask(method, path)
    check_problem(answer, 401, "token", "stackmem devices add")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "authorization",
    ["Bearer sm_wrong", "Bearer", "Bearer ", "Basic aG9tZTp4", "sm_wrong", "Bearer \xff", "Bearer " * 9],
)
def test_from_the_lan_a_wrong_token_opens_nothing(world: World, authorization: str) -> None:
    check_problem(world.ask("GET", "/v1/sessions", authorization=authorization), 401)


def test_a_token_cut_short_or_of_another_case_opens_nothing(world: World) -> None:
    token = world.tokens["home"]
    for wrong in (token[:-1], token + "x", token.swapcase(), token.removeprefix("sm_")):
        check_problem(world.ask("GET", "/v1/sessions", authorization=f"Bearer {wrong}"), 401)


def test_the_scheme_may_be_written_in_any_case(world: World) -> None:
    for scheme in ("bearer", "BEARER"):
        assert world.ask("GET", "/v1/sessions", authorization=f"{scheme} {world.tokens['home']}").status == 200


def test_liveness_is_open_to_everybody(world: World) -> None:
    assert world.ask("GET", "/healthz").status == 200
    assert world.ask("GET", "/healthz", authorization="Bearer wrong").status == 200
    check_problem(world.ask("GET", "/healthz/"), 401)
    check_problem(world.ask("GET", "/healthz/../v1/sessions"), 401)


def test_a_revoked_token_opens_nothing_at_once(world: World) -> None:
    token = json_of(world.server.home, "devices", "add", "lost")["token"]
    assert world.ask("GET", "/v1/sessions", authorization=f"Bearer {token}").status == 200
    assert command(world.server.home, "devices", "revoke", "lost").returncode == 0
    check_problem(world.ask("GET", "/v1/sessions", authorization=f"Bearer {token}"), 401)


def test_a_token_is_shown_once_and_stored_as_a_hash_alone(world: World) -> None:
    home = world.server.home
    listed = command(home, "devices", "list", "--json").stdout
    assert {device["owner"] for device in json.loads(listed)["devices"]} >= set(TOLD)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.name == "stackmem.db" for path in files)
    for token in world.tokens.values():
        assert token not in listed
        assert token not in world.server.said()
        for path in files:
            assert token.encode() not in path.read_bytes(), path


# --- every path ------------------------------------------------------------------------------------------------------

OPEN_TO_ALL = {"health.healthz", "static", "pages.login.show", "pages.login.enter"}
ROUTES = [(method, rule, endpoint) for method, rule, endpoint in routes() if endpoint not in OPEN_TO_ALL]
PRIVATE = ("ミケ", "home-only")  # of home alone: in what it said, what is remembered, and a session's name


@pytest.fixture(scope="module")
def ids(world: World) -> dict[str, str]:
    """What leads to home's things, by the names of the parts of paths."""
    memory = world.as_owner("home", "GET", "/v1/memories").json["memories"][0]
    job = world.as_owner("home", "POST", "/v1/turns?wait=0", {"text": "home-only", "session_id": "home-only"}).json
    return {
        "turn_id": str(memory["source_turn_ids"][0]),
        "memory_id": memory["memory_id"],
        "session_id": "home-only",
        "job_id": str(job["job_id"]),
        "name": "stackmem",
    }


def opens(world: World, method: str, path: str, **headers: str) -> bool:
    """Tell whether the LAN gets further than to a refusal, or the login."""
    answer = world.ask(method, path, None if method == "GET" else {}, **headers)
    if answer.status == 401:
        return False
    return not (answer.status == 303 and answer.headers["location"].endswith("/login"))


def test_no_path_opens_without_a_token_or_with_a_wrong_or_revoked_one(world: World, ids: dict[str, str]) -> None:
    revoked = json_of(world.server.home, "devices", "add", "stolen")["token"]
    assert opens(world, "GET", "/v1/sessions", authorization=f"Bearer {revoked}")
    assert command(world.server.home, "devices", "revoke", "stolen").returncode == 0
    tries: list[dict[str, str]] = [
        {},
        {"authorization": "Bearer sm_wrong"},
        {"authorization": f"Bearer {revoked}"},
        {"cookie": f"stackmem_token={revoked}"},
        {"x_stackmem_key": "wrong", "x_forwarded_for": "127.0.0.1"},
        {"host": "127.0.0.1"},
    ]
    for method, rule, _ in ROUTES:
        for headers in tries:
            assert not opens(world, method, filled(rule, **ids), **headers), (method, rule, headers)


def test_no_path_leads_to_another_owners_things(world: World, ids: dict[str, str]) -> None:
    before = world.as_owner("home", "GET", "/v1/export").body
    alice = {"authorization": f"Bearer {world.tokens['alice']}"}
    for method, rule, endpoint in ROUTES:
        bare = filled(rule, **ids)
        for path in (bare, f"{bare}?owner=home", f"{bare}?session_id=home-only&memory={ids['memory_id']}"):
            body = None if method == "GET" else {"text": "やあ", "messages": [{"role": "user", "content": "やあ"}]}
            # A form's own token is checked before anything else: forms are sent as a browser does in test_pages.py.
            answer = world.ask(method, path, body, **alice)
            assert answer.status < 500, (method, path, answer)
            if endpoint != "turns.close_session":
                assert not [word for word in PRIVATE if word.encode() in answer.body], (method, path, answer.body)
            if set(re.findall(r"<(?:\w+:)?(\w+)>", rule)) & set(ids) - {"name"} and endpoint.startswith(
                ("turns.", "memories.")
            ):
                assert answer.status in (400, 404), (method, path, answer)
    assert world.as_owner("home", "GET", "/v1/export").body == before


@pytest.mark.parametrize("odd", ["9" * 23, "9" * 19, "-1", "%00", "..%2f..%2f", "%2e%2e", "%ED%A0%80", "%0d%0aX:y"])
def test_an_odd_part_of_a_path_is_not_found(world: World, odd: str) -> None:
    for method, rule, _ in ROUTES:
        if "<" in rule:
            answer = world.ask(method, re.sub(r"<[^>]+>", odd, rule), None if method == "GET" else {}, local=True)
            assert answer.status in (303, 400, 403, 404, 405), (method, rule, answer)
            assert b"Traceback" not in answer.body


def test_no_header_leads_to_another_owners_things(world: World) -> None:
    said = world.ask("POST", "/v1/turns", {"text": "x"}, authorization=f"Bearer {world.tokens['alice']}",
                     x_session_id="home-only", idempotency_key="1", x_stackmem_owner="home").json  # fmt: skip
    assert said["session_id"] == "home-only"  # one of alice's own
    assert [turn for turn in exported(world, "home") if turn["turn_id"] == said["turn_id"]] == []
    assert [turn for turn in exported(world, "alice") if turn["turn_id"] == said["turn_id"]] != []


def exported(world: World, owner: str) -> list[Any]:
    lines = world.as_owner(owner, "GET", "/v1/export").body.decode().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == "turn"]


# --- whose -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("owner", "other"), [("home", "alice"), ("alice", "home")])
def test_a_device_sees_its_owner_and_never_another(world: World, owner: str, other: str) -> None:
    def get(path: str) -> Any:
        answer = world.as_owner(owner, "GET", path)
        assert answer.status == 200, answer
        return answer

    assert [row["session_id"] for row in get("/v1/sessions").json["sessions"]].count("s") == 1
    for query in ("", "?q=pet", "?q=cat", "?q=dog", "?q=%E3%83%9F%E3%82%B1", "?q=%E3%83%9D%E3%83%81", "?entity=home"):
        assert {memory["owner"] for memory in get(f"/v1/memories{query}").json["memories"]} <= {owner}
    assert get("/v1/memories").json["count"] == get("/v1/memories?q=pet").json["count"] == 1
    export = get("/v1/export").body.decode()
    assert TOLD[owner] in export
    assert TOLD[other] not in export


def test_what_belongs_to_another_is_not_found(world: World) -> None:
    theirs = world.as_owner("alice", "GET", "/v1/memories").json["memories"][0]
    turn_id, memory_id = theirs["source_turn_ids"][0], theirs["memory_id"]
    for path in (f"/v1/turns/{turn_id}", f"/v1/memories/{memory_id}", f"/v1/memories/{memory_id}/sources"):
        assert world.as_owner("alice", "GET", path).status == 200
        check_problem(world.as_owner("home", "GET", path), 404)
    job = world.as_owner("alice", "POST", "/v1/turns?wait=0", {"text": "hi", "session_id": "s"}).json["job_id"]
    assert world.as_owner("alice", "GET", f"/v1/jobs/{job}").status == 200
    check_problem(world.as_owner("home", "GET", f"/v1/jobs/{job}"), 404)
    world.as_owner("alice", "POST", "/v1/turns", {"text": "hi", "session_id": "only alice's"})
    check_problem(world.as_owner("home", "POST", "/v1/sessions/only%20alice's/close"), 404)


def test_one_asks_and_the_other_memory_stays_out_of_it(world: World) -> None:
    answer = world.as_owner("alice", "POST", "/v1/turns", {"text": "飼ってるペットの名前おぼえてる？"}).json
    assert answer["searched"]
    assert "ポチ" in answer["reply"]
    assert "ミケ" not in answer["reply"]
    theirs = {memory["memory_id"] for memory in world.as_owner("alice", "GET", "/v1/memories").json["memories"]}
    assert set(answer["memory_ids"]) <= theirs


def test_an_owner_in_the_query_is_no_way_in(world: World) -> None:
    for path in ("/v1/memories?owner=alice", "/v1/export?owner=alice", "/v1/sessions?owner=alice"):
        assert TOLD["alice"] not in world.as_owner("home", "GET", path).body.decode()
        assert TOLD["alice"] not in world.ask("GET", path, local=True).body.decode()


def test_the_same_key_of_two_devices_is_two_turns(world: World) -> None:
    token = json_of(world.server.home, "devices", "add", "second")["token"]
    body = {"text": "hi", "client_turn_id": "1"}
    first = world.as_owner("home", "POST", "/v1/turns", body).json
    second = world.ask("POST", "/v1/turns", body, authorization=f"Bearer {token}").json
    assert first["turn_id"] != second["turn_id"]
    assert first["session_id"] != second["session_id"]


# --- this machine ----------------------------------------------------------------------------------------------------


def test_this_machine_needs_no_token(world: World) -> None:
    answer = world.ask("GET", "/v1/memories", local=True)
    assert {memory["owner"] for memory in answer.json["memories"]} == {"home"}


@pytest.mark.parametrize("authorization", ["Bearer sk-any", "Bearer", "Basic eDp5", "Bearer \xff"])
def test_on_this_machine_any_other_bearer_is_ignored(world: World, authorization: str) -> None:
    answer = world.ask("GET", "/v1/memories", local=True, authorization=authorization)
    assert {memory["owner"] for memory in answer.json["memories"]} == {"home"}


def test_on_this_machine_a_devices_token_chooses_its_owner(world: World) -> None:
    answer = world.ask("GET", "/v1/memories", local=True, authorization=f"Bearer {world.tokens['alice']}")
    assert {memory["owner"] for memory in answer.json["memories"]} == {"alice"}


@pytest.mark.parametrize(
    "header",
    [
        {"x_forwarded_for": "203.0.113.9"},
        {"X_FORWARDED_FOR": "127.0.0.1"},
        {"x_forwarded_for": ""},
        {"forwarded": "for=203.0.113.9"},
        {"x_forwarded_proto": "https"},
        {"x_forwarded_host": "robot.example.com"},
        {"x_forwarded_port": "443"},
        {"x_forwarded_by": "proxy"},
        {"x_forwarded_server": "proxy"},
        {"x_real_ip": "203.0.113.9"},
        {"via": "1.1 proxy"},
    ],
)
def test_what_comes_through_a_proxy_needs_a_token(world: World, header: dict[str, str]) -> None:
    check_problem(world.ask("GET", "/v1/sessions", local=True, **header), 401)
    token = {"authorization": f"Bearer {world.tokens['alice']}"}
    assert world.ask("GET", "/v1/sessions", local=True, **header, **token).status == 200


def test_another_web_server_does_not_hide_the_proxy(home: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    with subprocess.Popen(
        [sys.executable, "-m", "waitress", f"--listen={listen}", "--call", "web:create_app"],
        env=environment(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            until(lambda: _answers(f"http://{listen}"), "it answers")
            for name in ("x_forwarded_for", "forwarded", "x_forwarded_server"):
                check_problem(send(f"http://{listen}", "GET", "/v1/sessions", **{name: "203.0.113.9"}), 401)
            assert send(f"http://{listen}", "GET", "/v1/sessions").status == 200
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        return send(url, "GET", "/healthz").status == 200
    except OSError:
        return False


# --- the command line's key ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/admin/status"), ("POST", "/v1/admin/sweep"), ("POST", "/v1/admin/reindex"), ("GET", "/v1/admin/x")],
)
def test_without_the_key_there_are_no_admin_routes(world: World, method: str, path: str) -> None:
    check_problem(world.ask(method, path, {}, local=True), 404, "nothing at this address")
    check_problem(world.ask(method, path, {}, local=True, x_stackmem_key="wrong"), 404)
    check_problem(world.ask(method, path, {}, local=True, x_stackmem_key="\xff"), 404)
    check_problem(world.as_owner("home", method, path, {}), 404)


def test_the_key_opens_every_owner_and_only_its_user_can_read_it(world: World) -> None:
    file = world.server.home / "server.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(world.server.home.stat().st_mode) == 0o700
    key = json.loads(file.read_text())["key"]
    answer = world.ask("GET", "/v1/memories?owner=alice", local=True, x_stackmem_key=key)
    assert {memory["owner"] for memory in answer.json["memories"]} == {"alice"}
    assert world.ask("GET", "/v1/admin/status?owner=alice", local=True, x_stackmem_key=key).status == 200
    assert key not in world.server.said()


# --- starting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "lan", "::"])
def test_on_the_lan_it_does_not_start_without_a_device(home: Path, lan: str, host: str) -> None:
    done = command(home, "up", "--host", lan if host == "lan" else host, "--port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: Not started: on ")
    assert "stackmem devices add NAME" in done.stderr
    assert "--insecure" in done.stderr


def test_a_setting_opens_no_more_than_an_option(home: Path) -> None:
    done = command(home, "up", "--port", "0", host="0.0.0.0")
    assert done.returncode == 1
    assert "Not started" in done.stderr


def test_insecure_lets_everybody_in_and_says_so(home: Path, lan: str) -> None:
    with RunningServer(home, "--host", lan, "--insecure") as server:
        assert server.url.startswith(f"http://{lan}:")
        assert send(server.url, "GET", "/v1/sessions").status == 200
        assert "no token is asked for" in server.said()
        assert server.status()["turns"]["open"] == 0


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2"])
def test_a_loopback_address_needs_no_device(home: Path, host: str) -> None:
    with RunningServer(home, "--host", host) as server:
        assert server.get("/v1/sessions")[0] == 200


def test_the_robots_address_is_printed(world: World) -> None:
    assert f"The robot's address: {world.lan_url}/v1/turns" in world.server.said()
    assert f"stackmem is ready: {world.server.url}\n" in world.server.said()


def test_on_loopback_it_says_how_the_robot_would_reach_it(home: Path, lan: str) -> None:
    with RunningServer(home) as server:
        assert "stackmem devices add NAME" in server.said()
        assert f"http://{lan}:" in server.said()
