"""A port is taken, or named."""

import socket

import pytest

from stackmem.config import load_settings
from stackmem.exceptions import SettingsError
from web.listening import bind, bound_to


def test_any_free_port_is_taken() -> None:
    with bind(load_settings(host="127.0.0.1", port=0)) as listening:
        host, port = bound_to(listening)
        assert (host, port > 0) == ("127.0.0.1", True)


@pytest.mark.parametrize("host", ["999.1.1.1", "no.such.host.invalid", "x" * 300, "192.0.2.254", "ü" * 70, "a b"])
def test_a_host_that_cannot_be_listened_on_is_named(host: str) -> None:
    with pytest.raises(SettingsError, match=rf"STACKMEM_HOST/STACKMEM_PORT: cannot listen on {host[:100]}:0 \("):
        bind(load_settings(host=host, port=0))


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=f"127.0.0.1:{port} .*in use.* another port with --port"):
            bind(load_settings(host="127.0.0.1", port=port))
