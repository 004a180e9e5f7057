"""What can break around `stackmem up`, or around one process of several."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.checking import check_store, rows
from tests.faults.talking import pass_time, settle
from tests.running import RunningServer, command, environment
from tests.scripted import Answer, ScriptedServer, content, hang, say, slow
from tests.services import Postgres, required
from tests.shapes import database_of, running
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.faults


# --- a full disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A home folder on a disk of its own with little room."""
    home = tmp_path / "disk" / "home"
    home.parent.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(home.parent)]
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"This user may not mount a small disk: {done.stderr.strip()}")
    home.mkdir()
    try:
        yield home
    finally:
        subprocess.run(["umount", "-l", str(home.parent)], check=True)


def test_a_full_disk_is_said_and_nothing_acknowledged_is_lost(small_disk: Path) -> None:
    said: dict[str, int] = {}
    with RunningServer(small_disk) as server:
        server.log = small_disk.parent.parent / "later.log"
        for number in range(3):
            said |= _try(server, number)
        filler = small_disk.parent / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0" * 4096)
        refused = 0
        for number in range(3, 40):
            took = _try(server, number)
            said |= took
            refused += not took
        assert refused
        filler.unlink()
        for number in range(40):
            said |= _try(server, number)  # with the same key again, as a robot does
        server.post("/v1/sessions/s/close")
        settle(server)
    assert {row[0]: row[1] for row in rows(small_disk, "SELECT user, id FROM turn")} == said
    check_store(small_disk, 40)


def _try(server: RunningServer, number: int) -> dict[str, int]:
    words = f"{number}日目に{number * 100}円のりんごを買ったよ"
    status, answer = server.post("/v1/turns", {"text": words, "session_id": "s", "client_turn_id": str(number)})
    if status == 200:
        return {words: answer["turn_id"]}
    assert (status, "database" in answer["detail"]) == (503, True), answer
    return {}


# --- stopped in the middle -------------------------------------------------------------------------------------------

COMMANDS = {
    "up": ["stackmem", "up", "--port", "0"],
    "waitress-serve": ["waitress", "--listen=127.0.0.1:0", "--threads=32", "--call", "web:create_app"],
}


@pytest.mark.parametrize("how", list(COMMANDS))
def test_sigterm_lets_a_turn_be_answered(home: Path, how: str) -> None:
    asked = threading.Event()

    def answer(_: Any) -> Answer:
        asked.set()
        return slow(1.5, say("うん、聞こえるよ"))

    answers: list[Any] = []
    with ScriptedServer(answer) as model:
        server = RunningServer(home, chat_base_url=model.base_url, chat_model="m", memory_model="offline")
        server.parts = ("web",) if how == "waitress-serve" else ("up",)
        server.start()
        words = {"text": "聞こえる？", "session_id": "s"}
        robot = threading.Thread(target=lambda: answers.append(server.post("/v1/turns", words)))
        robot.start()
        assert asked.wait(PATIENCE)
        server.process.terminate()
        assert server.process.wait(10) == 0
        robot.join()
    assert [(status, answer["reply"]) for status, answer in answers] == [(200, "うん、聞こえるよ")]
    assert rows(home, "SELECT user, reply FROM turn") == [("聞こえる？", "うん、聞こえるよ")]
    assert not (home / "server.json").exists()


def test_sigterm_ends_waitress_serve_whatever_hangs(home: Path) -> None:
    with ScriptedServer(lambda _: hang()) as model:
        settings = {"chat_base_url": model.base_url, "chat_model": "m", "memory_model": "offline"}
        server = RunningServer(home, **settings, turn_timeout_s="60", chat_timeout_s="60")
        server.parts = ("web",)
        server.start()
        robot = threading.Thread(target=_hangs, args=(server,))
        robot.start()
        until(lambda: rows(home, "SELECT count(*) FROM turn WHERE state = 'open'") == [(1,)], "the turn is open")
        server.process.terminate()
        assert server.process.wait(15) == 0
        robot.join()
    assert rows(home, "SELECT user FROM turn") == [("聞こえる？",)]


def _hangs(server: RunningServer) -> None:
    with pytest.raises(OSError):  # noqa: PT011  cut off: reset or closed
        server.post("/v1/turns", {"text": "聞こえる？", "session_id": "s"})


# --- a worker that hangs ---------------------------------------------------------------------------------------------


def remembered(request: Any) -> Answer:
    """Keep every turn as a memory of its own, and tell new ones apart from the old."""
    talk = json.loads(request["messages"][1]["content"])
    if "turns" not in talk:
        return content(json.dumps({"decisions": []}))
    parts = [
        {"turn_ids": [turn["turn_id"]], "keep": True, "topic": "買い物", "summary": turn["user"], "entities": [],
         "memory_type": "episode"}
        for turn in talk["turns"]
    ]  # fmt: skip
    return content(json.dumps({"segments": parts}))


def test_a_worker_that_hangs_in_the_model_and_is_killed_is_followed_by_another(home: Path) -> None:
    hanging, asked = threading.Event(), threading.Event()
    hanging.set()

    def answer(request: Any) -> Answer:
        asked.set()
        return hang() if hanging.is_set() else remembered(request)

    with ScriptedServer(answer) as model:
        settings = {"memory_base_url": model.base_url, "memory_model": "m", "memory_timeout_s": "60"}
        with RunningServer(home, shape="postgres-redis", **settings) as server:
            for number in range(3):
                server.say(f"{number}日目に{number * 100}円のりんごを買ったよ", "s")
            server.post("/v1/sessions/s/close")
            server.sweep()
            assert asked.wait(PATIENCE)
            server.kill("live")
            hanging.clear()
            pass_time(server)  # the dead worker's lease runs out
            server.start_part("live")
            settle(server)
        check_store(home, 3)
    assert rows(home, "SELECT count(*) FROM memory WHERE status = 'active'") == [(3,)]


# --- other people's databases and indexes ----------------------------------------------------------------------------


def test_a_database_of_a_newer_version_is_refused_by_every_process(home: Path) -> None:
    required(Postgres)
    url = database_of(home)
    assert command(home, "status", "--json", database_url=url).returncode == 0
    sql = "INSERT INTO schema_migration (name, applied) SELECT '0999_later', applied FROM schema_migration LIMIT 1"
    running(Postgres).execute(sql, database=url.rpartition("/")[2])
    for arguments in (
        ["stackmem", "up", "--port", "0"],
        COMMANDS["waitress-serve"],
        ["celery", "-A", "workers", "worker", "-Q", "live"],
    ):
        _check_refused(arguments, environment(home, database_url=url), "newer stackmem (0999_later)")


def test_who_does_not_own_the_index_is_told_the_remedy(home: Path) -> None:
    redis = {"broker_url": "redis://127.0.0.1:9/0"}
    worker = ["celery", "-A", "workers", "worker", "-Q", "live,index"]
    _check_refused(worker, environment(home, **redis), "Start it with -Q live,batch", "STACKMEM_INDEX_URL=http://")
    with RunningServer(home):
        second = ["-c", "from stackmem import bootstrap\nbootstrap.build.__kwdefaults__['lock_wait_s'] = 0.2\n"
                  "import web; web.create_app()"]  # fmt: skip
        done = subprocess.run(
            [sys.executable, *second], env=environment(home), capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 1
        assert "Another stackmem is using" in done.stderr.splitlines()[-1]


def _check_refused(arguments: list[str], environ: dict[str, str], *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    for word in words:
        assert word in last
