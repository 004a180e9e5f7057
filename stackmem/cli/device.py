"""``stackmem devices``."""

import click

from stackmem import devices as known
from stackmem.cli.common import WORDS, OwnerName, json_option, owner_option, print_json, store
from stackmem.clock import SystemClock, show_time
from stackmem.config import load_settings
from stackmem.models import Device


@click.group()
def devices() -> None:
    """Say which robots and clients on the LAN may talk to it."""


@devices.command()
@click.argument("name", type=WORDS)
@owner_option
@json_option
def add(name: str, owner: str, as_json: bool) -> None:
    """Add a robot or a client and show its token, once.

    With the token it talks as this owner, and sees the memories of no other.
    """
    settings = load_settings()
    with store(settings):
        token = known.add(name, owner, SystemClock().now())
    if as_json:
        print_json({"name": name, "owner": owner, "token": token})
        return
    click.echo(f"{name} is added, with the memories of {owner!r}. Its token, shown this once:")
    click.echo(f"\n  {token}\n")
    click.echo("The robot sends it as  Authorization: Bearer TOKEN")


@devices.command(name="list")
@click.option("--owner", type=OwnerName(), help="Only those of this owner.")
@json_option
def list_(owner: str | None, as_json: bool) -> None:
    """List the devices, without their tokens: those are kept nowhere."""
    settings = load_settings()
    with store(settings):
        found = [
            {"name": row.name, "owner": row.owner, "created_at": show_time(row.created_at, settings.zone)}
            for row in Device.select().order_by(Device.name)
            if owner in (None, row.owner)
        ]
    if as_json:
        print_json({"devices": found, "count": len(found)})
        return
    for line in found:
        click.echo(f"{line['name']}  owner {line['owner']}  since {line['created_at']}")
    if not found:
        click.echo("No devices yet: add one with `stackmem devices add NAME`.")


@devices.command()
@click.argument("name", type=WORDS)
def revoke(name: str) -> None:
    """Remove a device; its token opens nothing from now on."""
    with store(load_settings()):
        known.revoke(name)
    click.echo(f"{name} is removed.")
