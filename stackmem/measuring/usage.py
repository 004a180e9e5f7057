"""What the machine and the other program do over a while."""

import time
from dataclasses import dataclass

import psutil

from stackmem.measuring.other import Other

EVERY_S = 0.1  # between two looks
STEADY, STEADY_S, PATIENCE_S = 0.02, 2.0, 120.0  # loaded: its memory changes by 2 % at most in 2 s; waited for 2 min


@dataclass(frozen=True)
class Usage:
    """The memory the machine had free at first and at the least; what the other program took, where there is one.

    ``memory_mb``: resident at the most; ``cores``: how many it kept busy on average.
    """

    free_mb: float
    least_free_mb: float
    memory_mb: float | None = None
    cores: float | None = None


def free_mb() -> float:
    """Return the memory, in MB, that a program can have without another one being swapped out."""
    return float(psutil.virtual_memory().available / 1e6)


class Looking:
    """Looks, each time it is called; ``usage`` is what was seen since it was made."""

    def __init__(self, other: Other | None):
        self._other, self._started = other, time.monotonic()
        self._free, self._memory = [free_mb()], [other.look()] if other else []
        self._cpu_s = other.cpu_s() if other else 0.0

    def __call__(self) -> None:
        """Look once. Raises StackmemError where the other program cannot go on."""
        self._free.append(free_mb())
        if self._other:
            self._memory.append(self._other.look())

    def usage(self) -> Usage:
        """Return what was seen so far."""
        if not self._other:
            return Usage(self._free[0], min(self._free))
        spent_s = max(time.monotonic() - self._started, 1e-6)
        cores = (self._other.cpu_s() - self._cpu_s) / spent_s
        return Usage(self._free[0], min(self._free), max(self._memory), cores)

    @property
    def steady(self) -> bool:
        """Whether the other program's memory changed little."""
        return max(self._memory) - min(self._memory) <= STEADY * max(self._memory)


def wait_until_loaded(other: Other) -> Usage:
    """Return when the other program's memory has been steady for a while, with what it took then by itself."""
    end = time.monotonic() + PATIENCE_S
    while True:
        looking, until = Looking(other), time.monotonic() + STEADY_S
        while time.monotonic() < until:
            time.sleep(EVERY_S)
            looking()
        if looking.steady or time.monotonic() > end:
            return looking.usage()
