"""Real stackmem processes for tests: a server, and commands of the command line."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from click.testing import CliRunner

from stackmem.cli import main

PATIENCE = 60  # seconds until a condition that must come true is given up

Reply = tuple[int, Any]


def until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE) -> Any:
    """Return the first truthy value of the condition; fail when it never comes true."""
    end = time.monotonic() + patience_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"did not happen in {patience_s} s: {what}")
        time.sleep(0.05)


def llamas_of(pid: int) -> list[int]:
    """Return the ids of the processes in which this one runs llama.cpp."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [child for child in children if b"llama_process" in Path(f"/proc/{child}/cmdline").read_bytes()]


def environment(home: Path, **settings: str) -> dict[str, str]:
    """Return an environment with these settings and no others of ours."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("STACKMEM_")}
    return ours | {"STACKMEM_HOME": str(home)} | {f"STACKMEM_{name.upper()}": value for name, value in settings.items()}


def unmeasured(environ: dict[str, str]) -> dict[str, str]:
    """Return an environment without coverage: a process that is killed would be slowed by it for nothing."""
    return {name: value for name, value in environ.items() if not name.startswith(("COVERAGE_", "COV_CORE_"))}


def command(home: Path, *arguments: str, stdin: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end: as a process, or in this one (a second quicker) where it only asks a server."""
    if _is_served(home) and arguments[0] != "up":
        return _command_here(home, *arguments, stdin=stdin, **settings)
    return subprocess.run(
        [sys.executable, "-m", "stackmem", *arguments],
        env=environment(home, **settings),
        cwd=home.parent,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _is_served(home: Path) -> bool:
    try:
        os.kill(json.loads((home / "server.json").read_text())["pid"], 0)
    except (OSError, ValueError, KeyError, TypeError):  # of a server that ended, or one that never was
        return False
    return True


def _command_here(home: Path, *arguments: str, stdin: str, **settings: str) -> subprocess.CompletedProcess[str]:
    wanted = environment(home, **settings)
    changed = {name: wanted.get(name) for name in os.environ.keys() | wanted.keys() if name.startswith("STACKMEM_")}
    with contextlib.chdir(home.parent):
        done = CliRunner().invoke(main, arguments, stdin, changed, prog_name="stackmem")
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def json_of(home: Path, *arguments: str, **settings: str) -> Any:
    """Return the JSON a command prints; fail with what it said when it fails."""
    done = command(home, *arguments, "--json", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def request(
    method: str,
    url: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    content_type: str = "application/json",
) -> Reply:
    """Return (status, JSON or text) of one HTTP request; bytes and str bodies go out as they are."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"Content-Type": content_type} if data is not None else {}
    asked = urllib.request.Request(url, data=data, method=method, headers=sent | (headers or {}))
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            return answer.status, _read(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _read(error.read())


def _read(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


class RunningServer:
    """``stackmem up`` as a process of its own, on a free port."""

    def __init__(self, home: Path, *arguments: str, **settings: str):
        self.home = home
        self._arguments, self._settings = arguments, settings
        self.log = home.parent / f"{home.name}.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it is ready."""
        (self.home / "server.json").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stackmem", "up", "--port", "0", *self._arguments],
                env=environment(self.home, **self._settings),
                cwd=self.home.parent,
                stdout=log,
                stderr=log,
            )
        until(self._is_up, f"the server is ready; it said: {self.said()}")

    def _is_up(self) -> bool:
        assert self.process.poll() is None, f"the server ended: {self.said()}"
        try:
            self.url = json.loads((self.home / "server.json").read_text())["url"]
            return self.get("/readyz")[0] == 200
        except (OSError, ValueError):
            return False

    def said(self) -> str:
        """Return what the server printed so far."""
        return self.log.read_text() if self.log.exists() else ""

    def stop(self) -> int:
        """End it as a service manager would; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE)
        return self.process.returncode

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def get(self, path: str, **headers: str) -> Reply:
        """GET."""
        return request("GET", self.url + path, headers=headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        """POST JSON."""
        return request("POST", self.url + path, {} if body is None else body, headers)

    def say(self, text: str, session: str | None = None, **more: Any) -> dict[str, Any]:
        """Send one turn and return the answer."""
        status, answer = self.post("/v1/turns", {"text": text, "session_id": session, **more})
        assert status == 200, answer
        return answer  # type: ignore[no-any-return]

    def status(self, owner: str = "home") -> dict[str, Any]:
        """Return what ``stackmem status --json`` prints, from where that command has it."""
        key = json.loads((self.home / "server.json").read_text())["key"]
        code, now = self.get(f"/v1/admin/status?owner={owner}", **{"X-Stackmem-Key": key})
        assert code == 200, now
        return now  # type: ignore[no-any-return]

    def settle(self, owner: str = "home") -> dict[str, Any]:
        """Wait until nothing changes by itself any more; return the status."""

        def settled() -> dict[str, Any] | None:
            now = self.status(owner)
            done = not (now["turns"]["open"] or now["turns"]["pending"] or now["index"]["pending"])
            return now if done else None

        # Longer than a dead worker's lease (90 s) and the hint after it (60 s).
        return until(settled, f"everything is remembered; the server said: {self.said()[-2000:]}", 200)  # type: ignore[no-any-return]
