"""``stackmem why``."""

import json
from typing import Any

import click

from stackmem.bootstrap import Runtime
from stackmem.cli.common import WORDS, Server, json_option, owner_option, print_json, store, with_server_or_own
from stackmem.config import load_settings
from stackmem.text import for_terminal
from stackmem.why import turn_of, why_not
from stackmem.why import why as explain


@click.command()
@click.argument("turn_id", type=WORDS)
@owner_option
@click.option("--memory", "memory_id", type=WORDS, help="Why was this memory not shown?")
@json_option
def why(turn_id: str, owner: str, memory_id: str | None, as_json: bool) -> None:
    """Tell how a reply came about.

    What was searched, found and shown to the model; with --memory, why a memory was not.
    """
    settings = load_settings()

    def ask(server: Server) -> dict[str, Any]:
        return server.call("GET", f"/v1/turns/{turn_id}/why", owner, memory=memory_id)  # type: ignore[no-any-return]

    def alone(runtime: Runtime) -> dict[str, Any]:
        turn = turn_of(owner, turn_id)
        return explain(turn, settings.zone) | {"why_not": why_not(runtime.recall, turn, str(memory_id), settings.zone)}

    if memory_id is not None:
        found = with_server_or_own(ask, alone, settings)
    else:
        with store(settings):
            found = explain(turn_of(owner, turn_id), settings.zone)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    times = "  ".join(f"{name} {ms:.0f} ms" for name, ms in found["trace"]["durations_ms"].items())
    click.echo(f"Turn {found['turn_id']}, {found['at']}, session {found['session_id']}, model {found['model']}")
    click.echo(for_terminal(f"  user:  {found['text']}"))
    click.echo(for_terminal(f"  robot: {found['reply']}"))
    click.echo(f"{found['verdict']} Model calls: {found['trace']['model_calls']}. {times}")
    for number, call in enumerate(found["trace"]["calls"], 1):
        click.echo(f"{number}. {call['tool']} {json.dumps(call['arguments'], ensure_ascii=False)}")
        for line in _how(call):
            click.echo(f"   {line}")
        for hit in call["hits"]:
            _print_hit(hit)
        if not call["hits"]:
            click.echo("   Nothing was found.")
    if "why_not" in found:
        click.echo(f"{found['why_not']['memory_id']}: {' '.join(found['why_not']['reasons'])}")


def _how(call: dict[str, Any]) -> list[str]:
    lines = []
    asked = call["looked_for"] or {}
    if asked:
        given = [f"{name}: {value}" for name, value in asked.items() if value not in (None, [], False, "")]
        lines.append(f"looked for {json.dumps(given, ensure_ascii=False)[1:-1]}")
    if call["relaxed"]:
        lines.append(f"found only without {' and '.join(call['relaxed'])}")
    if call["note"]:
        lines.append(f"the model was told: {call['note']}")
    return lines


def _print_hit(hit: dict[str, Any]) -> None:
    words = "words re-read" if hit["source_checked"] else "summary only"
    turns = ", ".join(map(str, hit["source_turn_ids"]))
    if hit["memory_id"] is None:
        click.echo(f"   - not a memory yet; turns {turns}")
        return
    score = "" if hit["retrieval_score"] is None else f"similarity {hit['retrieval_score']:.2f}, "
    rank = f"rank score {hit['rank_score']:.2f}, " if "rank_score" in hit else ""
    click.echo(f"   - {hit['memory_id']}  {score}{rank}{words}, turns {turns}")
    if "topic" in hit:
        now = "" if hit["status"] == "active" else f" (now {hit['status']})"
        click.echo(for_terminal(f"     {hit['topic']}: {hit['summary']}{now}"))
