"""100 robots that talk at once, against a model that takes 300 ms: in one process, or in several over a broker.

Run ``python -m benchmarks.load`` from the checkout for one process; ``--shape postgres-rabbitmq`` or
``postgres-redis`` for several, over services that it starts itself (they must be installed); ``--seconds 20`` for a
short one. Measured are the turns, the backlog they leave and how long it takes to drain, and memory. In one process
also what a big import beside the turns costs, with and without giving way; in several what a queue of 10,000 costs,
and a broker that is stopped.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks._robots import drained, figures, model, percentile, process, table, talk
from tests.running import environment, request, until
from tests.services import Service
from tests.shapes import ONE_PROCESS, SHAPES, settings_of
from tests.shapes import running as of_this_process

DEEP = 10_000  # messages
UP = "import stackmem.traffic as t; t.PATIENCE_S = {patience}; from stackmem.cli import main; main()"
IMPORTED = 1500  # turns of the import


@dataclass(frozen=True)
class Running:
    """A running stackmem: its address, its web process, and its workers' processes where it has some."""

    url: str
    web: subprocess.Popen[bytes]
    workers: tuple[subprocess.Popen[bytes], ...] = ()

    @property
    def port(self) -> int:
        """The port."""
        return int(self.url.rsplit(":", 1)[1])


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(home: Path, patience_s: float, *, shared: bool, **settings: str) -> Iterator[Running]:
    """Start it, in one process or (``shared``) as web, two workers and beat; stop it at the end."""
    port = free_port()
    python, url = sys.executable, f"http://127.0.0.1:{port}"
    env, log = environment(home, **settings), (home.parent / "log").open("ab")
    celery = [python, "-m", "celery", "-A", "workers"]
    commands = [[python, "-c", UP.format(patience=patience_s), "up", "--port", str(port)]]
    if shared:
        commands = [
            [
                python,
                "-m",
                "waitress",
                f"--listen=127.0.0.1:{port}",
                "--threads=32",
                "--connection-limit=400",
                "--call",
                "web:create_app",
            ],
            [*celery, "worker", "-Q", "live", "-c", "2", "-n", "live@%h", "-l", "WARNING"],
            [*celery, "worker", "-Q", "batch", "-c", "1", "-n", "batch@%h", "-l", "WARNING"],
            [*celery, "beat", "-s", str(home / "beat"), "-l", "WARNING"],
        ]
    with ExitStack() as stack:
        stack.enter_context(log)
        started = []
        for command in commands:
            one = subprocess.Popen(command, env=env, cwd=Path.cwd(), stdout=log, stderr=log)
            started.append(stack.enter_context(one))
            stack.callback(one.terminate)
            stack.callback(one.send_signal, signal.SIGCONT)
            until(lambda: is_ready(url), f"it is ready: {(home.parent / 'log').read_text()[-2000:]}")
        now = Running(url, started[0], tuple(started[1:-1]))
        until(lambda: "loading" not in str(request("GET", f"{url}/readyz")[1]), "the embedder is loaded")
        talk(now.port, 32, 60, turns=100)  # every thread has its connections and caches
        yield now


def is_ready(url: str) -> bool:
    """Tell whether the server answers."""
    try:
        return request("GET", f"{url}/readyz")[0] == 200
    except OSError:
        return False


def at_once(now: Running, robots: int, seconds: float, pause_s: float) -> dict[str, float]:
    """Let the robots talk; return the figures, the backlog and its end among them."""
    before = process(now.web.pid)
    talked = talk(now.port, robots, seconds, pause_s=pause_s)
    after, left = process(now.web.pid), figures(now.url)
    found = talked.summary() | {
        "memory grew by MB": after["resident MB"] - before["resident MB"],
        "resident MB": after["resident MB"],
        "backlog: turns": left['stackmem_turns{state="pending"}'],
        "backlog: sessions": left['stackmem_waiting{work="look"}'],
        "oldest pending s": left["stackmem_oldest_pending_seconds"],
    }
    return found | {"drained in s": drained(now.url)} | {f"errors: {kind}": n for kind, n in talked.errors.items()}


