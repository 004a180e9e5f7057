"""A run as pages: one self-contained HTML file, Markdown, and a table for the terminal."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from evals.comparing import Comparison, compare, has_common_turns
from evals.figures import Rate
from evals.results import RESULTS_FILE, write_json, write_text
from evals.scoring import LOW_IS_GOOD, SCORES

_MARKUP = re.compile(r"[\\`*_{}\[\]<>|!~$]")
WORST = 20  # turns shown with their whole trace
TITLES = {
    "false_trigger_rate": "searched needlessly",
    "miss_rate": "missed a memory",
    "ask_back_rate": "asked which one",
    "correction_rate": "rested on the correction",
    "answer_rate": "answered right",
    "capture_recall": "remembered what matters",
    "noise_rate": "remembered noise",
}
BASELINE_TITLES = {
    "never": "never search",
    "always": "always search",
    "keyword": "keyword rule",
    "offline": "offline model",
}
# The worse, the earlier among the worst turns.
_WEIGHTS = {"answer": 3, "correction": 3, "miss": 2, "ask_back": 2, "false_trigger": 1}


def write_pages(folder: Path, run: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> None:
    """Write results.json, report.html and report.md; ``before`` is an earlier run to compare with."""
    write_json(folder / RESULTS_FILE, run)
    comparison = compare(before, run) if before is not None and has_common_turns(before, run) else None
    for kind in ("html", "md"):
        write_text(folder / f"report.{kind}", render_page(kind, run, comparison))


def render_page(kind: str, run: Mapping[str, Any], comparison: Comparison | None) -> str:
    """Return the report as ``html`` or ``md``."""
    return (
        _templates(kind)
        .get_template(f"report.{kind}.jinja")
        .render(
            run=run,
            scores=SCORES,
            titles=TITLES,
            baseline_titles=BASELINE_TITLES,
            low_is_good=LOW_IS_GOOD,
            worst=worst_turns(run),
            comparison=comparison,
        )
    )


def _templates(kind: str) -> Environment:
    loader = PackageLoader("evals", "templates")
    made = Environment(
        loader=loader, autoescape=kind == "html", undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "sort_keys": False}
    made.filters |= {"rate": rate_text, "percent": percent, "cell": _cell}
    return made


def rate_text(score: Mapping[str, Any]) -> str:
    """Return a score as text: value, counts, interval."""
    return str(Rate(score["num"], score["den"]))


def percent(share: float | None) -> str:
    """Return a share for a style's width, ``37.5%``."""
    return f"{100 * (share or 0):.1f}%"


def _cell(text: object) -> str:
    """Return a text that stays in one cell of a Markdown table, and cannot become markup."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(str(text).replace("&", "&amp;").split())).replace("://", ":\\//")


def worst_turns(run: Mapping[str, Any], count: int = WORST) -> list[dict[str, Any]]:
    """Return the turns that went wrong, the worst first, each with its scenario and what is wrong with it."""
    found = []
    for scenario in run["scenarios"]:
        for turn in scenario["turns"]:
            wrong = faults_of(turn["verdicts"])
            if wrong:
                found.append({**turn, "scenario": scenario["id"], "wrong": wrong})
    return sorted(found, key=lambda turn: -sum(_WEIGHTS[fault] for fault in turn["wrong"]))[:count]


def faults_of(verdicts: Mapping[str, Any]) -> list[str]:
    """Return the scores by which a turn went wrong."""
    return [name for name in _WEIGHTS if verdicts.get(name) is (f"{name}_rate" in LOW_IS_GOOD)]


def table(run: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return rows for the terminal: the score and its rate, over all and of every baseline."""
    columns = [run["scores"], *run["baselines"].values()]
    rows: list[tuple[str, ...]] = [("score", run["model"], *(BASELINE_TITLES[name] for name in run["baselines"]))]
    for score in SCORES:
        rows.append((TITLES[score], *(rate_text(column[score]) if score in column else "" for column in columns)))
    return rows


def cost_lines(run: Mapping[str, Any]) -> Sequence[str]:
    """Return what a turn cost, in sentences."""
    cost = run["cost"]
    return [
        f"{run['turns']} turns, {cost['degraded_turns']} of them without an answer of the model.",
        f"A turn: {cost['model_calls_per_turn']:.2f} model calls, {cost['prompt_tokens_per_turn']:.0f} + "
        f"{cost['completion_tokens_per_turn']:.0f} tokens, p50 {cost['duration_ms_p50'] or 0:.0f} ms, "
        f"p95 {cost['duration_ms_p95'] or 0:.0f} ms.",
        f"In the background: {cost['background_calls']} calls, {cost['background_tokens']} tokens.",
    ]
