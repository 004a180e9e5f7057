"""A run's folder: what it was (run.json), one file a scenario, and results.json over all of them."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evals.baselines import BASELINES
from evals.figures import Agreement, Rate
from evals.running import read_verdicts
from evals.scenario import TAGS, File
from evals.scoring import SCORES, TURN_SCORES, all_scores, as_score, rate
from stackmem import __version__
from stackmem.config import Settings
from stackmem.exceptions import Busy, StackmemError
from stackmem.persona import load_persona, prompt_version, prompts_of

RUN_FILE, RESULTS_FILE, LOCK_FILE = "run.json", "results.json", "LOCK"
SCENARIOS = "scenarios"


@dataclass(frozen=True)
class About:
    """What a run's figures depend on besides its scenarios. A run goes on only with the same."""

    version: str
    mode: str
    model: str
    memory_model: str
    judge_model: str | None
    tool_mode: str
    embedder: str
    persona: str
    prompts: str
    settings: str  # a short hash of what else is set: requests' extra bodies, the embedder's model, width, precision


def about(settings: Settings, mode: str, judge: str | None) -> About:
    """Return what a run with these settings is."""
    turn = prompts_of(load_persona(settings.persona), settings.tool_mode)
    remember = [prompt_version(f"remember.{name}.md") for name in ("ja", "en")]
    digest = hashlib.sha256(" ".join([turn, *remember]).encode()).hexdigest()[:8]
    return About(
        version=__version__,
        mode=mode,
        model="offline" if settings.chat_is_offline else settings.chat_model,
        memory_model="offline" if settings.memory_is_offline else settings.memory_model or settings.chat_model,
        judge_model=judge,
        tool_mode=settings.tool_mode,
        embedder=settings.embedder,
        persona=settings.persona,
        prompts=digest,
        settings=_settings(settings),
    )


def _settings(settings: Settings) -> str:
    """Return a short hash of the settings that change figures and have no name of their own in ``About``."""
    chosen = settings.model_dump(
        mode="json",
        include={
            "chat_extra_body", "memory_extra_body", "judge_extra_body", "embedding_model", "embedding_dim",
            "embedding_query_format", "qwen3_precision",
        },
    )  # fmt: skip
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Folder:
    """The folder of one run."""

    path: Path

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Own the folder for the block, creating it. Raises Busy where another run is writing into it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK_FILE).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise Busy(f"Another run is writing into {self.path}: wait for it, or name another --out.") from exc
            yield

    def begin(self, run: About) -> None:
        """Create the folder, or go on in it. Raises StackmemError where it holds another run."""
        (self.path / SCENARIOS).mkdir(parents=True, exist_ok=True)
        file = self.path / RUN_FILE
        if not file.exists():
            write_json(file, asdict(run))
            return
        known = read_json_file(file)
        if not isinstance(known, dict):
            raise StackmemError(f"{file} is not what a run wrote. Name another folder with --out.")
        differing = [name for name, value in asdict(run).items() if known.get(name) != value]
        if differing:
            raise StackmemError(
                f"{self.path} holds a run with another {', '.join(differing)}. Name another folder with --out."
            )

    def require_all(self, files: Sequence[File]) -> None:
        """Raise StackmemError where the results hold scenarios that are not among these: they would be dropped."""
        value = read_json_file(self.path / RESULTS_FILE) if (self.path / RESULTS_FILE).exists() else {}
        scenarios = value.get("scenarios") if isinstance(value, dict) else None
        held = {one.get("id") for one in scenarios or [] if isinstance(one, dict)}
        if missing := sorted(map(str, held - {file.scenario.id for file in files})):
            raise StackmemError(
                f"{self.path} holds results of more scenarios: {', '.join(missing)}. "
                "Run them all again, or name another folder with --out."
            )

    def file_of(self, scenario_id: str) -> Path:
        """Return where a scenario's result is."""
        return self.path / SCENARIOS / f"{scenario_id}.json"

    def result_of(self, scenario_id: str, digest: str) -> dict[str, Any] | None:
        """Return the result of a scenario as its file stands now; None where there is none, or none that is whole."""
        try:
            value = read_json_file(self.file_of(scenario_id))
        except StackmemError:
            return None
        return value if isinstance(value, dict) and value.get("digest") == digest and _is_result(value) else None

    def is_done(self, scenario_id: str, digest: str, *, baselines: bool) -> bool:
        """Tell whether a scenario was run as its file stands now, with the baselines where they are wanted."""
        value = self.result_of(scenario_id, digest)
        return value is not None and (not baselines or all("baselines" in turn for turn in value["turns"]))

    def results(self, files: Iterable[File]) -> dict[str, Any]:
        """Return what results.json holds, over these scenarios in this order.

        Those that were not run as their files stand now are left out.
        """
        known = [self.result_of(file.scenario.id, digest_of(file.path)) for file in files]
        run = read_json_file(self.path / RUN_FILE)
        return summary(run, [value for value in known if value is not None])


