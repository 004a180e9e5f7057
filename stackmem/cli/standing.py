"""``stackmem status`` and ``stackmem retry``."""

from typing import Any

import click

from stackmem.bootstrap import Runtime
from stackmem.cli.common import Server, json_option, owner_option, print_json, with_server_or_own
from stackmem.status import status as count


@click.command()
@owner_option
@json_option
def status(owner: str, as_json: bool) -> None:
    """Count turns, memories and points, and what still waits."""

    def ask(server: Server) -> dict[str, Any]:
        return server.call("GET", "/v1/admin/status", owner)  # type: ignore[no-any-return]

    found = with_server_or_own(
        ask,
        lambda runtime: count(owner, runtime.index, runtime.index.kind, runtime.clock.now(), runtime.settings.zone),
    )
    if as_json:
        print_json(found)
        return
    for name in ("turns", "memories"):
        click.echo(f"{name:9}" + "  ".join(f"{state} {number}" for state, number in found[name].items()))
    index = found["index"]
    click.echo(f"{'index':9}{index['kind']}  points {index['points']} active  waiting {index['pending']}")
    click.echo(f"{'embedder':9}{index['embedder']}, {index['dim']} dimensions")
    for reason in found["reasons"]:
        click.echo(reason)
    if found["oldest_pending_s"] is not None:
        click.echo(
            f"The oldest turn that is no memory yet is {found['oldest_pending_s']} s old. Turns are looked at when six "
            "are new, after two minutes of silence, and when their session ends; the last topic waits for the end."
        )
    if found["turns"]["failed"]:
        click.echo("Failed turns are tried again with `stackmem retry`.")
    for asked in found["forget_requests"]:
        click.echo(f"Forget request {asked['request_id']}, {asked['at']}: {asked['text']}")
        for memory in asked["memories"]:
            click.echo(f"    {memory['memory_id']}  {memory['topic']}: {memory['summary']}")
        if asked["memories"]:
            click.echo(f"    Do it: stackmem memories forget --request {asked['request_id']}")
        else:
            click.echo("    No memory fits.")
        click.echo(f"    Drop it: stackmem memories dismiss {asked['request_id']}")


@click.command()
@owner_option
@json_option
def retry(owner: str, as_json: bool) -> None:
    """Try again what failed, and at once what waits for the model."""

    def ask(server: Server) -> dict[str, Any]:
        return server.call("POST", "/v1/admin/retry", owner, body={})  # type: ignore[no-any-return]

    def alone(runtime: Runtime) -> dict[str, Any]:
        found = runtime.work.retry(owner)
        runtime.work.catch_up()
        return found

    found = with_server_or_own(ask, alone)
    if as_json:
        print_json(found)
    else:
        click.echo(f"Tried again: {found['turns']} turns, {found['comparisons']} comparisons. See `stackmem status`.")
