"""How often a model searches its memory where it need not, and does not where it must, on 80 Japanese questions.

Run ``python -m benchmarks.tool_choice`` from the checkout; it reads ../shared/data beside the checkout. The model is
that of the settings (STACKMEM_CHAT_*; without them the offline rules), asked through the product's own prompt: each
question alone, and after ten turns of small talk. Only its first answer counts, so a question is one model call.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from benchmarks._counting import CALLS_FILE, Call, CountingChat, read_calls
from benchmarks._replay import Hints, opened
from benchmarks._small_talk import TALK
from benchmarks.offline_rules import read
from benchmarks.remember import LOGS, share
from evals.figures import Rate
from stackmem import sessions
from stackmem.bootstrap import Runtime
from stackmem.cli.progress import progress_bar
from stackmem.clock import SystemClock, read_time
from stackmem.context import reply_json
from stackmem.database import transaction
from stackmem.ids import turn_uid
from stackmem.models import Session, Turn
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest
from stackmem.speaking import Speech
from stackmem.thinking import Deadline, Thinker

ALONE, AFTER_TALK = "alone", "after ten turns"
OWNER = "home"
PAUSE = timedelta(seconds=20)  # between two turns of the small talk


@dataclass(frozen=True)
class Choice:
    """What the model did with one question. ``searched`` is None where it did not answer."""

    probe: str
    log: str
    condition: str
    wanted: bool | str
    searched: bool | None
    query: str = ""


class FirstAnswer:
    """A chat model that is asked until it answered once; what follows in the same turn is answered for it."""

    def __init__(self, inner: ChatModel):
        self.name, self._inner, self.answered = inner.name, inner, False

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the model's first answer, then an empty reply. Raises what the model raises."""
        if self.answered:
            return ChatAnswer(reply_json("はい。", "neutral", "none"))
        answer = self._inner.complete(request)
        self.answered = True
        return answer

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield the answer when it is whole: nothing is spoken here."""
        yield self.complete(request)


# --- asking ----------------------------------------------------------------------------------------------------------


def ask(runtime: Runtime, chat: ChatModel, log: str, probe: dict[str, Any], condition: str) -> Choice:
    """Ask one question in a session of its own and return what the model chose."""
    first = FirstAnswer(chat)
    thinker: Thinker = replace(runtime.conversation.thinker, chat=first)
    said = stored(probe, condition, read_time(probe["at"], UTC))
    limit = thinker.persona.reply_characters
    thought = thinker.think(said, Deadline(runtime.settings.turn_timeout_s), Speech(None, limit))
    Turn.update(state="skipped").where(Turn.id == said.id).execute()
    queries = [call.arguments or {} for call, _, _ in thought.calls if call.name == "search_memory"]
    searched = bool(queries) if first.answered else None
    query = str(queries[0].get("query", "")) if queries else ""
    return Choice(probe["id"], log, condition, probe["search"], searched, query)


def stored(probe: dict[str, Any], condition: str, at: datetime) -> Turn:
    """Store the question as an open turn, with or without small talk before it; return it."""
    talk = TALK if condition == AFTER_TALK else ()
    with transaction():
        session = sessions.session_for_turn(OWNER, f"{probe['id']} {condition}", None, at - PAUSE * len(talk))
        for ordinal, (user, reply, emotion, action) in enumerate(talk, 1):
            answered = {"reply": reply, "emotion": emotion, "action": action, "state": "skipped"}
            _turn(session, ordinal, user, at - PAUSE * (len(talk) + 1 - ordinal), **answered)
        return _turn(session, len(talk) + 1, probe["question"], at, state="open")


def _turn(session: Session, ordinal: int, user: str, at: datetime, **more: Any) -> Turn:
    uid = turn_uid(session.owner, session.name, session.seq, ordinal, user)
    return Turn.create(
        uid=uid, session=session, ordinal=ordinal, owner=session.owner, at=at, received_at=at, user=user, **more
    )


# --- figures ---------------------------------------------------------------------------------------------------------


def rates(choices: Sequence[Choice]) -> dict[str, dict[str, Any]]:
    """Return both rates with counts and interval; questions without an answer and those of "either" are left out."""
    answered = [choice for choice in choices if choice.searched is not None]
    needless = [choice.searched for choice in answered if choice.wanted is False]
    needed = [choice.searched for choice in answered if choice.wanted is True]
    return {
        "false triggers": rate(needless.count(True), len(needless)),
        "misses": rate(needed.count(False), len(needed)),
    }


def rate(part: int, whole: int) -> dict[str, Any]:
    """Return a rate with its counts and its 95 % interval, None where nothing was counted."""
    low, high = Rate(part, whole).interval or (None, None)
    return {"value": share(part, whole), "num": part, "den": whole, "low": low, "high": high}


def groups(choices: Sequence[Choice]) -> Iterator[tuple[str, str, list[Choice]]]:
    """Yield the choices of each condition: those of each log, then, where there are several, all."""
    logs = list(dict.fromkeys(choice.log for choice in choices))
    for condition in dict.fromkeys(choice.condition for choice in choices):
        ours = [choice for choice in choices if choice.condition == condition]
        for log in logs:
            yield condition, log, [choice for choice in ours if choice.log == log]
        if len(logs) > 1:
            yield condition, "all", ours


def cost(calls: Sequence[Call]) -> dict[str, float | None]:
    """Return calls, tokens and seconds, the last two a call that was answered."""
    answered = [call for call in calls if call.answered]
    return {
        "model calls": len(answered),
        "calls that failed": len(calls) - len(answered),
        "prompt tokens a call": share(sum(call.prompt_tokens for call in answered), len(answered)),
        "completion tokens a call": share(sum(call.completion_tokens for call in answered), len(answered)),
        "seconds a call": share(sum(call.seconds for call in answered), len(answered)),
    }


# --- a run -----------------------------------------------------------------------------------------------------------


def run(
    probes: Sequence[tuple[str, dict[str, Any]]], conditions: Sequence[str], home: Path, tool_mode: str | None
) -> tuple[str, list[Choice], list[Call]]:
    """Ask all probes in every condition; return the model's name, its choices and its calls."""
    with opened(home, SystemClock(), Hints(), tool_mode=tool_mode) as runtime, progress_bar("questions") as report:
        chat = CountingChat(runtime.chat, home / CALLS_FILE)
        asked = [(condition, log, probe) for condition in conditions for log, probe in probes]
        choices = []
        for number, (condition, log, probe) in enumerate(asked, 1):
            choices.append(ask(runtime, chat, log, probe, condition))
            report(number, len(asked))
        return chat.name, choices, read_calls(home)


