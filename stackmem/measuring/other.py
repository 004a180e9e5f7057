"""The program beside which embedders are measured: started here, or running already."""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from typing import IO, Self

import psutil

from stackmem.exceptions import StackmemError

SHORTEST_S = 1.0  # a command that ends sooner has left its work to another process, or had none
END_S = 5.0  # from asking it to end to ending it
LAST_WORDS = 200  # characters


class Other:
    """A command, started again whenever it ends well, or a process by its id; each with all its children."""

    def __init__(self, command_or_pid: str):
        """Raises StackmemError where the command cannot be read."""
        try:
            self._words = shlex.split(command_or_pid)
        except ValueError as exc:
            raise StackmemError(f"--beside: {command_or_pid} cannot be read ({exc}).") from exc
        self.is_command = not command_or_pid.strip().isdecimal()
        self.name = command_or_pid if self.is_command else f"process {command_or_pid.strip()}"
        self._started: subprocess.Popen[bytes] | None = None
        self._top: psutil.Process | None = None
        self._output: IO[bytes] | None = None
        self._since = 0.0  # when it was started
        self._cpu_s: dict[tuple[int, float], float] = {}  # of each process seen, by its id and start

    def __enter__(self) -> Self:
        """Start it, or find it. Raises StackmemError."""
        if self.is_command:
            self._output = tempfile.TemporaryFile()
            try:
                self._start()
            except StackmemError:
                self._output.close()
                raise
            return self
        try:
            self._top = psutil.Process(int(self._words[0]))
            self._top.memory_info()
        except psutil.AccessDenied as exc:
            raise StackmemError(f"--beside: {self.name} belongs to another user.") from exc
        except (psutil.Error, OverflowError) as exc:
            raise StackmemError(f"--beside: there is no process {self._words[0]}.") from exc
        return self

    def __exit__(self, *_: object) -> None:
        """End what was started here; a process that ran before goes on."""
        self._end()
        if self._output:
            self._output.close()

    def _start(self) -> None:
        try:
            # A session of its own: Ctrl-C reaches stackmem, which then ends it with all its children.
            self._started = subprocess.Popen(
                self._words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, start_new_session=True
            )
        except (OSError, ValueError, IndexError) as exc:
            raise StackmemError(f"--beside: {self.name} cannot be started ({exc}).") from exc
        self._top, self._since = psutil.Process(self._started.pid), time.monotonic()

    def _end(self) -> None:
        if self._started is None:
            return
        leader, self._started = self._started, None
        for ending in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):  # macOS says the latter where all of them have ended
                os.killpg(leader.pid, ending)
            with suppress(subprocess.TimeoutExpired):
                leader.wait(END_S)

    def look(self) -> float:
        """Return the resident memory, in MB, of all its processes, and note their processor time.

        A command that has ended well is started again. Raises StackmemError where it cannot go on.
        """
        self._keep_going()
        total = 0.0
        for process in self._tree():
            with suppress(psutil.Error):  # it has just ended
                times = process.cpu_times()
                self._cpu_s[process.pid, process.create_time()] = times.user + times.system
                total += process.memory_info().rss
        return total / 1e6

    def cpu_s(self) -> float:
        """Return the processor seconds of all its processes so far, as noted, those that ended included."""
        return sum(self._cpu_s.values())

    def _keep_going(self) -> None:
        if self._started is None:
            if not self._is_running():
                raise StackmemError(f"--beside: {self.name} has ended.")
            return
        code = self._started.poll()
        if code == 0 and time.monotonic() - self._since < SHORTEST_S:
            raise StackmemError(f"--beside: {self.name} ended at once; name what goes on working, or its process id.")
        if code == 0:
            self._end()  # what it left running
            self._start()
        elif code is not None:
            raise StackmemError(f"--beside: {self.name} ended with code {code}{self._last_words()}.")

    def _is_running(self) -> bool:
        with suppress(psutil.Error):
            return self._top is not None and self._top.is_running() and self._top.status() != psutil.STATUS_ZOMBIE
        return False

    def _last_words(self) -> str:
        if self._output is None:
            return ""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").splitlines()
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f" ({said[:LAST_WORDS]})" if said else ""

    def _tree(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            if self._top is not None:
                return [self._top, *self._top.children(recursive=True)]
        return []
