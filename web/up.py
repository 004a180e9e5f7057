"""``stackmem up``: web, workers and beat in one process, with no other service."""

import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import click

from stackmem import devices
from stackmem.bootstrap import Runtime, build
from stackmem.cli.common import SERVER_FILE
from stackmem.config import Settings, load_settings, unknown_settings
from stackmem.exceptions import Busy, SettingsError

THREADS = 32  # waitress's own default of 4 lets a few waiting requests stop a robot


@click.command()
@click.option("--host", help="Address to listen on; 0.0.0.0 is the whole LAN.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option("--insecure", is_flag=True, help="Listen on the LAN without any device's token.")
def up(host: str | None, port: int | None, insecure: bool) -> None:
    """Start the server: one process, no other service needed."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = load_settings(host=host, port=port)
    for sentence in unknown_settings():
        click.echo(f"Note: {sentence}", err=True)
    listening = _listen(settings)
    runtime = _build(settings)
    try:
        _require_a_device(settings, runtime, insecure)
        _serve(settings, runtime, listening, insecure)
    finally:
        listening.close()
        runtime.close()


def _listen(settings: Settings) -> socket.socket:
    """Take the port before anything else: a second server must not get further."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
    except OSError as exc:
        raise SettingsError(
            f"STACKMEM_HOST/STACKMEM_PORT: cannot listen on {settings.host}:{settings.port} ({exc.strerror}). "
            "Is another stackmem running? Choose another port with --port."
        ) from exc
    return listening


def _build(settings: Settings) -> Runtime:
    from workers.app import CeleryQueue, use_runtime

    queue = CeleryQueue()
    try:
        runtime = build(settings, owns_index=True, queue=queue, lock_wait_s=0)
    except Busy:
        click.echo("Another stackmem uses this folder; waiting up to 30 s for it to end …", err=True)
        runtime = build(settings, owns_index=True, queue=queue, lock_wait_s=30)
    use_runtime(runtime)
    return runtime


def _require_a_device(settings: Settings, runtime: Runtime, insecure: bool) -> None:
    loopback = settings.host in ("localhost", "::1") or settings.host.startswith("127.")
    with runtime.database.connection_context():
        if loopback or insecure or devices.any_added():
            return
    raise SettingsError(
        f"Not started: on {settings.host} everybody on the network could talk to the robot's memory. "
        "Add the robot first with `stackmem devices add NAME`, or start with --insecure."
    )


def _serve(settings: Settings, runtime: Runtime, listening: socket.socket, insecure: bool) -> None:
    import waitress

    from web import create_app
    from workers.embedded import Embedded

    key = secrets.token_urlsafe(32)
    app = create_app(runtime, insecure=insecure, key=key)
    embedded = Embedded()
    embedded.start()
    with runtime.database.connection_context():
        runtime.work.start()
    threading.Thread(target=runtime.index.embedder.load, name="embedder", daemon=True).start()
    server = waitress.create_server(
        app, sockets=[listening], threads=THREADS, ident="stackmem", max_request_body_size=64 * 1024 * 1024
    )
    port = listening.getsockname()[1]
    server_file = _announce(settings, port, key)
    _stop_on_signals()
    click.echo(banner(settings, runtime, port))
    sys.stdout.flush()
    try:
        server.run()
    finally:
        server_file.unlink(missing_ok=True)
        server.close()
        ended = embedded.stop()
    if not ended:
        # A thread that waits for a model would keep the process for minutes. Every result is one transaction, so
        # nothing is lost by going now.
        runtime.close()
        sys.stdout.flush()
        os._exit(0)


def _announce(settings: Settings, port: int, key: str) -> Path:
    """Write where the command line finds this server, readable by this user alone."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    path = settings.home / SERVER_FILE
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump({"url": url, "key": key, "pid": os.getpid()}, out)
    return path


def _stop_on_signals() -> None:
    def stop(signum: int, _: Any) -> None:
        raise KeyboardInterrupt  # what waitress ends its loop by

    signal.signal(signal.SIGTERM, stop)


def lan_address() -> str | None:
    """Return this machine's address on the LAN; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1, https://www.rfc-editor.org/rfc/rfc5737
        except OSError:
            return None
        return str(probe.getsockname()[0])


def banner(settings: Settings, runtime: Runtime, port: int) -> str:
    """Return what the terminal says when the server is ready."""
    lines = [
        f"stackmem is ready: http://{settings.host}:{port}",
        f"  store     {settings.database.split('@')[-1]}  (home: {settings.home})",
        f"  index     {runtime.index.kind}, embedded   embedder  {runtime.index.embedder.fingerprint}, embedded",
        f"  workers   in this process ({settings.broker_url.split('@')[-1]})",
        f"  persona   {runtime.persona.name}",
    ]
    if runtime.chat.name == "offline":
        lines += _NO_MODEL
    else:
        lines.append(f"  model     {settings.chat_model} at {settings.chat_base_url}")
    return "\n".join([*lines, "", *_reach(settings, port), "Ctrl-C stops it; nothing is lost."])


_NO_MODEL = [
    "  model     none is set: simple offline rules answer, so everything can be tried.",
    "            To set one, put into .env, for example",
    "              STACKMEM_CHAT_BASE_URL=https://api-inference.modelscope.cn/v1     (ModelScope, with a key)",
    "              STACKMEM_CHAT_API_KEY=ms-…",
    "              STACKMEM_CHAT_MODEL=Qwen/Qwen3-30B-A3B-Instruct-2507",
    "            or a server of your own:",
    "              STACKMEM_CHAT_BASE_URL=http://127.0.0.1:8080/v1                   (llama.cpp, Ollama, vLLM …)",
    "              STACKMEM_CHAT_MODEL=qwen3",
]


def _reach(settings: Settings, port: int) -> list[str]:
    address = lan_address()
    if settings.host in ("127.0.0.1", "localhost", "::1"):
        return [
            "Talk to it here:   stackmem chat",
            "For the robot:     stackmem devices add NAME, then stackmem up --host 0.0.0.0"
            + (f"; its address will be http://{address}:{port}/v1/turns" if address else ""),
        ]
    shown = address if settings.host in ("0.0.0.0", "::") and address else settings.host
    return [f"The robot's address: http://{shown}:{port}/v1/turns   (with its token: Authorization: Bearer …)"]