def digest_of(file: Path) -> str:
    """Return what changes when a scenario's file does."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def summary(run: Mapping[str, Any], scenarios: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the run with all scores: over all, per tag and length, of each baseline, and what it cost."""
    turns = [turn for scenario in scenarios for turn in scenario["turns"]]
    return {
        **run,
        "turns": len(turns),
        "scores": scores_of(scenarios),
        "by_tag": {tag: scores_of(group) for tag in TAGS if (group := [s for s in scenarios if tag in s["tags"]])},
        "by_length": {
            str(length): scores_of(group)
            for length in sorted({len(s["turns"]) for s in scenarios})
            if (group := [s for s in scenarios if len(s["turns"]) == length])
        },
        "baselines": {
            name: _baseline(turns, name) for name in BASELINES if turns and all("baselines" in t for t in turns)
        },
        "ask_back_judge": _judged(turns),
        "cost": _cost(scenarios, turns),
        "scenarios": list(scenarios),
    }


def scores_of(scenarios: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the seven scores over some scenarios."""
    verdicts = [read_verdicts(turn) for scenario in scenarios for turn in scenario["turns"]]
    return all_scores(verdicts, _sum(s["capture"] for s in scenarios), _sum(s["noise"] for s in scenarios))


def _sum(rates: Iterable[Mapping[str, Any]]) -> Rate:
    total = Rate(0, 0)
    for given in rates:
        total += Rate(given["num"], given["den"])
    return total


def _baseline(turns: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    verdicts = [read_verdicts(turn["baselines"][name]) for turn in turns if "baselines" in turn]
    return {score: as_score(score, rate(score, verdicts), verdicts) for score in TURN_SCORES}


def _judged(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the judge's own rate of asking back, and how far rules and judge agree; None where none was set."""
    pairs = [
        (turn["verdicts"]["ask_back"], turn["ask_back_judge"])
        for turn in turns
        if turn["ask_back_judge"] is not None and "ask_back" in turn["verdicts"]
    ]
    if not pairs:
        return None
    agreement = Agreement.of(pairs)
    return {
        "rate": Rate(sum(by_judge for _, by_judge in pairs), len(pairs)).as_json(),
        "accuracy": agreement.accuracy,
        "kappa": agreement.kappa,
    }


def _cost(scenarios: Sequence[Mapping[str, Any]], turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means a live turn, and what the background spent in all."""
    count = max(len(turns), 1)
    times = sorted(turn["duration_ms"] for turn in turns)
    return {
        "model_calls_per_turn": round(sum(turn["model_calls"] for turn in turns) / count, 3),
        "prompt_tokens_per_turn": round(sum(turn["tokens"].get("prompt", 0) for turn in turns) / count, 1),
        "completion_tokens_per_turn": round(sum(turn["tokens"].get("completion", 0) for turn in turns) / count, 1),
        "duration_ms_p50": times[len(times) // 2] if times else None,
        "duration_ms_p95": times[int(len(times) * 0.95)] if times else None,
        "degraded_turns": sum(turn["degraded"] for turn in turns),
        "background_calls": sum(scenario["background"]["calls"] for scenario in scenarios),
        "background_tokens": sum(scenario["background"]["tokens"] for scenario in scenarios),
    }


def read_run(path: Path) -> dict[str, Any]:
    """Return the results of a run, given its folder or its results.json. Raises StackmemError with one sentence."""
    file = path / RESULTS_FILE if path.is_dir() else path
    value = read_json_file(file)
    if not _is_run(value):
        raise StackmemError(f"{file} is not the result of a run, or one of another version: run it again.")
    run: dict[str, Any] = value
    return run


def _is_run(value: Any) -> bool:
    return (
        _has(value, {"scores": dict, "scenarios": list, "model": str, "mode": str, "baselines": dict, "cost": dict})
        and all(_has(value["scores"].get(score), {"num": int, "den": int}) for score in SCORES)
        and all(_is_result(scenario) for scenario in value["scenarios"])
    )


def _is_result(value: Any) -> bool:
    return _has(value, {"id": str, "tags": list, "turns": list}) and all(
        _has(turn, {"index": int, "user": str, "reply": str, "expect": dict, "verdicts": dict, "degraded": bool})
        for turn in value["turns"]
    )


def _has(value: Any, parts: Mapping[str, type]) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in parts.items())


def read_json_file(file: Path) -> Any:
    """Return a file's JSON. Raises StackmemError with one sentence."""
    try:
        return json.loads(file.read_text("utf-8"))
    except FileNotFoundError as exc:
        raise StackmemError(f"{file} is not there: was the run finished?") from exc
    except (OSError, ValueError) as exc:
        raise StackmemError(f"{file} cannot be read as JSON: {exc}.") from exc


def write_json(file: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    write_text(file, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def write_text(file: Path, text: str) -> None:
    """Write a text whole or not at all. Raises OSError that names the file."""
    part = file.with_name(f"{os.getpid()}.part")
    try:
        part.write_text(text, "utf-8")
        part.replace(file)
    except OSError as exc:
        part.unlink(missing_ok=True)
        raise OSError(exc.errno, exc.strerror, str(file)) from exc
