"""Measures embedders one after the other, each in a process of its own."""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from stackmem.measuring.candidates import Candidate
from stackmem.measuring.other import Other
from stackmem.measuring.usage import EVERY_S, Looking, Usage, free_mb
from stackmem.ports import Fingerprint, Vector

END_S = 5.0  # from asking a child to end to ending it
LAST_WORDS = 200  # characters


@dataclass(frozen=True)
class Measured:
    """What one child found: its figures (see one.measure) and vectors, or a sentence why there are none."""

    candidate: Candidate
    figures: dict[str, float]
    fingerprint: Fingerprint
    queries: Vector
    summaries: Vector
    usage: Usage
    error: str = ""


def measure(candidate: Candidate, other: Other | None = None) -> Measured:
    """Measure one embedder, beside the other program where there is one. Raises StackmemError where that ends."""
    free = free_mb()
    if candidate.why_not:
        return failed(candidate, candidate.why_not)
    if candidate.needs_mb > free:
        needed, there = candidate.needs_mb / 1000, free / 1000
        return failed(candidate, f"Not tried: it takes about {needed:.1f} GB while it loads, and {there:.1f} are free.")
    with tempfile.TemporaryDirectory() as folder:
        return _in_child(candidate, other, Path(folder))


def failed(candidate: Candidate, sentence: str) -> Measured:
    """Return a result without figures."""
    nothing, free = np.zeros((0, 0), dtype=np.float32), free_mb()
    return Measured(candidate, {}, Fingerprint("", 0), nothing, nothing, Usage(free, free), sentence)


def _in_child(candidate: Candidate, other: Other | None, folder: Path) -> Measured:
    vectors = folder / "vectors.npz"
    # -P: a folder named stackmem in the working directory is not ours.
    command = [sys.executable, "-P", "-m", "stackmem.measuring.one", json.dumps(candidate.changes), str(vectors)]
    looking = Looking(other)
    with (folder / "out").open("w+b") as out, (folder / "err").open("w+b") as err, _running(command, out, err) as child:
        while child.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                child.wait(EVERY_S)
            looking()
        found = _said(child.returncode, out, err)
    if "error" in found:
        return failed(candidate, str(found["error"]))
    with np.load(vectors) as stored:
        fingerprint = Fingerprint(**found.pop("fingerprint"))
        return Measured(candidate, found, fingerprint, stored["queries"], stored["summaries"], looking.usage())


@contextmanager
def _running(command: Sequence[str], out: IO[bytes], err: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command for the block; it ends with it, however the block ends."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.terminate()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(END_S)
                child.kill()


def _said(code: int, out: IO[bytes], err: IO[bytes]) -> dict[str, Any]:
    """Return what the child printed, or {"error": a sentence}."""
    out.seek(0)
    if code == 0:
        found: dict[str, Any] = json.loads(out.read())
        return found
    if code == -signal.SIGKILL:
        return {"error": "It was killed, most likely because memory ran out."}
    err.seek(0)
    lines = [line.strip() for line in err.read().decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "it said nothing")
    return {"error": f"It ended with code {code}: {last[:LAST_WORDS]}"}
