"""One embedder in a process of its own: ``python -m stackmem.measuring.one '{"embedder": "use"}' vectors.npz``.

Its figures go to standard output as JSON, its vectors into the file; a failure is ``{"error": sentence}``. It ends when
its standard input does, so that it outlives nobody.
"""

import contextlib
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from stackmem.config import Settings, load_settings
from stackmem.exceptions import StackmemError
from stackmem.measuring.figures import percentile
from stackmem.measuring.sample import Sample, japanese
from stackmem.ports import Vector
from stackmem.providers import embedder_of


def measure(settings: Settings, sample: Sample) -> tuple[dict[str, Any], Vector, Vector]:
    """Load and embed in this process; return what was found, the questions' and the summaries' vectors.

    Found: ``fingerprint``; ``load_s``; ``resident_mb`` after loading, ``peak_mb`` to the end; ``query_ms``,
    ``query_p95_ms``, ``summary_ms``, ``summary_p95_ms`` (p50 and p95, one text a call). Raises StackmemError.
    """
    started = time.perf_counter()
    embedder = embedder_of(settings)
    embedder.load()
    figures: dict[str, Any] = {"load_s": time.perf_counter() - started, "resident_mb": _status_mb("VmRSS")}
    embedder.embed_queries(sample.questions[:1])  # the first call is slower: caches, connections
    queries, query_ms = _one_by_one(embedder.embed_queries, sample.questions)
    summaries, summary_ms = _one_by_one(embedder.embed_documents, sample.summaries)
    for name, times in (("query", query_ms), ("summary", summary_ms)):
        figures |= {f"{name}_ms": percentile(times, 50), f"{name}_p95_ms": percentile(times, 95)}
    found = figures | {"peak_mb": _status_mb("VmHWM"), "fingerprint": asdict(embedder.fingerprint)}
    return found, queries, summaries


def _one_by_one(embed: Callable[[Sequence[str]], Vector], texts: Sequence[str]) -> tuple[Vector, list[float]]:
    vectors, times = [], []
    for text in texts:
        started = time.perf_counter()
        vectors.append(embed([text]))
        times.append((time.perf_counter() - started) * 1000)
    return np.concatenate(vectors), times


def _status_mb(name: str) -> float:
    """Return this process's resident memory, now (``VmRSS``) or at its most (``VmHWM``), in MB."""
    with contextlib.suppress(OSError):
        # Not ru_maxrss: on Linux a child begins with that of its parent.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024 / 1e6
    if name == "VmHWM":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS
    import psutil

    return float(psutil.Process().memory_info().rss / 1e6)


def _end_with_parent() -> None:
    while os.read(0, 4096):  # not sys.stdin, whose lock this thread would still hold when Python ends
        pass
    os._exit(1)


def main(changes: dict[str, Any], vectors_file: str) -> None:
    """Measure with the settings so changed, and say what came of it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    said = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # libraries that greet
        try:
            settings = load_settings().model_copy(update=changes)
            found: dict[str, Any]
            found, queries, summaries = measure(settings, japanese())
            np.savez(vectors_file, queries=queries, summaries=summaries)
        except StackmemError as exc:
            found = {"error": str(exc)}
        except MemoryError:
            found = {"error": "Memory ran out."}
    said.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
