"""``stackmem doctor``, with a server and without."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.running import RunningServer, command, json_of

DAMAGE = (
    "UPDATE memory SET said_at = '2020' || substr(said_at, 5) WHERE id = (SELECT min(id) FROM memory)",
    "UPDATE memory SET version = version + 1 WHERE id = (SELECT max(id) FROM memory)",
)
AGREE = {"missing": 0, "extra": 0, "stale": 0, "wrong": 0}


@pytest.fixture
def damaged(home: Path) -> Path:
    """A store of some memories, of which two differ from the index."""
    lines = [f'{{"session": "{n}", "role": "user", "text": "{n}月に{n}万円のPCを買ったよ"}}' for n in range(1, 5)]
    (home.parent / "talk.jsonl").write_text("\n".join(lines), "utf-8")
    assert command(home, "import", str(home.parent / "talk.jsonl")).returncode == 0
    with closing(sqlite3.connect(home / "stackmem.db")) as connection:
        for statement in DAMAGE:
            connection.execute(statement)
        connection.commit()
    return home


def drift(done: dict[str, Any]) -> dict[str, int]:
    return {name: done["drift"][name] for name in AGREE}


def test_alone_it_finds_what_differs_and_mends_it_on_request(damaged: Path) -> None:
    done = command(damaged, "doctor", "--deep")
    assert done.returncode == 1
    assert "1 stale, 1 wrong; mend it with `stackmem doctor --deep --mend`." in done.stdout
    assert drift(json_of(damaged, "doctor", "--deep", "--mend")) == AGREE | {"stale": 1, "wrong": 1}
    assert drift(json_of(damaged, "doctor", "--deep")) == AGREE


def test_a_running_server_does_it_for_the_command(damaged: Path) -> None:
    with RunningServer(damaged):
        assert command(damaged, "doctor", "--deep").returncode == 1
        found = json_of(damaged, "doctor", "--deep", "--mend")
        assert drift(found) == AGREE | {"stale": 1, "wrong": 1}
        assert {check["name"] for check in found["checks"]} >= {"settings", "database", "index", "embedder"}
        assert drift(json_of(damaged, "doctor", "--deep")) == AGREE


def test_a_new_home_has_no_fault_and_a_wrong_setting_is_one_line(home: Path) -> None:
    done = command(home, "doctor")
    assert (done.returncode, "FAILED" in done.stdout) == (0, False)
    done = command(home, "doctor", chat_base_url="http://127.0.0.1:9/v1", chat_model="qwen", chat_timeout_s="2")
    assert (done.returncode, "FAILED" in done.stdout) == (1, True)
    done = command(home, "doctor", port="x")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert command(home, "doctor", "--mend").returncode == 2
