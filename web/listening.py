"""A server's port and end: taken before anything else, shut to strangers, stopped by a signal."""

import signal
import socket
from collections.abc import Callable
from typing import Any

from stackmem import devices
from stackmem.config import Settings
from stackmem.exceptions import SettingsError
from web.banner import Bound, is_loopback


def bind(settings: Settings) -> socket.socket:
    """Take the port before anything else: a second server must not get further. Raises SettingsError."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:  # UnicodeError: a name that IDNA does not take
        raise cannot_listen(settings, exc) from exc
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
    except OSError as exc:
        listening.close()
        raise cannot_listen(settings, exc) from exc
    return listening


def cannot_listen(settings: Settings, error: Exception) -> SettingsError:
    """Return the error for a port that cannot be had."""
    return SettingsError(
        f"STACKMEM_HOST/STACKMEM_PORT: cannot listen on {settings.host[:100]}:{settings.port} "
        f"({getattr(error, 'strerror', None) or error}). Is another stackmem running? Choose another port with --port."
    )


def bound_to(listening: socket.socket) -> Bound:
    """Return the address and port of a socket."""
    host, port = listening.getsockname()[:2]
    return str(host), int(port)


def require_a_device(listening: socket.socket, database: Any, insecure: bool) -> None:
    """Raise SettingsError where everybody on the network could come in."""
    bound = bound_to(listening)
    with database.connection_context():
        if is_loopback(bound) or insecure or devices.any_added():
            return
    raise SettingsError(
        f"Not started: on {bound[0]} everybody on the network could talk to the robot's memory. "
        "Add the robot first with `stackmem devices add NAME`, or start with --insecure."
    )


def stop_on_signals(at_first: Callable[[], None] | None = None) -> None:
    """Let SIGTERM and SIGINT end the main thread by a KeyboardInterrupt, which is what waitress ends its loop by.

    ``at_first`` is called before.
    """

    def stop(signum: int, _: Any) -> None:
        # Stopping takes seconds at most: a second signal must not cut it off in the middle.
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        if at_first:
            at_first()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, stop)
