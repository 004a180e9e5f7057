"""A store is backed up while it is talked to, goes on elsewhere, and moves to PostgreSQL; kill -9 loses nothing."""

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from stackmem.cli import main
from tests import shapes
from tests.checking import execute, rows
from tests.running import RunningServer, command, environment, json_of, until
from tests.services import Postgres

pytestmark = pytest.mark.skipif(
    shapes.shape_of_all() != shapes.ONE_PROCESS, reason="It goes from SQLite to PostgreSQL and back by itself."
)

MANY = 12_000  # turns, so that a command can be killed in the middle


def talk(server: RunningServer) -> None:
    server.say("うちの猫の名前はミケっていうの", "a")
    server.post("/v1/sessions/a/close")
    server.settle()


def many_turns(home: Path) -> None:
    """Multiply the turns of a store."""
    execute(
        home,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO turn (uid, session_id,"
        " ordinal, owner, at, received_at, user, reply, emotion, action, state, degraded, imported, searched,"
        " memory_ids, model_calls, tokens, durations_ms, withheld, settled) SELECT 'u' || i, session_id, 1000 + i,"
        " owner, at, received_at, 'うん' || i, reply, emotion, action, 'skipped', 0, 0, 0, '[]', 0, '{}', '{}', 0, 0"
        " FROM n, (SELECT * FROM turn LIMIT 1)",
        MANY,
    )


def started(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "stackmem", *arguments],
        env=environment(home), cwd=home.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def killed(process: subprocess.Popen[bytes]) -> None:
    assert process.poll() is None, "it was done before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup that was made while somebody talked; a turn was said after it."""
    folder = tmp_path_factory.mktemp("backup")
    home, file = folder / "home", folder / "backup.db"
    home.mkdir()
    with RunningServer(home) as server:
        talk(server)
        for _ in range(2):  # the second one replaces the first
            made = json_of(home, "backup", str(file))
            assert (made["turns"], made["memories"]) == (1, 1)
        done = command(home, "restore", str(file), "--yes")
        assert (done.returncode, done.stderr) == (
            1, "Error: A server is running on this store: stop it, run this again, then start it.\n",
        )  # fmt: skip
        assert "A server is running" in command(home, "migrate-data", "--to", "postgresql://x@127.0.0.1/y").stderr
        assert server.say("きょうは雨だね", "a")["turn_id"] == 2
    return file


def test_a_restored_store_goes_on_talking_elsewhere(home: Path, backup: Path) -> None:
    other = home.parent / "other"
    assert json_of(other, "restore", str(backup))["turns"] == 1
    with RunningServer(other) as server:
        answer = server.say("猫の名前は何だった？", "b")
        assert answer["turn_id"] == 2
        assert "ミケ" in answer["reply"]
        (memory,) = answer["memory_ids"]
        assert rows(backup.parent / "home", "SELECT id FROM memory WHERE status = 'active'") == [(memory,)]
    done = command(other, "restore", str(backup), stdin="")
    assert (done.returncode, "Nothing was changed. With --yes" in done.stderr) == (1, True)
    done = command(other, "restore", str(backup), stdin="y\n")
    assert (done.returncode, "Restored: 1 turns, 1 memories, as of 20" in done.stdout) == (0, True)
    assert rows(other, "SELECT count(*) FROM turn") == [(1,)]
    index = json_of(other, "status")["index"]
    assert (index["points"], index["pending"]) == (1, 0)


def test_a_restore_that_is_killed_leaves_what_was_there(home: Path, backup: Path) -> None:
    assert command(home, "restore", str(backup)).returncode == 0
    many_turns(home)
    big, other = home.parent / "big.db", home.parent / "other"
    assert json_of(home, "backup", str(big))["turns"] == MANY + 1
    assert command(other, "restore", str(backup)).returncode == 0
    process, log = started(other, "restore", "--yes", str(big)), other / "stackmem.db-wal"
    until(lambda: log.exists() and log.stat().st_size > 300_000, "the restore writes")
    killed(process)
    assert rows(other, "SELECT count(*) FROM turn") == [(1,)]
    assert command(other, "restore", "--yes", str(big)).returncode == 0
    assert rows(other, "SELECT count(*) FROM turn") == [(MANY + 1,)]
    assert [path.name for path in other.iterdir() if path.name.startswith(".restore")] == []


@pytest.fixture
def address(postgres_server: Postgres, request: pytest.FixtureRequest) -> str:
    return postgres_server.create(f"keeping{abs(hash(request.node.name))}")


def test_a_store_moves_to_postgres_and_talks_on(
    home: Path, backup: Path, address: str, postgres_server: Postgres
) -> None:
    assert command(home, "restore", str(backup)).returncode == 0
    many_turns(home)
    process, enough = started(home, "migrate-data", "--to", address), size_of(postgres_server, address) + 2_500_000
    until(lambda: size_of(postgres_server, address) > enough, "some turns are copied")
    killed(process)
    with psycopg.connect(address) as connection:
        part = connection.execute("SELECT count(*) FROM turn").fetchone()
    assert part
    assert 0 < part[0] < MANY
    half = command(home, "status", database_url=address)
    assert (half.returncode, "half filled" in half.stderr) == (1, True)
    done = command(home, "migrate-data", "--to", address)
    assert done.returncode == 0, done.stderr
    assert f"Moved and compared: {MANY + 1} turns, 1 memories" in done.stdout
    assert "Now set STACKMEM_DATABASE_URL" in done.stdout
    with RunningServer(home, database_url=address) as server:
        answer = server.say("猫の名前は何だった？", "b")
        assert (answer["turn_id"], "ミケ" in answer["reply"]) == (MANY + 2, True)
    back = home.parent / "back" / "stackmem.db"
    moved = json_of(home, "migrate-data", "--to", f"sqlite:///{back}", database_url=address)
    with closing(sqlite3.connect(back)) as opened:
        assert opened.execute("SELECT count(*), max(id) FROM turn").fetchone() == (moved["tables"]["turn"], MANY + 2)


def size_of(server: Postgres, address: str) -> int:
    """Return the bytes of a database, asked from another one: nobody else may be connected to it."""
    return int(server.execute("SELECT pg_database_size(%s)", address.rpartition("/")[2])[0][0])


def test_wrong_places_are_one_sentence(home: Path) -> None:
    execute(home, "SELECT 1")
    (home / "link.db").symlink_to(home / "stackmem.db")
    for arguments, sentence in (
        (("restore", "none.db"), "none.db cannot be read (No such file or directory)."),
        (("migrate-data", "--to", "mysql://x/y"), "--to is wrong"),
        (("migrate-data", "--to", "sqlite:///"), "--to is wrong"),
        (("migrate-data", "--to", f"sqlite:///{home / 'stackmem.db'}"), "--to is the store that is in use already."),
        (("migrate-data", "--to", f"sqlite:///{home}/../{home.name}/stackmem.db"), "--to is the store that is in use"),
        (("migrate-data", "--to", f"sqlite:///{home}/link.db"), "--to is the store that is in use already."),
        (("backup", str(home)), "is a folder"),
    ):
        done = CliRunner().invoke(main, arguments, env={"STACKMEM_HOME": str(home)})
        assert (done.exit_code, len(done.stderr.splitlines()), sentence in done.stderr) == (1, 1, True), done.stderr


def test_a_backup_of_postgres_is_restored_into_a_file(home: Path, address: str, backup: Path) -> None:
    done = command(home, "restore", "--yes", str(backup), database_url=address)
    assert done.returncode == 0, done.stderr
    second = home.parent / "second.db"
    assert json_of(home, "backup", str(second), database_url=address)["memories"] == 1
    with psycopg.connect(address):
        done = command(home, "restore", "--yes", str(backup), database_url=address)
        assert "1 other connections to the database are open: stop the web" in done.stderr
    other = home.parent / "other"
    assert json_of(other, "restore", str(second))["turns"] == 1
    found = command(other, "memories", "search", "猫", "--json")
    assert json.loads(found.stdout)["count"] == 1
