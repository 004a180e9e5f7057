"""kill -9 at random moments of importing, remembering, comparing and indexing."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.checking import check_store, rows
from tests.running import RunningServer, command, environment, unmeasured, until

KILLS = 20
SESSIONS = 12  # of the real log: enough for comparisons, few enough to be killed again and again


def some_sessions(log: Path, target: Path, count: int) -> int:
    """Write the first sessions of a log to a file; return how many turns they hold (alternating, so about half)."""
    lines, names = [], []
    for line in log.read_text("utf-8").splitlines(keepends=True):
        name = line.split('"session": "')[1].split('"')[0]
        if name not in names:
            names.append(name)
        if len(names) > count:
            break
        lines.append(line)
    target.write_text("".join(lines), "utf-8")
    return len(lines)


@pytest.mark.slow
def test_an_import_killed_at_random_moments_loses_and_doubles_nothing(home: Path, real_logs: Path) -> None:
    file = home.parent / "log.jsonl"
    some_sessions(real_logs / "ad-ey.jsonl", file, SESSIONS)
    arguments = [sys.executable, "-m", "stackmem", "import", "--both-speakers", str(file)]
    whole = home.parent / "whole"
    whole.mkdir()
    started = time.monotonic()
    subprocess.run(arguments, env=unmeasured(environment(whole)), stdout=subprocess.DEVNULL, check=True)
    longest_s = time.monotonic() - started
    moments = random.Random(20260701)
    killed = 0
    for _ in range(KILLS):
        process = subprocess.Popen(
            arguments, env=unmeasured(environment(home)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(moments.uniform(0.3, longest_s))
        except subprocess.TimeoutExpired:
            process.kill()
            killed += 1
        process.wait()
    assert killed > 0
    done = command(home, "import", "--both-speakers", str(file))
    assert done.returncode == 0, done.stderr
    turns = rows(whole, "SELECT count(*) FROM turn")[0][0]
    check_store(home, turns)
    same = "SELECT id, summary, status, superseded_by FROM memory ORDER BY id"
    assert rows(home, same) == rows(whole, same)


@pytest.mark.slow
def test_a_server_killed_at_random_moments_keeps_every_acknowledged_turn(home: Path) -> None:
    moments = random.Random(7)
    server = RunningServer(home)
    said: list[str] = []
    for round_number in range(6):
        server.start()
        for number in range(7):
            text = f"{round_number}日目の{number}回目に、{number * 100 + round_number}円のりんごを買ったよ"
            server.say(text, f"s{round_number}")
            said.append(text)
        time.sleep(moments.uniform(0, 0.4))  # not to wait for something: to be killed at another moment
        server.kill()
    with server:
        for round_number in range(6):
            server.post(f"/v1/sessions/s{round_number}/close")
        server.settle()
    assert [row[0] for row in rows(home, "SELECT user FROM turn ORDER BY id")] == said
    check_store(home, len(said))


def test_a_turn_cut_off_before_its_answer_is_remembered_all_the_same(home: Path) -> None:
    from tests.scripted import ScriptedServer, hang

    with ScriptedServer(lambda request: hang()) as model:
        settings = {
            "chat_base_url": model.base_url,
            "chat_model": "m",
            "memory_model": "offline",
            "turn_timeout_s": "1",
        }
        server = RunningServer(home, **settings)
        server.start()
        body = '{"text": "来週の土曜に歯医者へ行くことにした", "session_id": "s"}'
        request = [
            "curl",
            "-s",
            "-m",
            "30",
            "-H",
            "Content-Type: application/json",
            "-d",
            body,
            f"{server.url}/v1/turns",
        ]
        asking = subprocess.Popen(request, stdout=subprocess.DEVNULL)
        until(lambda: rows(home, "SELECT count(*) FROM turn WHERE state = 'open'") == [(1,)], "the turn is open")
        server.kill()
        asking.wait()
        with server:
            server.post("/v1/sessions/s/close")
            server.settle()
    assert rows(home, "SELECT state FROM turn") == [("kept",)]
    check_store(home, turns=1)
