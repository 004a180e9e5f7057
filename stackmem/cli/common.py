"""What commands share: options, output, and the way to a server that may be running."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from stackmem.bootstrap import Runtime, build, make_home
from stackmem.config import Settings, load_settings
from stackmem.database import open_database
from stackmem.exceptions import Busy, StackmemError, TransientError
from stackmem.reindexing import reindex
from stackmem.text import clean

SERVER_FILE = "server.json"  # in the home folder, mode 0600: where the running server is, and its key
TIMEOUT = 30  # seconds
LOCK_WAIT = 10  # seconds until who uses the index is taken for a server: other commands are done sooner

OWNER_LIMIT = 100  # characters


class Words(click.ParamType[str]):
    """Text that may hold bytes which are no UTF-8: they must reach neither the database nor JSON."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, cleaned."""
        return clean(str(value))


class OwnerName(Words):
    """The name of an owner."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; fail where it is none."""
        name = super().convert(value, param, ctx).strip()
        if not 0 < len(name) <= OWNER_LIMIT or not name.isprintable():
            self.fail(f"an owner's name has 1 to {OWNER_LIMIT} printable characters.", param, ctx)
        return name


WORDS = Words()
owner_option = click.option("--owner", type=OwnerName(), default="home", show_default=True, help="Whose memories.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    """Print JSON, Japanese unescaped."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


class Server:
    """A server running on this store, reached over HTTP with the key from the home folder."""

    def __init__(self, url: str, key: str):
        self._url, self._key = url, key

    def call(
        self, method: str, path: str, owner: str, body: Any = None, timeout_s: float = TIMEOUT, **query: Any
    ) -> Any:
        """Return the answer's JSON. Raises StackmemError with its sentence; TransientError when it cannot now."""
        asked = {"owner": owner, **{name: value for name, value in query.items() if value is not None}}
        request = urllib.request.Request(
            f"{self._url}{urllib.parse.quote(path)}?{urllib.parse.urlencode(asked)}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"X-Stackmem-Key": self._key, "Content-Type": "application/json"},
        )
        try:
            # A proxy set for the internet must not see what goes to this machine.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=timeout_s) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as exc:
            kind = TransientError if exc.code == 503 else StackmemError
            raise kind(_sentence(exc)) from exc
        except (OSError, ValueError) as exc:
            raise TransientError(f"The server at {self._url} does not answer.") from exc


def _sentence(error: urllib.error.HTTPError) -> str:
    with error:
        try:
            return str(json.load(error)["detail"])
        except (ValueError, KeyError, TypeError):
            return f"The server answered {error.code}."


def running_server(settings: Settings) -> Server | None:
    """Return the server that runs on this home folder, None where there is none."""
    try:
        found = json.loads((settings.home / SERVER_FILE).read_text())
        server = Server(found["url"], found["key"])
        server.call("GET", "/v1/admin/ping", "home", timeout_s=5)
    except (OSError, ValueError, KeyError, TypeError, StackmemError):
        return None
    return server


@contextmanager
def store(settings: Settings) -> Iterator[Any]:
    """Open the database for the block and yield it; enough for what needs no index."""
    make_home(settings)
    database = open_database(settings.database)
    with database.connection_context():
        yield database


@contextmanager
def own_runtime(settings: Settings, database: Any, *, rebuild: bool = True) -> Iterator[Runtime]:
    """Own the index for the block, as a server would, rebuilt where it cannot be opened.

    Raises Busy where another process owns it.
    """
    runtime = build(settings, owns_index=True, lock_wait_s=LOCK_WAIT, database=database)
    try:
        # A changed embedder may need hours: `reindex`, or a server in the background, does that.
        if rebuild and runtime.index.current is None and not runtime.index.change:
            reindex(runtime.index)
        yield runtime
    finally:
        runtime.close()


def with_server_or_own(
    with_server: Callable[[Server], Any],
    alone: Callable[[Runtime], Any],
    settings: Settings | None = None,
    *,
    rebuild: bool = True,
) -> Any:
    """Ask the running server; with none, own the index and do it here."""
    settings = settings or load_settings()
    server = running_server(settings)
    if server is not None:
        return with_server(server)
    try:
        with store(settings) as database, own_runtime(settings, database, rebuild=rebuild) as runtime:
            return alone(runtime)
    except Busy:
        # A server that was just starting holds the lock now.
        server = running_server(settings)
        if server is None:
            raise
        return with_server(server)
