"""Who may ask, and whose memories they see."""

import hmac
import ipaddress
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, current_app, g, request
from peewee import SqliteDatabase
from werkzeug.wrappers import Response

from stackmem import devices
from stackmem.bootstrap import Runtime
from web.bodies import text_in_query
from web.problems import problem

HOME = "home"  # the owner where nothing chooses another
OPEN = ("/healthz",)
OPEN_PAGES = ("static", "pages.login.show", "pages.login.enter")  # a login page, and how it looks
COOKIE = "stackmem_token"  # a device's token, for pages
PAGES = "pages"
PROXIES = ("FORWARDED", "VIA", "X_REAL_IP")  # what proxies add, beside X-Forwarded-*; nginx is often told the last
LOCAL_NAMES = (".localhost", ".local", ".internal", ".home.arpa")  # no public DNS has them (RFC 6761, 6762, 8375)


def runtime() -> Runtime:
    """Return what this app works with."""
    return current_app.extensions["stackmem"]  # type: ignore[no-any-return]


def database() -> Any:
    """Return the database that knows the devices."""
    return current_app.extensions["stackmem"].database


def register(app: Flask, refuse: Callable[..., Response] = problem) -> None:
    """Open a database connection around each request, and find out who asks; ``refuse`` makes the answer to others."""

    @app.before_request
    def _admit() -> Response | None:
        g.owner, g.device, g.admin = HOME, None, False
        if request.path in OPEN:
            return None
        database().connect(reuse_if_open=True)
        return _identify(refuse) if request.endpoint not in OPEN_PAGES else None

    @app.teardown_request
    def _close(_: BaseException | None) -> None:
        # SQLite's stays open as long as its thread: opening costs half a millisecond, and closing the last one a
        # checkpoint. A pool of another database gets its connection back.
        if not (isinstance(database(), SqliteDatabase) or database().is_closed()):
            database().close()


def _identify(refuse: Callable[..., Response]) -> Response | None:
    key = request.headers.get("X-Stackmem-Key", "")
    if key and current_app.config["KEY"] and hmac.compare_digest(key.encode(), current_app.config["KEY"].encode()):
        g.admin, g.owner = True, text_in_query("owner") or HOME
        return None
    token = _token()
    device = devices.find(token) if token else None
    if device is not None:
        g.owner, g.device = device.owner, device.name
        return None
    if is_local() or current_app.config["INSECURE"]:
        return None
    return refuse(
        401,
        "A device's token is needed: add one with `stackmem devices add NAME`.",
        **{"WWW-Authenticate": 'Bearer realm="stackmem"'},
    )


def _token() -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    # Only pages take a cookie: their forms carry a token of their own, so no other site can act through it.
    return request.cookies.get(COOKIE, "") if PAGES in request.blueprints else ""


def is_local() -> bool:
    """Tell whether the request comes from this machine itself, not through a proxy on it."""
    forwarded = any(name in PROXIES or name.startswith("X_FORWARDED_") for name in _header_names())
    try:
        address = ipaddress.ip_address(request.remote_addr or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback and not forwarded and not _has_public_name(_host())


def _host() -> str:
    """Return the Host header, "" where there is none (HTTP/1.0): `request.host` would be a name made up by waitress."""
    return request.headers.get("Host", "")


def _has_public_name(host: str) -> bool:
    """Tell whether the Host header names what anybody's DNS could name.

    A page from elsewhere may let its own name point to 127.0.0.1 ("DNS rebinding") and would then read what we answer
    in this person's browser. An address, or a name that only this machine or its network gives, cannot be had that way.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False  # it is no name at all
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." in name and not name.endswith(LOCAL_NAMES)
    return False


def _header_names() -> set[str]:
    """Return the names of all headers that came, as ``X_FORWARDED_FOR``.

    `waitress-serve` takes a proxy's out of what the app gets (unless --no-clear-untrusted-proxy-headers is given), and
    everybody behind the proxy would look like this machine. The request inside waitress still has them.
    """
    names = {name.upper().replace("-", "_") for name, _ in request.headers}
    channel = getattr(request.environ.get("waitress.client_disconnected"), "__self__", None)
    served = getattr(channel, "requests", None)
    return names | set(served[0].headers) if served else names
