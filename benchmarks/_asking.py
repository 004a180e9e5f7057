"""Ask a log's probes: of its memories through the search tool's own path, and of raw windows of its turns."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks._figures import Rank, rank_of
from benchmarks._replay import places, spoken
from benchmarks.offline_rules import DATA, Turn, read, turns_of
from benchmarks.remember import LOGS
from stackmem.bootstrap import Runtime
from stackmem.lexical import bm25
from stackmem.ports import Embedder, Fingerprint, IndexFilter, Vector
from stackmem.search_arguments import SearchArguments
from stackmem.sources import source_turn_ids

OWNER = "home"
DEPTH = 100  # places looked at
WINDOW = 3  # turns of one raw window
LEXICAL = 0.3  # weight of the words beside the vectors, in the raw windows' order


@dataclass(frozen=True)
class Log:
    """A log and what is asked of it. ``reference``: its reference memories, where there are any."""

    name: str
    rows: list[dict[str, Any]]
    turns: list[Turn]
    probes: list[dict[str, Any]]
    reference: list[dict[str, Any]]


@dataclass(frozen=True)
class Ranks:
    """At which place each probe's evidence was found: any line of it, and its first line."""

    any_line: list[Rank]
    first_line: list[Rank]
    milliseconds: list[float]

    def __add__(self, other: "Ranks") -> "Ranks":
        """Return both together."""
        return Ranks(
            self.any_line + other.any_line,
            self.first_line + other.first_line,
            self.milliseconds + other.milliseconds,
        )


# --- logs ------------------------------------------------------------------------------------------------------------


def read_log(name: str) -> Log:
    """Read one of the real logs."""
    return log_of(name, read(f"{name}.jsonl"), read(f"probes-{name}.jsonl"), read(f"memories-{name}.jsonl"))


def log_of(
    name: str, rows: list[dict[str, Any]], probes: Sequence[dict[str, Any]], reference: list[dict[str, Any]]
) -> Log:
    """Return a log with the probes that it can answer; ``search`` left out means true."""
    asked = [probe for probe in probes if probe.get("search", True) is True and probe.get("evidence")]
    return Log(name, rows, turns_of(rows), asked, reference)


def read_own(file: Path, probes: Path | None) -> Log:
    """Read a log of one's own. Raises UsageError where its probes are missing."""
    if probes is None:
        raise click.UsageError("--file needs --probes: what is asked of it.")
    rows = read_lines(file, ("session", "at", "role", "text"))
    return log_of(file.stem, rows, read_lines(probes, ("question", "evidence")), [])


def read_lines(path: Path, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file. Raises UsageError where it is none, or an object lacks a key."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except ValueError as exc:
        raise click.UsageError(f"{path} is not JSON lines in UTF-8: {exc}") from exc
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not row.keys() >= set(keys):
            raise click.UsageError(f"Line {number} of {path} is no JSON object with {', '.join(keys)}.")
    return rows


def other_talk(name: str) -> list[str]:
    """Return the lines of the real logs other than this one."""
    if not DATA.is_dir():
        return []
    return [row["text"] for other in LOGS if other != name for row in read(f"{other}.jsonl")]


# --- what is measured ------------------------------------------------------------------------------------------------


class Remembered:
    """An embedder that keeps every vector it made: the same texts are embedded for every index."""

    def __init__(self, inner: Embedder, vectors: dict[tuple[str, str], Vector]):
        self.fingerprint: Fingerprint = inner.fingerprint
        self.floor, self.tie_margin = inner.floor, inner.tie_margin
        self._inner, self._vectors = inner, vectors

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim), float32."""
        name = str(self.fingerprint)
        missing = [text for text in dict.fromkeys(texts) if (name, text) not in self._vectors]
        for text, vector in zip(missing, self._inner.embed_documents(missing), strict=True):
            self._vectors[name, text] = vector
        return np.stack([self._vectors[name, text] for text in texts])

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim), float32."""
        return self._inner.embed_queries(texts)

    def ready(self) -> bool:
        """Tell whether the model is loaded."""
        return self._inner.ready()

    def load(self) -> None:
        """Load the model now."""
        self._inner.load()


def search_ranks(runtime: Runtime, log: Log) -> Ranks:
    """Ask every probe as the tool asks, and return where the evidence stands."""
    place_of = places(log.turns)

    def found(question: str) -> list[set[int]]:
        candidates = runtime.recall.find(SearchArguments(question, IndexFilter(OWNER)), DEPTH)
        ids = [candidate.memory.id for candidate in candidates]
        turn_ids = source_turn_ids(ids)
        return [_lines(log, [place_of[turn] for turn in turn_ids[one] if turn in place_of]) for one in ids]

    return ranks_of(log.probes, found)


def baseline_ranks(log: Log, embedder: Embedder) -> Ranks:
    """Return where the evidence stands among raw windows of turns: what memories must beat."""
    windows = raw_windows(log.turns)
    texts = ["\n".join("\n".join(filter(None, spoken(log.turns[place]))) for place in window) for window in windows]
    held = [_lines(log, window) for window in windows]
    vectors = embedder.embed_documents(texts)

    def found(question: str) -> list[set[int]]:
        dense = vectors @ embedder.embed_queries([question])[0]
        scores = z_scores(dense) + LEXICAL * z_scores(bm25(question, texts))
        return [held[place] for place in np.argsort(-scores, kind="stable")[:DEPTH]]

    return ranks_of(log.probes, found)


def ranks_of(probes: Sequence[dict[str, Any]], found: Callable[[str], list[set[int]]]) -> Ranks:
    """Ask all probes; ``found`` returns the lines that each thing found rests on, the best first."""
    ranks = Ranks([], [], [])
    for probe in probes:
        started = time.perf_counter()
        held = found(probe["question"])
        ranks.milliseconds.append((time.perf_counter() - started) * 1000)
        ranks.any_line.append(rank_of(held, probe["evidence"]))
        ranks.first_line.append(rank_of(held, probe["evidence"][:1]))
    return ranks


def raw_windows(turns: Sequence[Turn]) -> list[range]:
    """Return the places of the turns of every window, sliding by one inside a session; a short session is one."""
    windows: list[range] = []
    start = 0
    for end in range(1, len(turns) + 1):
        if end == len(turns) or turns[end].session != turns[start].session:
            windows += [range(at, min(at + WINDOW, end)) for at in range(start, max(start + 1, end - WINDOW + 1))]
            start = end
    return windows


def z_scores(values: NDArray[Any]) -> NDArray[Any]:
    """Return (values - mean) / deviation, zeros where all are alike."""
    deviation = float(values.std())
    return (values - values.mean()) / deviation if deviation > 1e-9 else np.zeros_like(values)


def _lines(log: Log, turn_places: Sequence[int]) -> set[int]:
    return {line for place in turn_places for line in log.turns[place].lines}
