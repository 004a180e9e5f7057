"""How well a model remembers two real Japanese logs that were imported or replayed live, and what its calls cost.

Run ``python -m benchmarks.remember`` from the checkout; it reads ../shared/data beside the checkout. The model is that
of the settings (STACKMEM_MEMORY_*, STACKMEM_CHAT_*; without them the offline rules), the store a temporary one.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from benchmarks._counting import Call, read_calls
from benchmarks._replay import (
    Hints,
    Live,
    Made,
    SetClock,
    import_log,
    look_counts,
    made_memories,
    opened,
)
from benchmarks.offline_rules import DATA, Turn, read, turns_of
from stackmem.cli.progress import progress_bar
from stackmem.clock import SystemClock

LOGS = ("ad-ey", "he-gu")
AT_LEAST = {"capture recall": 0.75, "probes: first evidence line held": 0.85}
AT_MOST = {"memories on no keep turn": 0.25, "calls per turn": 0.40, "prompt tokens per turn": 1500.0}

Figures = dict[str, float | int | None]  # int: a count


@dataclass(frozen=True)
class Log:
    """A log, or its first sessions, with what is known of its lines (numbered from 1)."""

    name: str
    rows: list[dict[str, Any]]
    turns: list[Turn]
    labels: dict[int, bool]
    probes: list[dict[str, Any]]
    reference: list[Made]


def read_log(name: str, count: int | None = None) -> Log:
    """Read a log; with ``count`` only that many sessions, and what is known of their lines."""
    rows = read(f"{name}.jsonl")
    wanted = list(dict.fromkeys(row["session"] for row in rows))[:count]
    rows = [row for row in rows if row["session"] in wanted]
    labels = read(f"labels-{name}.jsonl") if (DATA / f"labels-{name}.jsonl").exists() else []
    turns = turns_of(rows)
    reference = [memory for memory in read(f"memories-{name}.jsonl") if max(memory["lines"]) <= len(rows)]
    probes = [probe for probe in read(f"probes-{name}.jsonl") if probe["search"] is True]
    return Log(
        name,
        rows,
        turns,
        {row["line"]: row["keep"] for row in labels if row["line"] <= len(rows)},
        [probe for probe in probes if max(probe["evidence"]) <= len(rows)],
        [Made(row["topic"], row["summary"], turns_with(turns, row["lines"])) for row in reference],
    )


def turns_with(turns: Sequence[Turn], lines: Sequence[int]) -> tuple[int, ...]:
    """Return the places, counted from 0, of the turns that hold one of these lines."""
    return tuple(place for place, turn in enumerate(turns) if set(turn.lines) & set(lines))


# --- figures ---------------------------------------------------------------------------------------------------------


def share(part: float, whole: float) -> float | None:
    """Return part / whole, None where there is nothing to take a part of."""
    return part / whole if whole else None


def quality(log: Log, memories: Sequence[Made]) -> Figures:
    """Return how well the memories hold what is worth remembering, and little else."""
    sources = {place for memory in memories for place in memory.turns}
    held = {line for place in sources for line in log.turns[place].lines}
    keep_lines = {line for line, keep in log.labels.items() if keep}
    kept = keep_turns(log)
    judged = [memory for memory in memories if kept.keys() & memory.turns]
    judged_turns = kept.keys() & sources
    evidence = [probe["evidence"] for probe in log.probes]
    return {
        "capture recall": share(len(keep_lines & held), len(keep_lines)),
        "memories on no keep turn": share(sum(not any(map(kept.get, memory.turns)) for memory in judged), len(judged)),
        "noise by turn": share(sum(not kept[place] for place in judged_turns), len(judged_turns)),
        "probes: first evidence line held": share(sum(lines[0] in held for lines in evidence), len(evidence)),
        "probes: all evidence lines held": share(sum(held.issuperset(lines) for lines in evidence), len(evidence)),
        "not-keep lines held": share(len(held & (log.labels.keys() - keep_lines)), len(log.labels) - len(keep_lines)),
        "turns held": share(len(sources), len(log.turns)),
        "memories": len(memories),
        "memories superseded": sum(memory.status == "superseded" for memory in memories),
        "memories per 100 turns": share(100 * len(memories), len(log.turns)),
        "turns per memory": share(sum(len(memory.turns) for memory in memories), len(memories)),
    }


def keep_turns(log: Log) -> dict[int, bool]:
    """Return the labelled turns by place: whether any of a turn's labelled lines is to keep."""
    found = {}
    for place, turn in enumerate(log.turns):
        labelled = [log.labels[line] for line in turn.lines if line in log.labels]
        if labelled:
            found[place] = any(labelled)
    return found


def cost(calls: Sequence[Call], turns: int) -> Figures:
    """Return what the calls cost a turn: together, and those of either purpose."""
    figures: Figures = {}
    for purpose in ("", "remember", "compare"):
        ours = [call for call in calls if call.answered and purpose in ("", call.purpose)]
        ending = f", {purpose}" if purpose else ""
        figures |= {
            f"calls per turn{ending}": share(len(ours), turns),
            f"prompt tokens per turn{ending}": share(sum(call.prompt_tokens for call in ours), turns),
            f"completion tokens per turn{ending}": share(sum(call.completion_tokens for call in ours), turns),
            f"model seconds per turn{ending}": share(sum(call.seconds for call in ours), turns),
        }
    return figures | {"calls that failed": sum(not call.answered for call in calls)}


def verdict(name: str, value: float | None) -> bool | None:
    """Tell whether a figure meets its goal; None where it has none, or there is no figure."""
    if value is None:
        return None
    if name in AT_LEAST:
        return value >= AT_LEAST[name]
    return value <= AT_MOST[name] if name in AT_MOST else None


