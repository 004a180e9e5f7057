"""``stackmem eval score``, ``show`` and ``judge``: real talk scored, and the judge that scores it."""

from typing import Any

import click

from evals.allowance import Allowance
from evals.figures import Rate
from evals.judge.labels import packaged_labels
from evals.judge.standing import BEHIND, Standing, assess, trust
from evals.live import LiveScoring
from evals.live_scores import last_scores, live_scores
from evals.live_turns import last_turns
from stackmem.cli.common import json_option, owner_option, print_json, store
from stackmem.cli.progress import progress_bar
from stackmem.clock import SystemClock
from stackmem.config import load_settings
from stackmem.exceptions import PermanentError, TransientError
from stackmem.providers import embedder_of, opened_judge

NAMES = {"false_trigger_rate": "searched in vain", "miss_rate": "missed"}
NO_RATES = "There are no rates yet: only turns that a chat model answered are judged, by the judge that is set."
WINDOWS = 10  # newest ones of each size that are printed; --json has all


@click.command()
@owner_option
@click.option("--last", type=click.IntRange(1), default=50, show_default=True, help="How many of the newest turns.")
@json_option
def score(owner: str, last: int, as_json: bool) -> None:
    """Judge the last turns of real talk now, and print their rates.

    Turns that are judged already keep their label. Turns that were imported, or answered by the offline model or a
    fallback line, are not counted. The calls of the day are kept to.
    """
    settings = load_settings()
    with store(settings), opened_judge(settings) as model, progress_bar("Judging") as bar:
        scoring = LiveScoring.of(settings, model, embedder_of(settings), SystemClock())
        outcome = scoring.run_now(owner, last, bar)
        judges = last_scores(last_turns(owner, last))
    if as_json:
        print_json({"judged": outcome.judged, "stopped": outcome.stopped, "judges": judges})
        return
    click.echo(f"Judged now: {outcome.judged} turns.")
    if outcome.stopped:
        click.echo(f"Not all: {outcome.stopped}")
    for judge in judges:
        _print_judge(judge)
    if not judges:
        click.echo(NO_RATES)


@click.command()
@owner_option
@json_option
def show(owner: str, as_json: bool) -> None:
    """Print the rates of real talk: searched in vain, missed a memory."""
    settings = load_settings()
    with store(settings):
        allowance = Allowance(settings.judge_calls_per_day, SystemClock(), settings.zone)
        shown = live_scores(owner, allowance, settings.zone)
    if as_json:
        print_json(shown)
        return
    turns = shown["turns"]
    click.echo(
        f"{owner}: {turns['judged']} live turns judged, {turns['waiting']} wait, {turns['unjudgeable']} cannot be "
        f"judged. Today the judge was asked {shown['calls_today']} of {shown['calls_per_day']} times."
    )
    for judge in shown["judges"]:
        _print_judge(judge)
        _print_windows(judge["windows"])
    if not shown["judges"]:
        click.echo(NO_RATES)


@click.command()
@json_option
def judge(as_json: bool) -> None:
    """Judge the judge: let it label turns whose labels are known.

    What it is worth then stands beside every rate it makes. Broken off, the same command goes on. These calls do not
    count among those of the day.
    """
    settings = load_settings()
    with store(settings), opened_judge(settings) as model, progress_bar("Judging the judge") as bar:
        try:
            standing = assess(model, packaged_labels(), settings.judge_timeout_s, SystemClock(), bar)
        except (TransientError, PermanentError) as exc:
            raise type(exc)(f"{exc} What the judge has answered is kept: the same command goes on.") from exc
    if as_json:
        shown = {"judge": standing.judge, "prompt_version": standing.prompt_version, **standing.as_json()}
        print_json(shown | {"trust": {rate: trust(standing, rate) for rate in BEHIND}})
        return
    _print_standing(standing)


def _print_standing(standing: Standing) -> None:
    click.echo(f"Judge {standing.judge}, prompts {standing.prompt_version}, {standing.labels} labelled turns.")
    if standing.unanswered:
        click.echo(f"To {standing.unanswered} of them it gave no answer that can be used; they are left out.")
    asked = {"needed": "a memory was needed", "found": "the right one was found", "missed": "one was missed"}
    for question, found in standing.agreement.items():
        click.echo(f"  {asked[question]:24}accuracy {found.agreeing}, kappa {_kappa(found.kappa)}")
    for rate, name in NAMES.items():
        click.echo(f"  Its rate of turns {name} is {trust(standing, rate)}.")


def _print_judge(judge: dict[str, Any]) -> None:
    click.echo(f"\nJudge {judge['judge']}, prompts {judge['prompt_version']}: {judge['turns']} turns")
    for rate, name in NAMES.items():
        click.echo(f"  {name:18}{_rate(judge[rate]):34}{_worth(judge, rate)}")
    missed = judge["miss_rate"]
    if missed["num"]:
        click.echo(f"  {'':18}{missed['not_searched']} not searched, {missed['not_found']} not found")


def _print_windows(windows: list[dict[str, Any]]) -> None:
    for size in sorted({window["size"] for window in windows}):
        of_size = [window for window in windows if window["size"] == size]
        click.echo(f"  windows of {size}: {len(of_size)}")
        for window in of_size[-WINDOWS:]:
            turns = f"{window['first_turn']}-{window['last_turn']}"
            rates = "  ".join(f"{name} {_rate(window[rate])}" for rate, name in NAMES.items())
            click.echo(f"    {window['to'][:16].replace('T', ' ')}  turns {turns:12}{rates}")


def _rate(shown: dict[str, Any]) -> str:
    return str(Rate(shown["num"], shown["den"]))


def _worth(judge: dict[str, Any], rate: str) -> str:
    """Return what stands beside a rate: what its judge is worth."""
    if judge["standing"] is None:
        return "never judged: `stackmem eval judge` says what this judge is worth"
    found = judge["standing"][BEHIND[rate]]
    accuracy = "n/a" if found["accuracy"] is None else f"{found['accuracy']:.2f}"
    return f"{judge['trust'][rate]} (accuracy {accuracy}, kappa {_kappa(found['kappa'])}, {found['turns']} turns)"


def _kappa(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"
