"""Waiting for what must come true."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 60  # seconds until a condition that must come true is given up


def until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE) -> Any:
    """Return the first truthy value of the condition; fail when it never comes true."""
    end = time.monotonic() + patience_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"did not happen in {patience_s} s: {what}")
        time.sleep(0.05)
