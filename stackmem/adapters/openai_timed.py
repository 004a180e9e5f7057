"""An answer that is whole in time, however a server sends it."""

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from stackmem.adapters.openai_errors import Complaints

Result = TypeVar("Result")


def in_time(ask: Callable[[], Result], deadline: float, complaints: Complaints, name: str) -> Result:
    """Return what ``ask`` returns or raises; TransientError at ``deadline`` (of ``time.monotonic``).

    It runs in a thread called ``name``, because no time-out of a socket bounds a name look-up.
    """
    said: SimpleQueue[tuple[Result] | Exception] = SimpleQueue()

    def run() -> None:
        try:
            said.put((ask(),))
        except Exception as exc:  # the thread's edge: raised again by the one who waits
            said.put(exc)

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        answer = said.get(timeout=max(deadline - time.monotonic(), 0))
    except Empty:
        raise complaints.too_slow() from None
    if isinstance(answer, Exception):
        raise answer
    return answer[0]


def read_body(response: Any, deadline: float, complaints: Complaints, limit: int) -> bytes:
    """Return a response's body, of ``limit`` bytes at most. Raises TransientError: no thread reads one for ever."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if time.monotonic() > deadline:
            raise complaints.too_slow()
        if len(body) > limit:
            raise complaints.too_much()
    return bytes(body)
