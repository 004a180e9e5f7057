"""``stackmem chat``: the robot in a terminal."""

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import click

from stackmem import sessions, shapes
from stackmem.bootstrap import Runtime
from stackmem.cli.common import WORDS, Server, json_option, owner_option, with_server_or_own
from stackmem.cli.progress import counting_down, progress_bar
from stackmem.config import load_settings
from stackmem.converse import Said
from stackmem.exceptions import NotFound, StackmemError, TransientError
from stackmem.ids import session_name
from stackmem.models import Session, Turn
from stackmem.status import pending
from stackmem.text import for_terminal

Say = Callable[[str], dict[str, Any]]


@click.command()
@owner_option
@click.option("--session", type=WORDS, help="The session's id, to go on with one; a new one where not given.")
@json_option
def chat(owner: str, session: str | None, as_json: bool) -> None:
    """Talk to the robot here.

    An empty line, Ctrl-D or Ctrl-C ends the session, and what was said is remembered. From a pipe each line is a turn.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # bytes that are no UTF-8 are cleaned like any others
    settings = load_settings()
    name = session or session_name()

    def with_server(server: Server) -> None:
        longest = settings.turn_timeout_s + 30

        def say(text: str) -> dict[str, Any]:
            body = {"text": text, "session_id": name}
            return server.call("POST", "/v1/turns", owner, body=body, timeout_s=longest)  # type: ignore[no-any-return]

        if _talk(say, as_json):
            try:
                server.call("POST", f"/v1/sessions/{name}/close", owner, body={})
            except TransientError:
                raise
            except StackmemError:
                pass  # Ctrl-C came before the first turn did

    def alone(runtime: Runtime) -> None:
        _load(runtime)

        def say(text: str) -> dict[str, Any]:
            return shapes.turn_answer(runtime.conversation.turn(Said(owner, text, name)))

        if _talk(say, as_json):
            _remember(runtime, owner, name)

    with_server_or_own(with_server, alone, settings)


def _load(runtime: Runtime) -> None:
    """Load what only a server has loaded already: the embedder in the background, a chat model of our own now."""
    runtime.index.loading.begin()
    if runtime.llama:
        click.echo("Loading the chat model …", err=True)
        runtime.llama.address(wait_s=None)


def _talk(say: Say, as_json: bool) -> bool:
    """Exchange turns until the user has had enough; return whether there may be something to remember."""
    said = False
    try:
        for text in _lines(prompt="" if as_json or not sys.stdin.isatty() else "> "):
            try:
                answer = say(text)
            except StackmemError as exc:
                click.echo(str(exc), err=True)
                continue
            said = True
            if as_json:
                click.echo(json.dumps(answer, ensure_ascii=False))
            else:
                _show(answer)
    except KeyboardInterrupt:
        return True  # the words of a turn are stored before its answer
    return said


def _lines(prompt: str) -> Any:
    while True:
        try:
            text = input(prompt)
        except (EOFError, KeyboardInterrupt):
            if prompt:
                click.echo()
            return
        if text.strip():
            yield text
        elif prompt:
            return


def _show(answer: dict[str, Any]) -> None:
    click.echo(for_terminal(answer["reply"]))
    quiet = [answer["emotion"]]
    if answer["action"] != "none":
        quiet.append(answer["action"])
    if answer["searched"]:
        quiet.append("searched: " + (", ".join(answer["memory_ids"]) or "nothing found"))
    if answer["degraded"]:
        quiet.append("the model did not answer")
    click.secho(f"  ({'; '.join(quiet)})  turn {answer['turn_id']}", dim=True)


def _remember(runtime: Runtime, owner: str, name: str) -> None:
    """End the session and make its memories before the command returns; Ctrl-C leaves them for the next start."""
    try:
        sessions.close(owner, name, runtime.clock.now())
    except NotFound:
        return
    with progress_bar("Remembering") as bar:
        try:
            runtime.work.drain(counting_down(bar, lambda: _left_to_do(owner, name)))
        except KeyboardInterrupt:
            click.echo("The rest is remembered at the next start; nothing is lost.", err=True)


def _left_to_do(owner: str, name: str) -> int:
    session = Session.select(Session.id).where(Session.owner == owner, Session.name == name)
    waiting = Turn.select().where(Turn.session.in_(session), Turn.state == "pending").count()
    return int(waiting) + pending(owner)
