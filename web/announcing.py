"""The server's name on the LAN by mDNS (RFC 6762): http://stackmem.local:8765 where an address would change."""

import logging
import socket
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zeroconf import Zeroconf

log = logging.getLogger(__name__)

KIND = "_stackmem._tcp.local."  # what a robot looks for; RFC 6763
NAMES = ("stackmem", *(f"stackmem-{number}" for number in range(2, 10)))
TAKEN_MS = 1800  # for which another server may answer to the name: who has just answered waits a second (RFC 6762, 6)


def can_announce() -> bool:
    """Tell whether the extra ``mdns`` is installed."""
    return find_spec("zeroconf") is not None


class Announcement:
    """Answers to the first free name of ``NAMES`` from ``start`` to ``stop``; ``say`` is called with its address.

    A network that takes no multicast is logged, and no error: everything works by the number.
    """

    def __init__(self, address: str, port: int, say: Callable[[str], None]):
        self._address, self._port, self._say = address, port, say
        self._zeroconf: Zeroconf | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin in a thread: to see whether a name is free takes a second or two."""
        threading.Thread(target=self._run, name="mdns", daemon=True).start()

    def stop(self) -> None:
        """Take the name back."""
        with self._lock:
            self._stopped = True
            if self._zeroconf is not None:
                self._zeroconf.close()

    def _run(self) -> None:
        from zeroconf import Error, IPVersion, ServiceInfo, Zeroconf

        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.bind((self._address, 0))  # zeroconf leaves sockets open where this is no address of ours
            with self._lock:
                if self._stopped:
                    return
                self._zeroconf = Zeroconf(interfaces=[self._address], ip_version=IPVersion.V4Only)
            name = next((name for name in NAMES if self._is_free(name)), None)
            if name is None:
                log.warning("No name is free on this network; the robot needs the address as a number.")
                return
            self._zeroconf.register_service(
                ServiceInfo(
                    KIND, f"{name}.{KIND}", port=self._port, addresses=[socket.inet_aton(self._address)],
                    server=f"{name}.local.", properties={"turns": "/v1/turns", "kai": "/kai"},
                )
            )  # fmt: skip
        except (OSError, Error, RuntimeError) as exc:  # RuntimeError: stopped in the middle
            if not self._stopped:
                log.warning("The server's name could not be announced on the network: %s", exc)
            return
        self._say(f"http://{name}.local:{self._port}")

    def _is_free(self, name: str) -> bool:
        from zeroconf import AddressResolverIPv4

        assert self._zeroconf is not None
        other = AddressResolverIPv4(f"{name}.local.")
        other.request(self._zeroconf, TAKEN_MS)
        return not other.parsed_addresses()
