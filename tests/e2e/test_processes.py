"""What can be wrong around a process: one clear sentence, the right exit code, nothing lost."""

import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackmem.adapters.folder_lock import FolderLock
from tests.checking import check_store, rows
from tests.running import PATIENCE, RunningServer, command, environment, json_of, until
from tests.scripted import ScriptedServer, hang

pytestmark = pytest.mark.usefixtures("one_process")

Done = subprocess.CompletedProcess[str]
TOLD = ("うちの猫の名前はミケっていうの", "きのう富士通のノートPCを12万円で買ったんだ")


def check_refused(done: Done, *words: str) -> None:
    """Check for exit code 1 and one line of an error that holds the words; a note may stand before it."""
    assert done.returncode == 1, done
    assert done.stdout == ""
    *notes, error = done.stderr.splitlines()
    assert error.startswith("Error: "), done.stderr
    assert all(note.startswith(("Note: ", "Another stackmem uses this folder")) for note in notes), done.stderr
    for word in words:
        assert word in error, error


def start(home: Path, **settings: str) -> Done:
    return command(home, "up", "--port", "0", **settings)


def up(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a server whose output the test reads."""
    return subprocess.Popen(
        [sys.executable, "-m", "stackmem", "up", *arguments],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that nobody stops."""
    home = tmp_path_factory.mktemp("running") / "home"
    home.mkdir()
    with RunningServer(home) as server:
        yield server
        assert "Traceback" not in server.said(), server.said()


@pytest.fixture
def filled(home: Path) -> Path:
    """A home folder with memories, which no process uses."""
    done = command(home, "chat", "--session", "s", stdin="\n".join(TOLD) + "\n")
    assert done.returncode == 0, done.stderr
    return home


# --- addresses and folders -------------------------------------------------------------------------------------------


def test_a_port_in_use_is_named(home: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        check_refused(command(home, "up", "--port", port), f"127.0.0.1:{port}", "in use", "--port")
        check_refused(command(home, "up", port=port), "STACKMEM_PORT", "in use")
    assert not (home / "server.json").exists()


def test_of_two_servers_that_bind_one_port_at_once_only_one_starts(home: Path) -> None:
    lock = FolderLock(home / "index", wait_s=0)
    lock.acquire()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        with up(home, "--port", str(other.getsockname()[1])) as process:
            assert process.stderr
            waiting = process.stderr.readline()
            # Both have bound it, which Linux allows as long as nobody listens.
            other.listen()
            lock.release()
            out, error = process.communicate(timeout=PATIENCE)
    check_refused(subprocess.CompletedProcess([], process.returncode, out, waiting + error), "cannot listen", "in use")


def test_a_host_that_cannot_be_listened_on_is_named(home: Path) -> None:
    check_refused(start(home, host="999.1.1.1"), "STACKMEM_HOST", "cannot listen")


@pytest.mark.parametrize(
    ("path", "arguments"),
    [("file", ("up", "--port", "0")), ("file", ("status",)), ("file/x", ("devices", "list")), ("/proc/x", ("status",))],
)
def test_a_home_that_cannot_be_written_is_named(tmp_path: Path, path: str, arguments: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("a letter")
    home = tmp_path / path
    done = subprocess.run(
        [sys.executable, "-m", "stackmem", *arguments],
        env=environment(home),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    check_refused(done, "STACKMEM_HOME", str(home))
    assert (tmp_path / "file").read_text() == "a letter"


# --- a second server -------------------------------------------------------------------------------------------------

IMPATIENT = "import web.up; web.up.LOCK_WAIT = 0.2; from stackmem.cli import main; main(['up', '--port', '0'])"


def test_a_second_server_on_the_folder_is_refused_with_the_remedy(running: RunningServer) -> None:
    before = (running.home / "server.json").read_text()
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT],
        env=environment(running.home),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    check_refused(done, "Another stackmem is using", "stop it", "STACKMEM_HOME")
    assert (running.home / "server.json").read_text() == before
    assert running.say("まだいる？")["reply"]


def test_a_second_server_waits_for_the_first_to_end(home: Path) -> None:
    first, second = RunningServer(home), RunningServer(home)
    second.log = home.parent / "second.log"
    with first:
        first.say("こんにちは")
        with second.log.open("wb") as log:
            second.process = subprocess.Popen(
                [sys.executable, "-m", "stackmem", "up", "--port", "0"], env=environment(home), stdout=log, stderr=log
            )
        until(lambda: "waiting up to 30 s" in second.said(), "the second one waits")
    with second_of(second):
        assert second.get("/v1/turns/1")[1]["text"] == "こんにちは"


def second_of(server: RunningServer) -> RunningServer:
    """Return a server that was started by hand, so that leaving the block stops it."""
    until(server._is_up, f"the second one is ready: {server.said()}")
    server.start = lambda: None  # type: ignore[method-assign]
    return server


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timezone", "Asia/Tokio"),
        ("index_url", "edge:/proc/index"),
        ("index_url", "local:/proc/index"),
        ("database_url", "nonsense"),
        ("database_url", "sqlite:"),
        ("database_url", "sqlite:///:memory:"),
        ("database_url", "sqlite:////proc/x/y.db"),
        ("broker_url", "nonsense://host"),
        ("broker_url", "amqp://host:port/"),
        ("persona", "nobody"),
        ("chat_base_url", "gguf:/nowhere/model.gguf"),
        ("chat_api_key", "鍵"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_one_line_that_names_it(home: Path, name: str, value: str) -> None:
    done = start(home, **{name: value})
    check_refused(done, f"STACKMEM_{name.upper()}")
    assert "key" not in name or value not in done.stderr


def test_a_home_of_nobody_is_named(home: Path) -> None:
    (home.parent / ".env").write_text("STACKMEM_HOME=~nobody-of-this-name/x\n")
    environ = {name: value for name, value in environment(home).items() if name != "STACKMEM_HOME"}
    up = [sys.executable, "-m", "stackmem", "up", "--port", "0"]
    done = subprocess.run(up, env=environ, cwd=home.parent, capture_output=True, text=True, check=False)
    check_refused(done, "STACKMEM_HOME", "no such user")


def test_a_wrong_setting_stops_every_other_command_too(home: Path) -> None:
    for arguments in (("status",), ("devices", "list"), ("memories", "list"), ("export",), ("chat",), ("reindex",)):
        check_refused(command(home, *arguments, timezone="Asia/Tokio"), "STACKMEM_TIMEZONE")


def test_other_web_servers_and_workers_say_one_line_too(home: Path) -> None:
    for module in (
        ("waitress", "--listen=127.0.0.1:0", "--call", "web:create_app"),
        ("celery", "-A", "workers", "worker"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", *module],
            env=environment(home, timezone="Asia/Tokio"),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("Error: STACKMEM_TIMEZONE is wrong")
        assert "Traceback" not in done.stderr


def test_settings_are_read_from_a_file_and_misspelt_ones_are_noted(home: Path) -> None:
    (home.parent / ".env").write_text("STACKMEM_TIMEZONE=Europe/Paris\nSTACKMEM_PERSONNA=x\nPATH_OF_MINE=1\n", "utf-8")
    with RunningServer(home, chat_modle="qwen") as server:
        answer = server.say("hi")
        assert server.get(f"/v1/turns/{answer['turn_id']}")[1]["at"][-6:] in ("+01:00", "+02:00")
        said = server.said()
    assert "Note: STACKMEM_CHAT_MODLE is not a setting; did you mean STACKMEM_CHAT_MODEL?" in said
    assert "Note: STACKMEM_PERSONNA is not a setting; did you mean STACKMEM_PERSONA?" in said


def test_a_broken_persona_file_is_named(home: Path) -> None:
    file = home.parent / "mine.toml"
    file.write_bytes(b'name = "x"\nfallback = ["."]\nmood = 5\n')
    check_refused(start(home, persona=str(file)), "STACKMEM_PERSONA", "mine.toml")


def test_an_address_without_a_model_is_not_silently_ignored(home: Path) -> None:
    with RunningServer(home, chat_base_url="http://127.0.0.1:9/v1") as server:
        assert "STACKMEM_CHAT_BASE_URL is set without STACKMEM_CHAT_MODEL" in server.said()


# --- damaged files ---------------------------------------------------------------------------------------------------


def test_what_is_no_database_stops_the_start_and_is_left_alone(home: Path) -> None:
    letter = b"this is a letter to my aunt\n" * 500
    (home / "stackmem.db").write_bytes(letter)
    check_refused(start(home), "database", "STACKMEM_DATABASE_URL")
    check_refused(command(home, "status"), "database")
    assert (home / "stackmem.db").read_bytes() == letter


def test_a_database_with_damaged_pages_gives_one_line(filled: Path) -> None:
    file = filled / "stackmem.db"
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    whole = file.read_bytes()
    file.write_bytes(whole[:8192] + b"\xa5" * (len(whole) - 8192))
    check_refused(start(filled), "database")
    for arguments in (("status",), ("export",), ("memories", "list")):
        done = command(filled, *arguments)
        assert "Traceback" not in done.stderr
        assert done.returncode == 1
        assert done.stderr.startswith("Error: The database"), done.stderr
    file.write_bytes(whole)
    assert json_of(filled, "status")["turns"]["kept"] == len(TOLD)


def test_a_database_of_a_newer_version_is_left_alone(filled: Path) -> None:
    with sqlite3.connect(filled / "stackmem.db") as connection:
        connection.execute(
            "INSERT INTO schema_migration (name, applied) SELECT '0999_later', applied FROM schema_migration LIMIT 1"
        )
    connection.close()
    check_refused(start(filled), "newer stackmem", "0999_later")
    check_refused(command(filled, "export"), "newer stackmem")
    assert rows(filled, "SELECT count(*) FROM turn") == [(len(TOLD),)]


@pytest.mark.parametrize("index_url", ["edge:", "local:"])
def test_a_damaged_index_is_built_again_by_the_start(filled: Path, index_url: str) -> None:
    command(filled, "reindex", index_url=index_url)
    before = json_of(filled, "memories", "search", "cat", index_url=index_url)
    assert before["count"] > 0
    for file in (filled / "index").rglob("*"):
        if file.is_file() and file.name != "LOCK":
            file.write_bytes(b"\xa5" * 3_000)
    with RunningServer(filled, index_url=index_url) as server:
        assert until(lambda: server.get("/v1/memories?q=cat")[1]["count"], "the index is built again")
        assert server.get("/v1/memories?q=cat")[1] == before
        assert "Traceback" not in server.said()
    check_store(filled, turns=len(TOLD), kind=index_url.rstrip(":"))


def test_an_index_that_is_a_file_is_named(filled: Path) -> None:
    for path in sorted((filled / "index").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (filled / "index").rmdir()
    (filled / "index").write_text("a letter")
    check_refused(start(filled), "STACKMEM_INDEX_URL", str(filled / "index"))
    assert (filled / "index").read_text() == "a letter"


def test_a_server_file_left_by_a_power_cut_misleads_nobody(home: Path) -> None:
    server = RunningServer(home)
    server.start()
    server.say("こんにちは")
    server.kill()
    assert (home / "server.json").exists()
    assert sum(json_of(home, "status")["turns"].values()) == 1
    for content in ("", "{", "[]", '{"url": "http://127.0.0.1:9", "key": "x"}', '{"url": "nonsense", "key": "x"}'):
        (home / "server.json").write_text(content)
        assert sum(json_of(home, "status")["turns"].values()) == 1


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_within_seconds(home: Path, number: signal.Signals) -> None:
    server = RunningServer(home)
    server.start()
    server.say("こんにちは")
    began = time.monotonic()
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE) == 0
    assert time.monotonic() - began < 10
    assert not (home / "server.json").exists()
    assert not re.search("Traceback|Aborted", server.said()), server.said()


def test_a_signal_before_it_is_ready_stops_it_too(running: RunningServer) -> None:
    with up(running.home, "--port", "0") as process:
        assert process.stderr
        assert "waiting up to 30 s" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, error) == (0, "", "Stopped before it was ready.\n")


def test_a_second_signal_does_no_harm(home: Path) -> None:
    server = RunningServer(home)
    server.start()
    for _ in range(3):
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.05)  # not to wait for something: to come in the middle of stopping
    server.process.wait(PATIENCE)
    assert server.process.returncode == 0
    assert "Traceback" not in server.said(), server.said()
    assert not (home / "server.json").exists()


def test_a_turn_that_waits_for_the_model_does_not_keep_the_server(home: Path) -> None:
    with ScriptedServer(lambda request: hang()) as model:
        settings = {"chat_base_url": model.base_url, "chat_model": "m", "memory_model": "offline"}
        server = RunningServer(home, **settings, turn_timeout_s="60", chat_timeout_s="60")
        server.start()
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as robot:
            body = '{"text": "聞こえる？", "session_id": "s"}'.encode()
            head = (
                f"POST /v1/turns HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            )
            robot.sendall(head.encode() + b"\r\n\r\n" + body)
            until(lambda: rows(home, "SELECT count(*) FROM turn WHERE state = 'open'") == [(1,)], "the turn is open")
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < 15
    assert "Traceback" not in server.said(), server.said()
    assert rows(home, "SELECT user FROM turn") == [("聞こえる？",)]
