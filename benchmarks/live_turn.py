"""What a live turn costs besides the model and the embedding: small talk, a memory turn, four robots at once.

A scripted model answers in 0 ms over HTTP; the server is a real ``stackmem up`` with a store filled to each size.
Run ``python -m benchmarks.live_turn`` from the checkout (``--memories 1000`` for one size; 50,000 take some minutes).
"""

import http.client
import json
import os
import random
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from benchmarks._filling import fill
from tests.running import RunningServer
from tests.scripted import Answer, ScriptedServer, call, say

SMALL_TALK = "こんにちは、今日はいい天気だね"
ASKED = "{number}番の倉庫には何がしまってあるんだっけ"
SIZES = (1000, 10_000, 50_000)
ADDED_MS = {1000: 8.0, 10_000: 15.0, 50_000: 50.0}  # that a memory turn may add at most
ROBOTS, EVERY_S = 4, 2.0


@dataclass(frozen=True)
class Sample:
    """Milliseconds of one turn: as the client saw it, inside the model's calls, inside the embedding."""

    whole: float
    model: float
    embed: float

    @property
    def own(self) -> float:
        """What is left for stackmem itself."""
        return self.whole - self.model - self.embed


def model(request: Any) -> Answer:
    """Search for what is asked, answer, and make nothing of it in the background."""
    messages = request["messages"]
    if not request.get("tools") and "turn_id" in messages[-1]["content"]:
        return Answer(completion={"role": "assistant", "content": '{"segments": [{"turn_ids": [1], "keep": false}]}'})
    if messages[-1]["role"] == "user" and "倉庫" in messages[-1]["content"]:
        return call("search_memory", {"query": messages[-1]["content"]})
    return say("そうなんだね。")


class Client:
    """One robot, over one connection."""

    def __init__(self, port: int, session: str):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._session = session

    def turn(self, text: str) -> Sample:
        """Post a turn and return what it took."""
        body = json.dumps({"text": text, "session_id": self._session})
        started = time.perf_counter()
        self._connection.request("POST", "/v1/turns", body, {"Content-Type": "application/json"})
        answer = json.loads(self._connection.getresponse().read())
        whole = (time.perf_counter() - started) * 1000
        self._connection.request("GET", f"/v1/turns/{answer['turn_id']}")
        spent = json.loads(self._connection.getresponse().read())["trace"]["durations_ms"]
        return Sample(whole, spent["model"], spent["embed"])


def commits_ms(folder: Path, count: int = 200) -> float:
    """Return the median of two durable commits, on the disk the store is on."""
    connection = sqlite3.connect(folder / "commits.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=wal")
    connection.execute("PRAGMA synchronous=full")
    connection.execute("CREATE TABLE t (x TEXT)")
    spent = []
    for _ in range(count):
        started = time.perf_counter()
        for _ in range(2):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO t VALUES (?)", ("あ" * 200,))
            connection.execute("COMMIT")
        spent.append((time.perf_counter() - started) * 1000)
    connection.close()
    return statistics.median(spent)


def resident_mb(pid: int) -> float:
    """Return a process's resident memory."""
    try:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0
    except OSError:
        done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return int(done.stdout or 0) / 1024


def four_robots(port: int, turns: int) -> list[Sample]:
    """Let four robots each say something every two seconds, half of it about memories."""
    samples: list[Sample] = []

    def talk(robot: int) -> None:
        client, chance = Client(port, f"robot-{robot}"), random.Random(robot)
        for number in range(turns):
            started = time.monotonic()
            text = ASKED.format(number=number * 7 + robot) if number % 2 else SMALL_TALK
            samples.append(client.turn(text))
            # People do not talk in step.
            time.sleep(max(0.0, EVERY_S * chance.uniform(0.5, 1.5) - (time.monotonic() - started)))

    threads = [threading.Thread(target=talk, args=(robot,)) for robot in range(ROBOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return samples


def p(share: int, values: Sequence[float]) -> float:
    """Return a percentile."""
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]


def measure(home: Path, base_url: str, memories: int, turns: int) -> dict[str, float]:
    """Return the figures for a store of this size."""
    filled_s = fill(home, memories, datetime.now(UTC) - timedelta(days=30))
    settings = {"chat_base_url": base_url, "chat_model": "scripted", "index_url": "edge:"}
    with RunningServer(home, **settings) as server:
        port = int(server.url.rsplit(":", 1)[1])
        client = Client(port, "one")
        for number in range(10):
            client.turn(ASKED.format(number=number))
        small = [client.turn(SMALL_TALK) for _ in range(turns)]
        asked = [client.turn(ASKED.format(number=number * 13 % memories)) for number in range(turns)]
        many = four_robots(port, max(3, turns // 10))
        memory_mb = resident_mb(server.process.pid)
    small_p50, asked_p50 = p(50, [s.own for s in small]), p(50, [s.own for s in asked])
    return {
        "commits": commits_ms(home),
        "small talk p50": small_p50,
        "small talk p95": p(95, [s.own for s in small]),
        "memory turn p50": asked_p50,
        "memory turn p95": p(95, [s.own for s in asked]),
        "memory turn adds": asked_p50 - small_p50,
        "embedding p50": p(50, [s.embed for s in asked]),
        "model p50 (client included)": p(50, [s.model for s in small]),
        "four robots p50": p(50, [s.own for s in many]),
        "four robots p95": p(95, [s.own for s in many]),
        "resident MB": memory_mb,
        "filling s": filled_s,
    }


def verdicts(memories: int, found: dict[str, float]) -> list[str]:
    """Return the goals with whether they are met."""
    added_ms = ADDED_MS.get(memories, max(ADDED_MS.values()))
    goals = [
        ("small talk p50 ≤ commits + 3 ms", found["small talk p50"] <= found["commits"] + 3.0),
        (f"memory turn adds ≤ {added_ms:.0f} ms", found["memory turn adds"] <= added_ms),
        ("four robots p50 ≤ 2 × the slower of both", found["four robots p50"] <= 2 * found["memory turn p50"]),
    ]
    return [f"  {'ok ' if met else 'NOT'} {goal}" for goal, met in goals]


@click.command()
@click.option("--memories", type=int, multiple=True, help="A size; once for each.")
@click.option("--turns", type=click.IntRange(20), default=200, show_default=True, help="Turns of each kind.")
@click.option("--json", "json_file", type=click.Path(), help="Write the figures there too.")
def main(memories: tuple[int, ...], turns: int, json_file: str | None) -> None:
    """Print the figures of each size."""
    results = {}
    for size in memories or SIZES:
        with tempfile.TemporaryDirectory(prefix="stackmem-live-") as folder, ScriptedServer(model) as server:
            found = results[size] = measure(Path(folder) / "home", server.base_url, size, turns)
        click.echo(f"{size} memories, {os.cpu_count()} cores, milliseconds without model and embedding")
        for name, value in found.items():
            click.echo(f"  {name:28} {value:8.2f}")
        click.echo("\n".join(verdicts(size, found)))
    if json_file:
        Path(json_file).write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
