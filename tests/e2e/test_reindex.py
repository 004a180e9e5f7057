"""Whatever is derived can be deleted and rebuilt, and the same searches give the same ids and scores."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.checking import check_store, rows
from tests.e2e.test_kill import some_sessions
from tests.running import RunningServer, command, json_of

QUESTIONS = ("ゲームの持ちキャラ", "キーボードを打つのが速い", "夜ぐっすり眠れる", "梅干しの味", "タイピング")


@pytest.fixture
def filled(home: Path, real_logs: Path) -> Path:
    file = home.parent / "log.jsonl"
    some_sessions(real_logs / "ad-ey.jsonl", file, 10)
    done = command(home, "import", "--both-speakers", str(file))
    assert done.returncode == 0, done.stderr
    return home


def searches(home: Path) -> list[Any]:
    return [json_of(home, "memories", "search", question, "--limit", "10") for question in QUESTIONS]


def execute(home: Path, sql: str) -> None:
    connection = sqlite3.connect(home / "stackmem.db")
    connection.execute(sql)
    connection.commit()
    connection.close()


def test_a_deleted_index_is_rebuilt_the_same(filled: Path) -> None:
    before = searches(filled)
    assert all(found["count"] > 0 for found in before)
    shutil.rmtree(filled / "index")
    assert command(filled, "reindex").returncode == 0
    assert searches(filled) == before


def test_deleted_vectors_are_made_again_the_same(filled: Path) -> None:
    before = searches(filled)
    shutil.rmtree(filled / "index")
    execute(filled, "DELETE FROM memory_vector")
    assert command(filled, "reindex").returncode == 0
    assert searches(filled) == before


def test_memories_made_again_from_the_turns_are_the_same(filled: Path) -> None:
    before, turns = searches(filled), rows(filled, "SELECT count(*) FROM turn")[0][0]
    states = rows(filled, "SELECT id, state FROM turn ORDER BY id")
    assert command(filled, "reindex", "--from", "turns").returncode == 0
    assert searches(filled) == before
    assert rows(filled, "SELECT id, state FROM turn ORDER BY id") == states
    check_store(filled, turns)


@pytest.mark.parametrize("source", ["memories", "turns"])
def test_a_running_server_rebuilds_while_it_goes_on_searching(filled: Path, source: str) -> None:
    before = searches(filled)
    with RunningServer(filled) as server:
        shutil.rmtree(filled / "index")
        assert json_of(filled, "reindex", "--from", source)["points"] > 0
        assert searches(filled) == before
        assert server.get("/readyz")[0] == 200
    assert searches(filled) == before


def test_an_index_deleted_while_nothing_runs_is_back_at_the_next_start(filled: Path) -> None:
    before = searches(filled)
    shutil.rmtree(filled / "index")
    with RunningServer(filled):
        assert searches(filled) == before
