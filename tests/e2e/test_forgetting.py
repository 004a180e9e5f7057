"""Forgetting, over real processes: gone at once from every search, then from every file, brought back by nothing."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.checking import LONG_AGO, check_store, execute, files_with, rows
from tests.running import PATIENCE, RunningServer, command, environment, json_of, until
from tests.shapes import copy_home

SECRET = "キャラメル"  # in a turn, its memory's topic, summary and entities, a reply and a trace
TOLD = "うちの猫の名前はキャラメルっていうの"
OTHER = "きのう富士通のノートPCを12万円で買ったんだ"
ASKED = "飼ってるペットの名前おぼえてる？"
TURNS = 3


@dataclass
class Told:
    """A home folder in which a secret was told in one session and recalled in another; a server runs on it or none."""

    home: Path
    settings: dict[str, str]
    export: Path  # taken before anything was forgotten
    server: RunningServer | None = None
    stack: ExitStack = field(default_factory=ExitStack)

    def run(self, *arguments: str) -> str:
        """Return what a command prints; it must end well."""
        done = command(self.home, *arguments, **self.settings)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Return the JSON a command prints."""
        return json_of(self.home, *arguments, **self.settings)

    def search(self, query: str) -> list[str]:
        """Return the summaries a search finds."""
        return [memory["summary"] for memory in self.json("memories", "search", query)["memories"]]

    def listed(self, status: str) -> list[str]:
        """Return the ids of the memories with a status."""
        return [memory["memory_id"] for memory in self.json("memories", "list", "--status", status)["memories"]]

    @property
    def secret_id(self) -> str:
        """The id of the memory that holds the secret."""
        return rows(self.home, "SELECT memory_id FROM memory_source WHERE turn_id = 1")[0][0]  # type: ignore[no-any-return]

    @property
    def kind(self) -> str:
        """Of the index."""
        return self.settings["index_url"].rstrip(":")

    def up(self) -> RunningServer:
        """Return the running server; start one where there is none."""
        if self.server is None:
            self.server = self.stack.enter_context(RunningServer(self.home, **self.settings))
        return self.server

    def restarted(self) -> RunningServer:
        """Stop the server where one runs, and start it."""
        if self.server is None:
            return self.up()
        assert self.server.stop() == 0
        self.server.start()
        return self.server

    def stopped(self) -> None:
        """Stop the server where one runs."""
        if self.server is not None:
            assert self.server.stop() == 0


def tell(home: Path, session: str, *texts: str, **settings: str) -> None:
    done = command(home, "chat", "--session", session, stdin="".join(text + "\n" for text in texts), **settings)
    assert (done.returncode, done.stderr) == (0, ""), done


def make_before(home: Path, index_url: str) -> Told:
    """Tell the secret on Monday, recall it on Friday, and take an export."""
    home.mkdir()
    told = Told(home, {"index_url": index_url}, home.parent / "export.jsonl")
    tell(home, "monday", TOLD, OTHER, **told.settings)
    tell(home, "friday", ASKED, **told.settings)
    told.run("export", "--output", str(told.export))
    assert SECRET in told.export.read_text("utf-8")
    return told


