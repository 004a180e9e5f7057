"""The package as others install it: the wheel, somewhere else, with nothing of the checkout in reach."""

import email
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.running import PATIENCE, environment, request, unmeasured, until

pytestmark = pytest.mark.usefixtures("one_process")

CHECKOUT = Path(__file__).parents[2]
SOURCES = ("celeryconfig.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
PACKAGES = ("stackmem", "web", "workers", "evals", "persona")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: setuptools writes into the folder it builds in."""
    copy = tmp_path_factory.mktemp("copy")
    for name in SOURCES:
        shutil.copy(CHECKOUT / name, copy)
    for name in (*PACKAGES, "tests"):
        shutil.copytree(CHECKOUT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--no-index", "-q"]
    done = subprocess.run([*build, "-w", "dist"], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = (copy / "dist").glob("stackmem-*.whl")
    return built


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that holds the wheel; its dependencies come from the present one."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    commands = folder / "bin"
    install = [sys.executable, "-m", "pip", "--python", commands / "python", "install", "--no-deps", "--no-index", "-q"]
    # With a checkout on its path, pip would find stackmem installed already.
    clean = clean_environment(folder)
    done = subprocess.run([*install, wheel], env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    # A path in a .pth file is added behind this environment's own packages, and no .pth file in it is read: an
    # editable stackmem there stays out of sight.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return commands


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A working directory that has nothing to do with the project."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def clean_environment(home: Path, **settings: str) -> dict[str, str]:
    clean = unmeasured(environment(home, **settings))
    clean.pop("PYTHONPATH", None)
    return clean


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], elsewhere: Path, says: str, **settings: str) -> Iterator[Path]:
    """Run a command until it has said something, then for the block; it must end well when told to."""
    log = elsewhere / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=elsewhere,
            env=clean_environment(elsewhere / "home", **settings),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )

    def has_said() -> bool:
        assert process.poll() is None, f"it ended: {log.read_text()}"
        return re.search(says, log.read_text()) is not None

    try:
        until(has_said, f"{command} says {says!r}")
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert "Traceback" not in log.read_text(), log.read_text()


# --- what is in it ---------------------------------------------------------------------------------------------------


def test_the_wheel_holds_everything_that_runs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names if not name.startswith("stackmem-")}
    assert tops == {"celeryconfig.py", *PACKAGES}
    for package in PACKAGES:
        there = {
            str(path.relative_to(CHECKOUT))
            for path in (CHECKOUT / package).rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }
        assert there <= names, f"left out of the wheel: {sorted(there - names)}"


@pytest.mark.parametrize(
    "file",
    [
        "celeryconfig.py",
        "persona/stackchan.toml",
        "persona/prompts/turn.ja.md",
        "persona/prompts/tools.en.json",
        "stackmem/migrations/0001_first.py",
        "web/up.py",
        "workers/tasks.py",
    ],
)
def test_the_wheel_holds(wheel: Path, file: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.getinfo(file).file_size > 0


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = next(name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        about = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
        assert f"{folder}/licenses/LICENSE" in archive.namelist()
    assert about["Name"] == "stackmem"
    assert about["License-Expression"] == "MIT" or about["License"] == "MIT"
    assert about["Requires-Python"] == ">=3.11"
    assert set(about.get_all("Provides-Extra")) >= {"postgres", "redis", "qwen3", "test"}


# --- what runs from it -----------------------------------------------------------------------------------------------


def test_what_runs_is_the_wheel_and_not_the_checkout(bin_folder: Path, elsewhere: Path) -> None:
    names = (*PACKAGES, "celeryconfig")
    done = subprocess.run(
        [bin_folder / "python", "-c", f"import {', '.join(names)}\nfor m in ({', '.join(names)}): print(m.__file__)"],
        cwd=elsewhere,
        env=clean_environment(elsewhere / "home"),
        capture_output=True,
        text=True,
        check=True,
    )
    files = done.stdout.splitlines()
    assert len(files) == len(names)
    assert all(file.startswith(str(bin_folder.parent)) for file in files), files


def test_stackmem_up_starts_from_the_wheel_and_answers(bin_folder: Path, elsewhere: Path) -> None:
    command = [str(bin_folder / "stackmem"), "up", "--port", "0"]
    with running(command, elsewhere, "stackmem is ready"):
        url = json.loads((elsewhere / "home" / "server.json").read_text())["url"]
        assert request("GET", f"{url}/readyz")[0] == 200
        status, answer = request("POST", f"{url}/v1/turns", {"text": "こんにちは"})
        assert (status, answer["model"]) == (200, "offline")
        assert answer["reply"]
    assert not (elsewhere / "home" / "server.json").exists()


def test_waitress_serve_starts_the_web_process_from_the_wheel(bin_folder: Path, elsewhere: Path) -> None:
    port = free_port()
    # The environment's own interpreter: the command of this name lies with the dependencies.
    serve = [str(bin_folder / "python"), "-m", "waitress", f"--listen=127.0.0.1:{port}", "--call", "web:create_app"]
    with running(serve, elsewhere, "Serving on"):
        assert request("GET", f"http://127.0.0.1:{port}/readyz")[0] == 200
        assert request("POST", f"http://127.0.0.1:{port}/v1/turns", {"text": "こんにちは"})[0] == 200


def test_a_celery_worker_starts_from_the_wheel_and_knows_its_tasks(bin_folder: Path, elsewhere: Path) -> None:
    worker = [str(bin_folder / "python"), "-m", "celery", "-A", "workers", "worker", "-l", "INFO", "-Q", "live"]
    # filesystem:// is a broker that needs no server: two folders in the working directory.
    for folder in ("data_in", "data_out"):
        (elsewhere / folder).mkdir()
    with running(worker, elsewhere, "celery@.* ready", broker_url="filesystem://localhost//") as log:
        said = log.read_text()
    tasks = set(re.findall(r"workers\.\w+", said))
    assert tasks >= {"workers.remember", "workers.index", "workers.compare", "workers.reindex", "workers.sweep"}


def test_a_web_process_and_a_worker_share_the_work(bin_folder: Path, tmp_path: Path) -> None:
    web, work = tmp_path / "web", tmp_path / "work"
    for folder in (web, work):
        folder.mkdir()
        (folder / "data_out").mkdir()
    # What one writes is what the other reads.
    (web / "data_in").symlink_to(work / "data_out")
    (work / "data_in").symlink_to(web / "data_out")
    (work / "home").symlink_to(web / "home")
    python, port = str(bin_folder / "python"), free_port()
    serve = [python, "-m", "waitress", f"--listen=127.0.0.1:{port}", "--call", "web:create_app"]
    worker = [python, "-m", "celery", "-A", "workers", "worker", "-l", "INFO", "-Q", "live"]
    broker = "filesystem://localhost//"
    url = f"http://127.0.0.1:{port}"
    with (
        running(serve, web, "Serving on", broker_url=broker),
        running(worker, work, "celery@.* ready", broker_url=broker) as log,
    ):
        told = {"text": "うちの猫の名前はミケっていうの", "session_id": "monday"}
        assert request("POST", f"{url}/v1/turns", told)[0] == 200
        assert request("POST", f"{url}/v1/sessions/monday/close", {})[0] == 200
        asked = f"{url}/v1/memories?q=cat"
        until(lambda: request("GET", f"{url}/v1/memories")[1]["count"], "the worker makes the memory")
        until(lambda: request("GET", asked)[1]["count"], "the web process, who owns the index, brings it there")
        assert "workers.remember" in log.read_text()
