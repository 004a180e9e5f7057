"""``stackmem status``."""

from typing import Any

import click

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
        ask, lambda runtime: count(owner, runtime.index, runtime.index.kind, runtime.clock.now())
    )
    if as_json:
        print_json(found)
        return
    for name in ("turns", "memories"):
        click.echo(f"{name:9}" + "  ".join(f"{state} {number}" for state, number in found[name].items()))
    index = found["index"]
    click.echo(f"{'index':9}{index['kind']}  points {index['points']}  waiting {index['pending']}")
    click.echo(f"{'embedder':9}{index['embedder']}, {index['dim']} dimensions")
    if found["oldest_pending_s"] is not None:
        click.echo(f"The oldest turn that is not looked at yet is {found['oldest_pending_s']} s old.")
