"""Whatever is derived can be deleted and rebuilt, and the same searches give the same ids and scores."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.checking import check_store, rows
from tests.e2e.test_kill import some_sessions
from tests.running import RunningServer, command, environment, json_of, until
from tests.scripted import ScriptedServer, content
from tests.shapes import copy_home

QUESTIONS = ("ゲームの持ちキャラ", "キーボードを打つのが速い", "夜ぐっすり眠れる", "梅干しの味", "タイピング")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, real_logs: Path) -> Path:
    """The store that every test copies."""
    home = tmp_path_factory.mktemp("imported") / "home"
    file = home.parent / "log.jsonl"
    some_sessions(real_logs / "ad-ey.jsonl", file, 10)
    done = command(home, "import", "--both-speakers", str(file))
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module")
def before(imported: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What a server on that store finds."""
    return searches_of(copy_home(imported, tmp_path_factory.mktemp("before") / "home"))


@pytest.fixture
def filled(imported: Path, home: Path) -> Path:
    """A copy of the store."""
    return copy_home(imported, home)


def searches(server: RunningServer) -> list[Any]:
    return [server.get(f"/v1/memories?limit=10&q={quote(question)}")[1] for question in QUESTIONS]


def searches_of(home: Path) -> list[Any]:
    with RunningServer(home) as server:
        found = searches(server)
    assert all(each["count"] > 0 for each in found), found
    return found


def execute(home: Path, sql: str) -> None:
    connection = sqlite3.connect(home / "stackmem.db")
    connection.execute(sql)
    connection.commit()
    connection.close()


def test_a_deleted_index_is_rebuilt_the_same(filled: Path, before: list[Any]) -> None:
    shutil.rmtree(filled / "index")
    assert command(filled, "reindex").returncode == 0
    assert searches_of(filled) == before


def test_deleted_vectors_are_made_again_the_same(filled: Path, before: list[Any]) -> None:
    shutil.rmtree(filled / "index")
    execute(filled, "DELETE FROM memory_vector")
    assert command(filled, "reindex").returncode == 0
    assert searches_of(filled) == before


def test_memories_made_again_from_the_turns_are_the_same(filled: Path, before: list[Any]) -> None:
    turns = rows(filled, "SELECT count(*) FROM turn")[0][0]
    states = rows(filled, "SELECT id, state FROM turn ORDER BY id")
    memories = rows(filled, "SELECT id, summary, status, superseded_by FROM memory ORDER BY id")
    assert command(filled, "reindex", "--from", "turns").returncode == 0
    assert searches_of(filled) == before
    assert rows(filled, "SELECT id, state FROM turn ORDER BY id") == states
    assert rows(filled, "SELECT id, summary, status, superseded_by FROM memory ORDER BY id") == memories
    check_store(filled, turns)


@pytest.mark.parametrize("source", ["memories", "turns"])
def test_a_running_server_rebuilds_while_it_goes_on_searching(filled: Path, before: list[Any], source: str) -> None:
    with RunningServer(filled) as server:
        assert searches(server) == before
        shutil.rmtree(filled / "index")
        assert json_of(filled, "reindex", "--from", source)["points"] > 0
        assert searches(server) == before
        assert server.get("/readyz")[0] == 200
    assert searches_of(filled) == before


def test_an_index_deleted_while_nothing_runs_is_back_at_the_next_start(filled: Path, before: list[Any]) -> None:
    shutil.rmtree(filled / "index")
    assert searches_of(filled) == before


def test_the_command_line_finds_what_the_server_finds(filled: Path) -> None:
    alone = json_of(filled, "memories", "search", QUESTIONS[0])
    with RunningServer(filled) as server:
        assert json_of(filled, "memories", "search", QUESTIONS[0]) == alone
        assert server.get(f"/v1/memories?q={quote(QUESTIONS[0])}")[1] == alone


KILLED = """
import os, signal
import stackmem.work
from stackmem.cli import main
stackmem.work.progress_of = lambda job_id: lambda done, total: os.kill(os.getpid(), signal.SIGKILL)
main(["reindex"])
"""


def test_a_rebuild_killed_half_way_is_done_by_the_same_command_again(filled: Path, before: list[Any]) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment(filled), cwd=filled.parent, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert rows(filled, "SELECT state FROM job WHERE kind = 'reindex'") == [("running",)]
    assert command(filled, "reindex").returncode == 0
    assert rows(filled, "SELECT state FROM job WHERE kind = 'reindex'") == [("done",)]
    assert len([path for path in (filled / "index").iterdir() if path.is_dir()]) == 1
    assert searches_of(filled) == before


def test_a_rebuild_killed_half_way_is_done_by_the_next_server(filled: Path, before: list[Any]) -> None:
    subprocess.run([sys.executable, "-c", KILLED], env=environment(filled), cwd=filled.parent, check=False)
    with RunningServer(filled) as server:
        until(lambda: rows(filled, "SELECT state FROM job WHERE kind = 'reindex'") == [("done",)], "it is rebuilt")
        assert searches(server) == before


def test_a_rebuild_from_the_turns_says_what_it_asks_and_asks_first(filled: Path) -> None:
    windows = rows(filled, "SELECT count(*) FROM window")[0][0]
    with ScriptedServer(lambda _: content('{"segments": []}')) as model:
        remote = {"memory_base_url": model.base_url, "memory_model": "qwen"}
        for answer in ("n\n", ""):
            done = command(filled, "reindex", "--from", "turns", stdin=answer, **remote)
            assert done.returncode == 1
            assert f"This asks qwen up to {windows} times. Go on?" in done.stderr
            assert "Nothing was changed. With --yes it does not ask." in done.stderr
        assert model.requests == []
        done = command(filled, "reindex", "--from", "turns", stdin="y\n", **remote)
        assert 0 < len(model.requests) <= 2 * windows, done.stderr
        asked = len(model.requests)
        command(filled, "reindex", "--from", "turns", "--yes", **remote)
        assert len(model.requests) > asked
