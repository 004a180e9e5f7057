"""How well the offline rules pick what is worth remembering, and when to search, on two real Japanese logs.

Run ``python -m benchmarks.offline_rules`` from the checkout; it reads ../shared/data beside the checkout.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stackmem.adapters.offline import OfflineChat
from stackmem.ports import ChatRequest

DATA = Path(__file__).resolve().parents[1] / "../shared/data/real-persona-chat"
TOOLS = tuple({"type": "function", "function": {"name": name}} for name in ("search_memory", "read_memory_source"))


@dataclass
class Turn:
    """One turn of a log with the numbers of its lines, counted from 1."""

    session: str
    at: str | None
    user: list[str] = field(default_factory=list)
    robot: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def read(name: str) -> list[dict[str, Any]]:
    """Return the objects of one JSON-lines file."""
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def turns_of(rows: list[dict[str, Any]]) -> list[Turn]:
    """Group utterances into turns: a user part and the assistant part that follows it."""
    turns: list[Turn] = []
    for number, row in enumerate(rows, 1):
        new = not turns or turns[-1].session != row["session"] or (row["role"] == "user" and turns[-1].robot)
        if new:
            turns.append(Turn(row["session"], row["at"]))
        (turns[-1].user if row["role"] == "user" else turns[-1].robot).append(row["text"])
        turns[-1].lines.append(number)
    return turns


def ask(purpose: Any, content: str, tools: tuple[dict[str, Any], ...] = ()) -> Any:
    """Return the offline model's answer to one user message."""
    return OfflineChat().complete(ChatRequest([{"role": "user", "content": content}], purpose, 1.0, tools))


def segments(turns: list[Turn]) -> Iterator[tuple[dict[str, Any], set[int]]]:
    """Yield every segment with the lines it holds, one remember call a session."""
    for session in dict.fromkeys(turn.session for turn in turns):
        ours = [(index, turn) for index, turn in enumerate(turns) if turn.session == session]
        said = [
            {"turn_id": index, "at": turn.at, "user": "\n".join(turn.user), "robot": "\n".join(turn.robot)}
            for index, turn in ours
        ]
        window = {"session_ended": True, "both_speakers": True, "time_zone": "Asia/Tokyo", "turns": said}
        for segment in json.loads(ask("remember", json.dumps(window, ensure_ascii=False)).content)["segments"]:
            yield segment, {line for index in segment["turn_ids"] for line in turns[index].lines}


def measure(log: str) -> dict[str, float]:
    """Return the figures of one log."""
    turns = turns_of(read(f"{log}.jsonl"))
    kept = [lines for segment, lines in segments(turns) if segment["keep"]]
    covered = set().union(*kept)
    probes = read(f"probes-{log}.jsonl")
    wanted = [probe["evidence"][0] for probe in probes if probe["search"] is True]
    sizes = [len(lines) / 2 for lines in kept]
    figures = {
        "memories per 100 turns": 100 * len(kept) / len(turns),
        "turns a memory": sum(sizes) / len(sizes),
        "lines kept": len(covered) / sum(len(turn.lines) for turn in turns),
        "evidence kept": sum(line in covered for line in wanted) / len(wanted),
    }
    labels = {row["line"]: row["keep"] for row in read(f"labels-{log}.jsonl")} if log == "ad-ey" else {}
    if labels:
        figures |= _against_labels(labels, kept, covered)
    return figures | _searches(probes)


def _against_labels(labels: dict[int, bool], kept: list[set[int]], covered: set[int]) -> dict[str, float]:
    keep = {line for line, wanted in labels.items() if wanted}
    judged = [lines for lines in kept if lines & labels.keys()]
    return {
        "capture": len(keep & covered) / len(keep),
        "noise": sum(not lines & keep for lines in judged) / len(judged),
        "labelled not-keep lines kept": len(covered & (labels.keys() - keep)) / len(labels.keys() - keep),
    }


def _searches(probes: list[dict[str, Any]]) -> dict[str, float]:
    searched = {
        wanted: [bool(ask("turn", p["question"], TOOLS).tool_calls) for p in probes if p["search"] is wanted]
        for wanted in (True, False)
    }
    return {
        "not searched": searched[True].count(False) / len(searched[True]),
        "false triggers": sum(searched[False]) / len(searched[False]),
    }


def main() -> None:
    """Print the figures of both logs."""
    for log in ("ad-ey", "he-gu"):
        print(log)
        for name, value in measure(log).items():
            print(f"  {name:30} {value:.2f}")


if __name__ == "__main__":
    main()
