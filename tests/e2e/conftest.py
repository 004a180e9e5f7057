"""Fixtures of the end-to-end tests."""

import pytest

from web.banner import lan_address


@pytest.fixture(scope="session")
def lan() -> str:
    """This machine's address as others see it."""
    address = lan_address()
    if address is None or address.startswith("127."):
        pytest.skip("This machine has no address but loopback: connect it to a network.")
    return address