def beside_an_import(now: Running, seconds: float) -> dict[str, float]:
    """Return what four robots' turns cost alone, and while the background has a big import to remember."""
    alone = talk(now.port, 4, seconds, pause_s=0.2)
    at = "2026-07-{day:02}T{hour:02}:{minute:02}:00+09:00"
    lines = [
        json.dumps(
            {"session": f"s{number // 20}", "role": role, "text": f"{number}番の倉庫に自転車をしまったよ",
             "at": at.format(day=1 + number // 1440, hour=number // 60 % 24, minute=number % 60)}
        )
        for number in range(IMPORTED) for role in ("user", "assistant")
    ]  # fmt: skip
    request("POST", f"{now.url}/v1/import", "\n".join(lines).encode(), content_type="application/x-ndjson")
    beside = talk(now.port, 4, seconds, pause_s=0.2)
    still = figures(now.url)
    found = {}
    for name, talked in (("alone", alone), ("beside an import", beside)):
        found |= {f"{name}: p{share} ms": percentile(share, talked.seconds) * 1000 for share in (50, 95)}
    found["import: sessions still waiting"] = still['stackmem_waiting{work="look"}']
    return found | {"import: drained after s": drained(now.url)}


def over_a_deep_queue(now: Running, seconds: float, settings: dict[str, str]) -> dict[str, float]:
    """Return what live turns cost over an empty queue and over one of 10,000, both while the workers stand still."""
    for worker in now.workers:
        worker.send_signal(signal.SIGSTOP)
    empty = talk(now.port, 4, seconds)
    send = f"from workers import app\nfor n in range({DEEP}): app.send_task('workers.remember', args=[0])"
    subprocess.run([sys.executable, "-c", send], env=os.environ | settings, check=True)
    until(lambda: figures(now.url).get('stackmem_queue_messages{queue="live"}', 0) >= DEEP * 0.99, "the queue is deep")
    deep = talk(now.port, 4, seconds)
    purge = "from workers import app\nwith app.connection() as c: c.default_channel.queue_purge('live')"
    subprocess.run([sys.executable, "-c", purge], env=os.environ | settings, check=True)
    again = talk(now.port, 4, seconds)  # whatever else the machine does has changed meanwhile
    for worker in now.workers:
        worker.send_signal(signal.SIGCONT)
    before, over, after = (percentile(50, talked.seconds) * 1000 for talked in (empty, deep, again))
    return {
        "empty queue: p50 ms": before,
        "10,000 deep: p50 ms": over,
        "empty again: p50 ms": after,
        "slower by %": 100 * (2 * over / (before + after) - 1),
    }


def without_a_broker(now: Running, seconds: float, broker: Service) -> dict[str, float]:
    """Return what live turns cost with a broker, with one that is stopped, and with it again."""
    before = talk(now.port, 4, seconds)
    broker.stop()
    stopped = talk(now.port, 4, seconds)
    broker.start()
    after = talk(now.port, 4, seconds)
    found = {}
    for name, talked in (("with it", before), ("stopped", stopped), ("with it again", after)):
        found |= {f"{name}: p{share} ms": percentile(share, talked.seconds) * 1000 for share in (50, 95)}
        found |= {f"{name}: errors, {kind}": count for kind, count in talked.errors.items()}
    return found


@click.command()
@click.option("--robots", type=click.IntRange(1), default=100, show_default=True)
@click.option("--seconds", type=float, default=120.0, show_default=True)
@click.option("--pause", default=0.0, show_default=True, help="Seconds between a robot's turns.")
@click.option("--model-ms", default=300, show_default=True)
@click.option("--shape", type=click.Choice(list(SHAPES)), default=ONE_PROCESS, show_default=True)
@click.option("--json", "json_file", type=click.Path(), help="Write the figures there too.")
def main(robots: int, seconds: float, pause: float, model_ms: int, shape: str, json_file: str | None) -> None:
    """Print the figures."""
    is_shared = shape != ONE_PROCESS
    results: dict[str, dict[str, Any]] = {}
    short = min(seconds, 30.0)

    def show(title: str, found: dict[str, Any]) -> None:
        results[title] = found
        click.echo(table(title, found))

    with tempfile.TemporaryDirectory(prefix="stackmem-load-") as folder, model(model_ms / 1000) as address:
        home = Path(folder) / "one" / "home"
        home.mkdir(parents=True)
        chat = {"chat_base_url": address, "chat_model": "scripted", "judge_calls_per_day": "0"}
        chat |= settings_of(home, shape)
        with running(home, 0.1, shared=is_shared, **chat) as now:
            show(f"{robots} robots at once, {shape}, {os.cpu_count()} cores", at_once(now, robots, seconds, pause))
            if is_shared:
                given = {f"STACKMEM_{name.upper()}": value for name, value in chat.items()}
                show("live turns of 4 robots over a queue", over_a_deep_queue(now, short, given))
                broker = of_this_process(SHAPES[shape][1])
                show("live turns of 4 robots and the broker", without_a_broker(now, short, broker))
        for patience_s in () if is_shared else (0.1, 0.0):
            home = Path(folder) / f"import{patience_s}" / "home"
            home.mkdir(parents=True)
            with running(home, patience_s, shared=False, memory_model="offline", **chat) as now:
                how = f"giving way for {patience_s * 1000:.0f} ms" if patience_s else "without giving way"
                show(f"live turns of 4 robots beside an import, {how}", beside_an_import(now, short))
    if json_file:
        Path(json_file).write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
