"""Robots that talk at once to a running server, and what the server's process looks like meanwhile."""

import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.running import PATIENCE, request, until

SAID = (
    "こんにちは、今日はいい天気だね",
    "うちの猫の名前はミケっていうの",
    "きのう富士通のノートPCを12万円で買ったんだ",
    "そろそろ寝るね",
)
LOOKED = '{"segments": [{"turn_ids": [1, 2, 3], "keep": true, "topic": "猫", "summary": "ユーザーの猫はミケ。"}]}'

# A process of its own, so that the model's threads take nothing from the robots'.
MODEL = """
import sys
from tests.scripted import ScriptedServer, content, say, slow
delay, looked = float(sys.argv[1]), sys.argv[2]
def answer(request):
    asked = str(request["messages"][-1].get("content"))
    if '"known"' in asked:
        return slow(delay, content('{"decisions": []}'))
    return slow(delay, content(looked) if "turn_id" in asked else say("そうなんだね。"))
with ScriptedServer(answer) as server:
    print(server.base_url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def model(delay_s: float, looked: str = LOOKED) -> Iterator[str]:
    """Run a scripted chat model that answers after ``delay_s``; yield its address."""
    command = [sys.executable, "-c", MODEL, str(delay_s), looked]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate()


@dataclass
class Talk:
    """What came of it: seconds of each turn, by the moment it began; and what went wrong, by its kind."""

    turns: list[tuple[float, float]] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    lasted_s: float = 0.0

    def add(self, began: float, problem: str) -> None:
        """Note a turn, or what went wrong instead."""
        if problem:
            self.errors[problem] = self.errors.get(problem, 0) + 1
        else:
            self.turns.append((began, time.monotonic() - began))

    @property
    def seconds(self) -> list[float]:
        """The seconds of all turns."""
        return [spent for _, spent in self.turns]

    def summary(self) -> dict[str, float]:
        """Return turns a second, milliseconds by percentile, and errors."""
        return {
            "turns": len(self.turns),
            "turns/s": len(self.turns) / self.lasted_s if self.lasted_s else 0.0,
            "p50 ms": percentile(50, self.seconds) * 1000,
            "p95 ms": percentile(95, self.seconds) * 1000,
            "p99 ms": percentile(99, self.seconds) * 1000,
            "errors": sum(self.errors.values()),
        }


def percentile(share: int, values: Sequence[float]) -> float:
    """Return a percentile; 0 of fewer than two values."""
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1] if len(values) > 1 else 0.0


def talk(port: int, robots: int, seconds: float, *, pause_s: float = 0.0, turns: int | None = None) -> Talk:
    """Let robots talk at once for so long, or until they said so much in all; each in sessions of 20 turns."""
    found, lock, begun = Talk(), threading.Lock(), time.monotonic()
    left = iter(range(turns if turns is not None else 10**9))

    def robot(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for said in range(10**9):
            with lock:
                over = next(left, None) is None
            if over or time.monotonic() - begun > seconds:
                return
            began = time.monotonic()
            problem = _turn(connection, f"robot-{number}-{said // 20}", SAID[said % len(SAID)])
            with lock:
                found.add(began, problem)
            time.sleep(pause_s)

    threads = [threading.Thread(target=robot, args=(number,)) for number in range(robots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.lasted_s = time.monotonic() - begun
    return found


def _turn(connection: http.client.HTTPConnection, session: str, text: str) -> str:
    try:
        body = json.dumps({"text": text, "session_id": session})
        connection.request("POST", "/v1/turns", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        given = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as exc:
        connection.close()
        return type(exc).__name__
    return str(answer.status) if answer.status != 200 else "degraded" if given["degraded"] else ""


def figures(url: str) -> dict[str, float]:
    """Return what /metrics says, without the histograms: ``stackmem_turns{state="pending"}`` → 3."""
    lines: list[str] = request("GET", f"{url}/metrics")[1].splitlines()
    parts = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
    return {name: float(value) for name, value in parts if "_bucket" not in name}


def drained(url: str, sessions: bool = True) -> float:
    """Close all sessions, so that every turn is due, and return the seconds until nothing waits any more."""
    if sessions:
        for row in request("GET", f"{url}/v1/sessions?limit=1000")[1]["sessions"]:
            if not row["ended_at"]:
                request("POST", f"{url}/v1/sessions/{row['session_id']}/close", {})
    begun = time.monotonic()

    def nothing_waits() -> bool:
        now = figures(url)
        return not any(value for name, value in now.items() if name.startswith("stackmem_waiting"))

    until(nothing_waits, "nothing waits", PATIENCE * 20)
    return time.monotonic() - begun


def process(pid: int) -> dict[str, float]:
    """Return a process's resident megabytes, open files and threads."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "resident MB": int(status["VmRSS"].split()[0]) / 1024,
        "files": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
    }


def table(title: str, rows: dict[str, Any]) -> str:
    """Return figures as lines."""
    lines = [
        f"  {name:34} {value:10.1f}" if isinstance(value, float) else f"  {name:34} {value:>10}"
        for name, value in rows.items()
    ]
    return "\n".join([title, *lines])
