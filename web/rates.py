"""How many requests a minute one device may send. This machine itself is not counted.

Counted in the process: of several web processes each counts what it serves.
"""

import math
import time

from flask import Flask, g, request
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from werkzeug.exceptions import TooManyRequests

from web.access import OPEN, is_local, runtime


def register(app: Flask) -> None:
    """Refuse what is too much by 429 with Retry-After. Call it after access has found out who asks."""
    windows = SlidingWindowCounterRateLimiter(MemoryStorage())

    @app.before_request
    def _count() -> None:
        per_minute = runtime().settings.rate_per_minute if request.path not in OPEN else 0
        if not per_minute or request.endpoint == "static" or is_local():
            return
        limit, whose = RateLimitItemPerMinute(per_minute), g.device or f"address {request.remote_addr}"
        if not windows.hit(limit, whose):
            left_s = max(1, math.ceil(windows.get_window_stats(limit, whose).reset_time - time.time()))
            raise TooManyRequests(
                f"More than {per_minute} requests in a minute: ask again in {left_s} s.", retry_after=left_s
            )
