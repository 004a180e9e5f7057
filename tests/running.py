"""Real stackmem processes for tests: a server, and commands of the command line."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from click.testing import CliRunner

from stackmem.cli import main
from stackmem.models import proxy
from tests.shapes import settings_of
from tests.waiting import PATIENCE, until

Reply = tuple[int, Any]


def llamas_of(pid: int) -> list[int]:
    """Return the ids of the processes in which this one runs llama.cpp."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [child for child in children if b"llama_process" in Path(f"/proc/{child}/cmdline").read_bytes()]


def environment(home: Path, **settings: str) -> dict[str, str]:
    """Return an environment with these settings and no others of ours."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("STACKMEM_")}
    settings = settings_of(home) | settings
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
    if hasattr(proxy.obj, "close_all"):
        proxy.obj.close_all()  # a pool, which ends with its process elsewhere
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


ONE = ("up",)
SEVERAL = ("web", "live", "batch", "beat")


class RunningServer:
    """A server on a free port: ``stackmem up``, or in another shape the processes it consists of.

    ``shape`` is that of ``tests.shapes``; without one every server runs in that of the environment.
    """

    def __init__(self, home: Path, *arguments: str, shape: str | None = None, **settings: str):
        self.home = home
        self._arguments, self._settings = arguments, settings
        several = bool(settings_of(home, shape)) and not (arguments or settings.keys() & {"broker_url", "database_url"})
        self.parts = SEVERAL if several else ONE
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._said_before: dict[str, int] = {}
        self.log = home.parent / f"{home.name}.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that answers."""
        return self.processes[self.parts[0]]

    @process.setter
    def process(self, started: subprocess.Popen[bytes]) -> None:
        self.processes[self.parts[0]] = started

    def start(self) -> None:
        """Start it and wait until it is ready."""
        (self.home / "server.json").unlink(missing_ok=True)
        for part in self.parts:
            self.start_part(part)
        self.wait_until_up()

    def start_part(self, part: str) -> None:
        """Start one of its processes; do not wait for it."""
        with self.log_of(part).open("ab") as log:
            self._said_before[part] = log.tell()
            self.processes[part] = subprocess.Popen(
                [sys.executable, "-m", *self._command_of(part)],
                env=environment(self.home, **self._settings),
                cwd=self.home.parent,
                stdout=log,
                stderr=log,
            )

    def _command_of(self, part: str) -> list[str]:
        worker = ["celery", "-A", "workers", "worker", "-n", f"{part}@%h", "-l", "INFO", "-Q", part]
        return {
            "up": ["stackmem", "up", "--port", "0", *self._arguments],
            "web": ["waitress", "--listen=127.0.0.1:0", "--threads=32", "--call", "web:create_app"],
            "live": [*worker, "-c", "2"],
            "batch": [*worker, "-c", "1"],
            "beat": ["celery", "-A", "workers", "beat", "-l", "INFO"],
        }[part]

    def log_of(self, part: str) -> Path:
        """Return the file that holds what one process says."""
        return self.log if part in ("up", "web") else self.log.with_suffix(f".{part}.log")

    def wait_until_up(self) -> None:
        """Wait until it answers, and its workers work."""
        until(self._is_up, f"the server is ready; it said: {self.said()}")
        for part in self.parts[1:3]:
            until(lambda part=part: self._works(part), f"the worker is ready: {self.said()}")  # type: ignore[misc]

    def _works(self, part: str) -> bool:
        assert self.processes[part].poll() is None, f"a worker ended: {self.said()}"
        return b" ready." in self.log_of(part).read_bytes()[self._said_before[part] :]

    def _is_up(self) -> bool:
        assert self.process.poll() is None, f"the server ended: {self.said()}"
        try:
            self.url = json.loads((self.home / "server.json").read_text())["url"]
            return self.get("/readyz")[0] == 200
        except (OSError, ValueError):
            return False

    def said(self) -> str:
        """Return what its processes printed so far."""
        logs = [self.log_of(part) for part in self.parts]
        return "\n".join(log.read_text() for log in logs if log.exists())

    def stop(self) -> int:
        """End it as a service manager would; return the exit code of the process that answers."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait(PATIENCE)
        return int(self.process.returncode)

    def kill(self, *parts: str) -> None:
        """End it, or some of its processes, as a power cut would."""
        for part in parts or self.parts:
            self.processes[part].kill()
            self.processes[part].wait(PATIENCE)

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
        code, now = self.get(f"/v1/admin/status?owner={owner}", **{"X-Stackmem-Key": self._key()})
        assert code == 200, now
        return now  # type: ignore[no-any-return]

    def sweep(self) -> None:
        """Look now for what is waiting, as beat makes a worker do."""
        code, answer = self.post("/v1/admin/sweep", **{"X-Stackmem-Key": self._key()})
        assert code == 200, answer

    def _key(self) -> str:
        return str(json.loads((self.home / "server.json").read_text())["key"])

    def settle(self, owner: str = "home", patience_s: float = 200) -> dict[str, Any]:
        """Wait until nothing changes by itself any more; return the status."""

        def settled() -> dict[str, Any] | None:
            now = self.status(owner)
            done = not (now["turns"]["open"] or now["turns"]["pending"] or now["index"]["pending"])
            return now if done else None

        # Longer than a dead worker's lease (90 s) and the hint after it (60 s).
        return until(settled, f"everything is remembered; the server said: {self.said()[-2000:]}", patience_s)  # type: ignore[no-any-return]
