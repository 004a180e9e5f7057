"""Fixtures of the end-to-end tests."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from web.banner import lan_address

CHROMIUM = "/usr/bin/chromium"
# Without these Chromium talks to its maker's servers at every start.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="session")
def lan() -> str:
    """This machine's address as others see it."""
    address = lan_address()
    if address is None or address.startswith("127."):
        pytest.skip("This machine has no address but loopback: connect it to a network.")
    return address


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for all tests; each gets a context of its own."""
    if shutil.which(CHROMIUM) is None:
        pytest.skip(f"There is no {CHROMIUM}: install Debian's package chromium.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()
