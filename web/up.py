"""``stackmem up``: web, workers and beat in one process, with no other service."""

import os
import secrets
import socket
import sys

import click

from stackmem.adapters.prometheus_meter import PrometheusMeter
from stackmem.bootstrap import Runtime, build
from stackmem.config import Settings, load_settings, unknown_settings
from stackmem.exceptions import Busy
from stackmem.logs import set_up
from web.announcing import Announcement, can_announce
from web.banner import Bound, banner, is_loopback, on_the_lan
from web.listening import bind, bound_to, cannot_listen, require_a_device, stop_on_signals
from web.process import announce, withdraw

LOCK_WAIT = 30  # seconds for which another stackmem may still be ending


@click.command()
@click.option("--host", help="Address to listen on, instead of STACKMEM_HOST; 0.0.0.0 is the whole LAN.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on, instead of STACKMEM_PORT; 0: any.")
@click.option("--insecure", is_flag=True, help="Listen on the LAN without any device's token.")
def up(host: str | None, port: int | None, insecure: bool) -> None:
    """Start the server: one process, no other service needed. Ctrl-C stops it.

    Settings are environment variables, or lines of a file .env in the working directory.
    """
    stop_on_signals()
    try:
        _up(load_settings(host=host or None, port=port), insecure)
    except KeyboardInterrupt:
        click.echo("Stopped before it was ready.", err=True)


def _up(settings: Settings, insecure: bool) -> None:
    set_up(settings.log_format)
    for sentence in unknown_settings():
        click.echo(f"Note: {sentence}", err=True)
    listening = bind(settings)
    try:
        runtime = _build(settings)
        try:
            require_a_device(listening, runtime.database, insecure)
            _serve(settings, runtime, listening, insecure)
        finally:
            runtime.close()
    finally:
        listening.close()


def _build(settings: Settings) -> Runtime:
    from workers.app import CeleryQueue, check_broker, use_runtime

    check_broker()
    meter = PrometheusMeter()
    queue = CeleryQueue(meter)
    try:
        runtime = build(settings, owns_index=True, queue=queue, meter=meter, lock_wait_s=0)
    except Busy:
        click.echo(f"Another stackmem uses this folder; waiting up to {LOCK_WAIT} s for it to end …", err=True)
        runtime = build(settings, owns_index=True, queue=queue, meter=meter, lock_wait_s=LOCK_WAIT)
    use_runtime(runtime)
    return runtime


def _serve(settings: Settings, runtime: Runtime, listening: socket.socket, insecure: bool) -> None:
    from web import create_app
    from web.serving import make_server
    from workers.embedded import Embedded

    key, bound = secrets.token_urlsafe(32), bound_to(listening)
    app = create_app(runtime, insecure=insecure, key=key)
    try:
        server = make_server(app, listening)
    except OSError as exc:  # two servers can bind one port; only one can listen
        raise cannot_listen(settings, exc) from exc
    embedded = Embedded()
    embedded.start()
    runtime.warm_up()
    with runtime.database.connection_context():
        runtime.start()
    announce(settings.home, bound, key)
    click.echo(banner(settings, runtime, bound, insecure=insecure))
    sys.stdout.flush()
    announcement = _announce_name(bound)
    try:
        server.run()
    finally:
        withdraw(settings.home)
        if announcement:
            announcement.stop()
        server.close()
        if runtime.llama:
            runtime.llama.close()  # first: who waits for its answer would keep the process
        ended = embedded.stop()
    if not ended:
        # A thread that waits for a model would keep the process for minutes. Every result is one transaction, so
        # nothing is lost by going now.
        runtime.close()
        sys.stdout.flush()
        os._exit(0)


def _announce_name(bound: Bound) -> Announcement | None:
    """Give the server a name on the LAN, where it is reached from there and the extra for it is installed."""
    address = None if is_loopback(bound) or not can_announce() else on_the_lan(bound)
    if address is None or ":" in address:
        return None
    announcement = Announcement(address, bound[1], lambda url: click.echo(f"Its name on this network: {url}"))
    announcement.start()
    return announcement