def show(model: str, choices: Sequence[Choice], calls: Sequence[Call]) -> None:
    """Print the rates of each condition and log, the wrong choices, and what the calls cost."""
    click.echo(f"{model}\n\n  {'':28}{'false triggers':^30}{'misses':^30}no answer")
    for condition, log, ours in groups(choices):
        shown = "".join(f"{_shown(figure):^30}" for figure in rates(ours).values())
        click.echo(f"  {f'{log}, {condition}':28}{shown}{sum(one.searched is None for one in ours):9}")
    click.echo()
    for name, value in cost(calls).items():
        estimated = " (estimated)" if "tokens" in name and any(call.estimated for call in calls) else ""
        click.echo(f"  {name + estimated:40}{_figure(value):>9}")


def _shown(figure: dict[str, Any]) -> str:
    if figure["value"] is None:
        return "n/a"
    return f"{figure['value']:.2f} ({figure['num']} of {figure['den']}; {figure['low']:.2f}-{figure['high']:.2f})"


def _figure(value: float | None) -> str:
    if value is None:
        return "n/a"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def show_wrong(choices: Sequence[Choice], question_of: Callable[[str], str]) -> None:
    """Print every choice that was wrong."""
    click.echo("\n  wrong:")
    for one in choices:
        if one.searched is not None and one.wanted in (True, False) and one.searched is not one.wanted:
            kind = "false trigger" if one.searched else "miss"
            click.echo(f"    {kind:14}{one.condition:16}{one.probe:10}{question_of(one.probe)}  {one.query}".rstrip())


def as_json(model: str, choices: Sequence[Choice], calls: Sequence[Call]) -> dict[str, Any]:
    """Return what goes into the JSON file."""
    return {
        "model": model,
        "tokens_estimated": any(call.estimated for call in calls),
        "groups": [
            {"condition": condition, "log": log, "no_answer": sum(one.searched is None for one in ours)} | rates(ours)
            for condition, log, ours in groups(choices)
        ],
        "cost": cost(calls),
        "choices": [asdict(one) for one in choices],
    }


@click.command()
@click.option("--log", "name", type=click.Choice([*LOGS, "all"]), default="all", show_default=True)
@click.option("--probes", "count", type=click.IntRange(min=1), help="Only so many questions of each log.")
@click.option("--once", is_flag=True, help="Only alone, not after ten turns of small talk.")
@click.option("--tool-mode", type=click.Choice(["native", "json", "auto"]), help="Instead of STACKMEM_TOOL_MODE.")
@click.option("--wrong", is_flag=True, help="Print every question that was decided wrongly.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there.")
def main(name: str, count: int | None, once: bool, tool_mode: str | None, wrong: bool, json_file: Path | None) -> None:
    """Print how often the configured model searches in vain, and fails to search."""
    logs = LOGS if name == "all" else (name,)
    probes = [(log, probe) for log in logs for probe in read(f"probes-{log}.jsonl")[:count]]
    with tempfile.TemporaryDirectory() as home:
        result = run(probes, [ALONE] if once else [ALONE, AFTER_TALK], Path(home), tool_mode)
    show(*result)
    if wrong:
        show_wrong(result[1], {probe["id"]: probe["question"] for _, probe in probes}.__getitem__)
    if json_file:
        json_file.write_text(json.dumps(as_json(*result), ensure_ascii=False, indent=2), "utf-8")


if __name__ == "__main__":
    main()