# --- a run -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What one log, brought in one way, gave."""

    log: Log
    way: str
    model: str
    memories: list[Made]
    calls: list[Call]
    seconds: float
    looks: dict[str, int]

    def figures(self) -> Figures:
        """Return all figures."""
        return quality(self.log, self.memories) | cost(self.calls, len(self.log.turns)) | self.looks

    def reference(self) -> Figures:
        """Return the quality of the reference memories."""
        return quality(self.log, self.log.reference)


def run(log: Log, way: str, home: Path) -> Result:
    """Bring a log into the store in ``home`` and return what came of it."""
    started = time.perf_counter()
    queue, clock = Hints(), SetClock(datetime(2000, 1, 1, tzinfo=UTC))
    is_import = way == "import"
    with (
        opened(home, SystemClock() if is_import else clock, queue) as runtime,
        progress_bar(f"{log.name}, {way}") as report,
    ):
        if is_import:
            import_log(runtime, log.name, log.rows, report)
        else:
            Live(runtime, clock, queue, log.name, closes=way == "live, closed").run(log.turns, log.rows, report)
        model, looks, memories = runtime.work.remembering.model.name, look_counts(), made_memories(log.turns)
    return Result(log, way, model, memories, read_calls(home), time.perf_counter() - started, looks)


@contextmanager
def home_folder(keep: Path | None, name: str) -> Iterator[Path]:
    """Yield the folder of one store: inside ``keep``, or one that is gone afterwards."""
    if keep:
        folder = keep / name.replace(", ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)


def show(result: Result) -> None:
    """Print the figures, the reference memories' beside them, and whether each goal is met."""
    log = result.log
    talks = len(list(groupby(log.turns, key=lambda turn: turn.session)))
    head = f"{log.name}, {result.way}: {len(log.turns)} turns, {talks} sessions, {result.model}, {result.seconds:.0f} s"
    click.echo(f"\n{head}\n  {'':42}{'here':>9}{'reference':>11}")
    reference = result.reference()
    for name, value in result.figures().items():
        estimated = "tokens" in name and any(call.estimated for call in result.calls)
        label = name + (" (estimated)" if estimated else "")
        beside = written(reference[name]) if name in reference else ""
        click.echo(f"  {label:42}{written(value):>9}{beside:>11}{goal(name, value)}".rstrip())


def written(value: float | None) -> str:
    """Return a figure as printed."""
    if value is None:
        return "n/a"
    return f"{value:.0f}" if isinstance(value, int) or value >= 100 else f"{value:.2f}"


def goal(name: str, value: float | None) -> str:
    """Return the goal of a figure as printed, "" where it has none."""
    met = verdict(name, value)
    if met is None:
        return ""
    bound = f"≥ {AT_LEAST[name]:g}" if name in AT_LEAST else f"≤ {AT_MOST[name]:g}"
    return f"   {'ok ' if met else 'NOT'} {bound}"


def show_memories(result: Result) -> None:
    """Print every memory with the lines it rests on; + and - mark those labelled keep and not keep."""
    for memory in result.memories:
        click.echo(f"\n[{memory.status}] {memory.topic}\n  {memory.summary}")
        for place in memory.turns:
            for line in result.log.turns[place].lines:
                row = result.log.rows[line - 1]
                mark = {True: "+", False: "-", None: " "}[result.log.labels.get(line)]
                click.echo(f"    {mark} {line:4} {row['role'][:4]}  {row['text']}")


def as_json(result: Result) -> dict[str, Any]:
    """Return a result as it goes into the JSON file."""
    figures = result.figures()
    return {
        "log": result.log.name,
        "way": result.way,
        "model": result.model,
        "turns": len(result.log.turns),
        "seconds": round(result.seconds, 1),
        "tokens_estimated": any(call.estimated for call in result.calls),
        "figures": figures,
        "reference": result.reference(),
        "goals_met": {
            name: verdict(name, value) for name, value in figures.items() if verdict(name, value) is not None
        },
    }


@click.command()
@click.option("--log", "name", type=click.Choice([*LOGS, "all"]), default="all", show_default=True)
@click.option("--live", is_flag=True, help="Replay the log as live turns at its own times instead of importing it.")
@click.option("--both-ways", is_flag=True, help="Import it, and replay it live.")
@click.option("--closed", is_flag=True, help="Live: the client ends each session with its last turn.")
@click.option("--sessions", "count", type=click.IntRange(min=1), help="Only so many sessions, from the first.")
@click.option("--memories", is_flag=True, help="Print the memories made, with their lines.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there.")
@click.option("--keep-home", type=click.Path(file_okay=False, path_type=Path), help="Keep the stores in this folder.")
def main(
    name: str, live: bool, both_ways: bool, closed: bool, count: int | None, memories: bool, **files: Path | None
) -> None:
    """Print how well the configured model remembers the real logs, and what it costs.

    After Ctrl-C the same command with the same --keep-home goes on where it stopped.
    """
    lively = "live, closed" if closed else "live"
    ways = ["import", lively] if both_ways else [lively if live or closed else "import"]
    results = []
    for log in (read_log(one, count) for one in (LOGS if name == "all" else (name,))):
        for way in ways:
            with home_folder(files["keep_home"], f"{log.name}, {way}") as home:
                result = run(log, way, home)
            show(result)
            if memories:
                show_memories(result)
            results.append(as_json(result))
            if files["json_file"]:
                files["json_file"].write_text(json.dumps(results, ensure_ascii=False, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
