"""The program beside: watched with its children, started again, ended; never one that ran before."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stackmem.exceptions import StackmemError
from stackmem.measuring import usage
from stackmem.measuring.other import Other
from stackmem.measuring.usage import Looking, wait_until_loaded
from tests.running import until

WAIT = "import sys, time; sys.stdout.write('ready'); sys.stdout.flush(); time.sleep(600)"
LARGE = 50_000_000  # bytes


def python(code: str) -> str:
    return f'{sys.executable} -c "{code}"'


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE  # which nobody may have reaped yet
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def running() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody here may end."""
    with subprocess.Popen([sys.executable, "-c", WAIT], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"ready"
        yield process
        process.kill()


def test_its_memory_and_time_are_those_of_all_its_processes(tmp_path: Path) -> None:
    child = f"x = bytearray({LARGE})\nopen('{tmp_path}/there', 'w').close()\nwhile True: pass"
    script = tmp_path / "parent.py"
    script.write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])")
    with Other(f"{sys.executable} {script}") as other:
        until((tmp_path / "there").exists, "the child is there")
        looking = Looking(other)
        until(lambda: looking() or looking.usage().cores, "it was seen to work")
        seen = looking.usage()
        assert seen.memory_mb is not None
        assert LARGE / 1e6 < seen.memory_mb < 20 * LARGE / 1e6
        processes = other._tree()
        assert len(processes) == 2
    until(lambda: not any(map(lives, processes)), "they end with it")


def test_a_command_that_ends_well_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackmem.measuring.other.SHORTEST_S", 0.0)
    times = tmp_path / "times"
    with Other(python(f"open('{times}', 'a').write('x')")) as other:
        until(lambda: other.look() and times.exists() and len(times.read_text()) >= 3, "it ran three times")


def test_a_command_that_ends_at_once_is_not_started_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackmem.measuring.other.SHORTEST_S", 600.0)
    with Other("true") as other, pytest.raises(StackmemError, match="--beside: true ended at once"):
        until(lambda: other.look() and False, "it ends")


def test_a_command_that_fails_is_told_with_its_last_words() -> None:
    with (
        Other(python("import sys; sys.exit('no microphone')")) as other,
        pytest.raises(StackmemError, match=r"ended with code 1 \(no microphone\)"),
    ):
        until(lambda: other.look() and False, "it ends")


@pytest.mark.parametrize("command", ["/no/such/program --fast", '"', ""])
def test_a_command_that_cannot_be_started_is_one_sentence(command: str) -> None:
    with pytest.raises(StackmemError, match="--beside"), Other(command):
        pass


def test_a_command_that_will_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackmem.measuring.other.END_S", 0.1)
    deaf = f"import signal; signal.signal(15, signal.SIG_IGN); open('{tmp_path}/there', 'w'); {WAIT}"
    with Other(python(deaf)) as other:
        until((tmp_path / "there").exists, "it is deaf")
        (process,) = other._tree()
    until(lambda: not lives(process), "it ends")


def test_a_process_that_ran_before_is_watched_and_left_alone(running: subprocess.Popen[bytes]) -> None:
    with Other(f" {running.pid} ") as other:
        assert not other.is_command
        assert other.look() == pytest.approx(psutil.Process(running.pid).memory_info().rss / 1e6)
    assert running.poll() is None


def test_a_process_that_ends_meanwhile_is_told(running: subprocess.Popen[bytes]) -> None:
    with Other(str(running.pid)) as other:
        running.kill()
        with pytest.raises(StackmemError, match=f"process {running.pid} has ended"):
            until(lambda: other.look() and False, "it ends")


@pytest.mark.parametrize("pid", ["999999999", "99999999999999999999"])
def test_a_process_that_is_not_there_is_one_sentence(pid: str) -> None:
    with pytest.raises(StackmemError, match=f"no process {pid}"), Other(pid):
        pass


def test_without_another_program_only_free_memory_is_seen() -> None:
    looking = Looking(None)
    looking()
    seen = looking.usage()
    assert (seen.memory_mb, seen.cores) == (None, None)
    assert 0 < seen.least_free_mb <= seen.free_mb


def test_it_counts_as_loaded_once_its_memory_is_steady(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "STEADY_S", 0.3)
    grows = f"import time; x = []; [(x.append(bytes([1]) * 5000000), time.sleep(0.05)) for _ in range(20)]; {WAIT}"
    with Other(python(grows)) as other:
        seen = wait_until_loaded(other)
        assert seen.memory_mb is not None
        assert seen.memory_mb > 100


def test_one_that_is_never_steady_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "STEADY_S", 0.1)
    monkeypatch.setattr(usage, "STEADY", -1.0)
    monkeypatch.setattr(usage, "PATIENCE_S", 0.0)
    with Other(python(WAIT)) as other:
        assert wait_until_loaded(other).cores is not None