@pytest.fixture(scope="module")
def before_edge(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The store that every test on Edge copies."""
    return make_before(tmp_path_factory.mktemp("before") / "home", "edge:")


@pytest.fixture(scope="module")
def before_local(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The store that every test on local mode copies."""
    return make_before(tmp_path_factory.mktemp("before") / "home", "local:")


def begun(before: Told, home: Path, *, with_server: bool) -> Iterator[Told]:
    """Copy the store, and start a server on it where one is wanted."""
    copy_home(before.home, home)
    told = Told(home, before.settings, before.export)
    with told.stack:
        if with_server:
            told.up()
        yield told
        if told.server is not None:
            assert "Traceback" not in told.server.said(), told.server.said()


@pytest.fixture
def edge(before_edge: Told, home: Path) -> Iterator[Told]:
    """A server on Edge."""
    yield from begun(before_edge, home, with_server=True)


@pytest.fixture
def local(before_local: Told, home: Path) -> Iterator[Told]:
    """Local mode without a server."""
    yield from begun(before_local, home, with_server=False)


@pytest.fixture(params=["edge", "local"], ids=["Edge with a server", "local mode alone"])
def crossed(request: pytest.FixtureRequest) -> Told:
    """Both shapes, crossed: more combinations would show nothing new."""
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def answers(server: RunningServer, memory_id: str) -> str:
    """Return everything the server says over HTTP, as one text."""
    paths = [f"/v1/turns/{number}" for number in range(1, TURNS + 1)]
    paths += ["/v1/sessions", "/v1/export", "/v1/memories", f"/v1/memories/{memory_id}"]
    paths += [f"/v1/memories?status={status}" for status in ("superseded", "forgotten")]
    paths += [f"/v1/memories?q={quote(query)}" for query in ("猫の名前", "富士通")]
    paths += [f"/v1/memories/{memory_id}/sources", "/v1/memories?entity=" + quote("富士通")]
    return json.dumps([server.get(path) for path in paths], ensure_ascii=False)


# --- for good --------------------------------------------------------------------------------------------------------


def test_with_its_words_it_is_in_no_file_and_no_answer_and_nothing_brings_it_back(crossed: Told) -> None:
    identity = crossed.secret_id
    held = files_with(crossed.home, SECRET)
    assert any("stackmem.db" in path for path in held), held
    assert any(path.startswith("index") for path in held), held  # else the search for it in files would prove nothing
    said = crossed.run("memories", "forget", identity, "--turns", "--now")
    assert SECRET in said
    assert "Deleted for good." in said
    assert files_with(crossed.home, SECRET) == []
    assert rows(crossed.home, "SELECT status, topic || summary, purge_at FROM memory WHERE id = ?", identity) == [
        ("forgotten", "", None)
    ]

    crossed.run("reindex")
    assert "富士通" in crossed.run("reindex", "--from", "turns") + crossed.run("memories", "list")
    taken = command(crossed.home, "import", str(crossed.export), **crossed.settings)
    assert taken.returncode == 0, taken
    assert "1 memory was forgotten here and is not brought back." in taken.stderr
    server = crossed.restarted()
    found = answers(server, identity)
    assert SECRET not in found
    assert "富士通のノートPC" in found
    assert SECRET not in server.say(ASKED, "sunday")["reply"]
    server.post("/v1/sessions/sunday/close")
    server.settle()
    assert SECRET not in server.said()
    crossed.stopped()
    assert files_with(crossed.home, SECRET) == []
    check_store(crossed.home, TURNS + 1, crossed.kind)


def test_without_its_words_they_stay_but_are_never_remembered_again(edge: Told) -> None:
    identity = edge.secret_id
    edge.run("memories", "forget", identity, "--now")
    assert [row[0] for row in rows(edge.home, "SELECT user FROM turn ORDER BY id")] == [TOLD, OTHER, ASKED]
    assert rows(edge.home, "SELECT state, settled FROM turn WHERE id = 1") == [("skipped", 1)]
    edge.run("reindex", "--from", "turns")
    command(edge.home, "import", str(edge.export), **edge.settings)
    server = edge.up()
    assert SECRET not in json.dumps(server.get("/v1/memories?q=" + quote("猫の名前")), ensure_ascii=False)
    assert rows(edge.home, "SELECT status FROM memory WHERE summary LIKE ?", f"%{SECRET}%") == []
    answer = server.say(ASKED, "sunday")
    assert answer["searched"]
    assert SECRET not in answer["reply"]
    assert server.get("/v1/turns/1")[1]["text"] == TOLD
    assert not [path for path in files_with(edge.home, SECRET) if path.startswith("index")]
    fresh = edge.home.parent / "fresh"
    (edge.home.parent / "later.jsonl").write_text(edge.run("export"), "utf-8")
    taken = command(fresh, "import", str(edge.home.parent / "later.jsonl"), **edge.settings)
    assert taken.returncode == 0, taken
    assert rows(fresh, "SELECT count(*) FROM memory WHERE summary LIKE ?", f"%{SECRET}%") == [(0,)]
    assert rows(fresh, "SELECT user FROM turn WHERE id = 1") == [(TOLD,)]


def test_until_it_is_purged_it_is_listed_and_can_be_restored(crossed: Told) -> None:
    identity = crossed.secret_id
    found = crossed.json("memories", "search", "猫の名前")["memories"][0]
    assert found["memory_id"] == identity
    said = crossed.run("memories", "forget", identity)
    assert "memories restore" in said
    assert SECRET not in "".join(crossed.search("猫の名前"))
    assert crossed.listed("forgotten") == [identity]
    assert (
        "is forgotten; until it is deleted"
        in command(crossed.home, "memories", "show", identity, **crossed.settings).stderr
    )
    counted = crossed.json("status")
    assert (counted["memories"]["forgotten"], counted["index"]["points"], counted["index"]["pending"]) == (1, 1, 0)

    assert crossed.run("memories", "restore", identity).startswith("Back again")
    assert crossed.json("memories", "search", "猫の名前")["memories"][0] == found | {"origin": "kept"}
    again = command(crossed.home, "memories", "restore", identity, **crossed.settings)
    assert (again.returncode, again.stderr) == (1, f"Error: {identity} is not forgotten.\n")


def test_the_day_it_is_due_the_server_purges_it_by_itself(edge: Told) -> None:
    identity = edge.secret_id
    edge.run("memories", "forget", identity, "--turns")
    assert files_with(edge.home, SECRET)
    execute(edge.home, "UPDATE memory SET purge_at = ? WHERE id = ?", LONG_AGO, identity)
    server = edge.restarted()
    until(lambda: not files_with(edge.home, SECRET), "it is purged at the start")
    gone = command(edge.home, "memories", "restore", identity, **edge.settings)
    assert (gone.returncode, gone.stderr) == (1, f"Error: There is no memory {identity}.\n")
    assert SECRET not in answers(server, identity)


def test_a_reply_from_words_that_were_no_memory_yet_goes_with_them(home: Path) -> None:
    with RunningServer(home) as server:
        server.say(TOLD, "monday")
        answer = server.say(ASKED, "friday")
        assert SECRET in answer["reply"]
        assert answer["memory_ids"] == []
        for session in ("monday", "friday"):
            server.post(f"/v1/sessions/{session}/close")
        server.settle()
        ((identity,),) = rows(home, "SELECT id FROM memory")
        assert command(home, "memories", "forget", identity, "--turns", "--now").returncode == 0
        assert files_with(home, SECRET) == []
        assert SECRET not in answers(server, identity)


# --- at the same time as something else ------------------------------------------------------------------------------


def start(told: Told, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stackmem", *arguments],
        env=environment(told.home, **told.settings),
        cwd=told.home.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, error = process.communicate(timeout=PATIENCE)
    return process.returncode, out + error


def test_two_that_forget_it_at_once_forget_it_once(crossed: Told) -> None:
    arguments = ("memories", "forget", crossed.secret_id, "--turns", "--now")
    both = [ended(process) for process in [start(crossed, *arguments) for _ in range(2)]]
    assert 0 in [code for code, _ in both], both
    for code, said in both:
        assert code == 0 or said == f"Error: There is no memory {arguments[2]}.\n", both
    assert files_with(crossed.home, SECRET) == []
    assert rows(crossed.home, "SELECT count(*) FROM memory") == [(2,)]
    crossed.stopped()
    check_store(crossed.home, TURNS, crossed.kind)


def test_forgotten_while_a_rebuild_runs_it_is_gone_from_the_new_index_too(crossed: Told) -> None:
    rebuilding = start(crossed, "reindex", "--from", "turns")
    forgetting = start(crossed, "memories", "forget", crossed.secret_id, "--turns", "--now")
    both = [ended(process) for process in (rebuilding, forgetting)]
    assert [code for code, _ in both] == [0, 0], both
    assert files_with(crossed.home, SECRET) == []
    crossed.stopped()
    check_store(crossed.home, TURNS, crossed.kind)


KILLS = 3


@pytest.mark.slow
def test_a_server_killed_while_it_forgets_has_forgotten_when_it_is_back(edge: Told) -> None:
    identity, server, moments = edge.secret_id, edge.up(), random.Random(20261130)
    fresh = edge.home.parent / "fresh"
    copy_home(edge.home, fresh)
    for round_number in range(KILLS):
        forgetting = start(edge, "memories", "forget", identity, "--turns", "--now")
        until(lambda: _forgotten(edge, identity), "it is being forgotten")
        with suppress(subprocess.TimeoutExpired):  # else it was faster
            forgetting.wait(moments.uniform(0, 0.2))
        if round_number % 2:
            forgetting.kill()  # its terminal is closed; else it has to finish without the server
        server.kill()
        # What the dead had begun is leased to them for 90 s: let these pass.
        execute(edge.home, "UPDATE lease SET until = ?", LONG_AGO)
        code, said = ended(forgetting)
        assert code in (0, -9), said
        assert code == -9 or files_with(edge.home, SECRET) == [], said
        with server:
            until(lambda: not files_with(edge.home, SECRET), "nothing of it is left in any file")
            until(lambda: rows(edge.home, "SELECT * FROM point_deletion") == [], "its point is gone")
        assert rows(edge.home, "SELECT status, summary FROM memory WHERE id = ?", identity) == [("forgotten", "")]
        check_store(edge.home, TURNS)
        if round_number + 1 < KILLS:
            shutil.rmtree(edge.home)
            copy_home(fresh, edge.home)
            server.start()


def _forgotten(told: Told, identity: str) -> bool:
    return rows(told.home, "SELECT status FROM memory WHERE id = ?", identity) == [("forgotten",)]
