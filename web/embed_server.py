"""``stackmem embed-server``: the embedder as a process of its own."""

import logging
import os
import signal
import sys
import threading
from contextlib import closing, suppress

import click

from stackmem.bootstrap import make_home
from stackmem.config import Settings, load_settings
from stackmem.database import open_database
from stackmem.exceptions import SettingsError
from stackmem.logs import set_up
from stackmem.ports import Embedder
from stackmem.providers import embedder_of
from web.banner import local_url
from web.listening import bind, bound_to, cannot_listen, require_a_device, stop_on_signals

log = logging.getLogger(__name__)


@click.command("embed-server")
@click.option("--host", help="Address to listen on, instead of STACKMEM_HOST; 0.0.0.0 is the whole LAN.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on, instead of STACKMEM_PORT; 0: any.")
@click.option("--insecure", is_flag=True, help="Listen on the LAN without any device's token.")
def embed_server(host: str | None, port: int | None, insecure: bool) -> None:
    """Serve the embedder to other programs. Ctrl-C stops it.

    It answers at /v1/embeddings, as OpenAI does. Another stackmem uses it with
    STACKMEM_EMBEDDER=openai and STACKMEM_EMBEDDING_BASE_URL.
    """
    stop_on_signals()
    try:
        _serve(load_settings(host=host or None, port=port), insecure)
    except KeyboardInterrupt:
        click.echo("Stopped before it was ready.", err=True)


def _serve(settings: Settings, insecure: bool) -> None:
    from web.embeddings import Serving, create_app
    from web.serving import make_server

    set_up(settings.log_format)
    if settings.embedder == "openai":
        raise SettingsError("STACKMEM_EMBEDDER is wrong: embed-server serves a model of its own; choose another one.")
    with bind(settings) as listening:
        make_home(settings)
        serving = Serving(open_database(settings.database), embedder_of(settings))
        require_a_device(listening, serving.database, insecure)
        try:
            server = make_server(create_app(serving, insecure=insecure), listening)
        except OSError as exc:
            raise cannot_listen(settings, exc) from exc
        stop_on_signals(serving.stop)
        loading = Loading(serving.embedder)
        with closing(server), suppress(KeyboardInterrupt):  # which the loop itself takes, once it runs
            loading.start()
            _say(f"Embedding server: {local_url(bound_to(listening))}/v1/embeddings   {serving.embedder.fingerprint}")
            server.run()
    if loading.failed:
        _say(f"Error: {loading.failed}")
        os._exit(1)  # a thread of torch may hold the process


def _say(sentence: str) -> None:
    click.echo(sentence)
    sys.stdout.flush()


class Loading(threading.Thread):
    """Loads the model; where that fails, the server ends."""

    def __init__(self, embedder: Embedder):
        super().__init__(name="loading", daemon=True)
        self._embedder, self.failed = embedder, ""

    def run(self) -> None:
        """Load."""
        try:
            self._embedder.load()
        except Exception as exc:  # the thread's edge: the main thread says it and ends
            self.failed = f"the embedder could not be loaded: {exc}"
            os.kill(os.getpid(), signal.SIGTERM)
