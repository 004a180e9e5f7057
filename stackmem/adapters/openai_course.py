"""The course of one call: what was tried, what may still be."""

import time

from stackmem.adapters.openai_errors import Refused
from stackmem.adapters.openai_request import Dialect
from stackmem.exceptions import StackmemError, TransientError
from stackmem.ports import ChatRequest

_PAUSE_S = 0.2  # before a failed request is tried again, where the server asks for no other
# How often each may be changed in one call. Three ways to switch thinking off and three formats make two changes.
_CHANGES = {"plain": 1, "format": 2, "thinking": 2, "arguments": 1, "usage": 1, "stream": 1}


class Course:
    """What one call has tried so far."""

    def __init__(self, dialect: Dialect, request: ChatRequest, own_extra_body: bool, streamed: bool):
        self.dialect = dialect
        self.streamed = streamed
        self.plain = False  # without a response format
        self._request = request
        self._own_extra_body = own_extra_body
        self._left = dict(_CHANGES)
        self._may_try_again = request.purpose in ("turn", "plain")  # background work is tried again by its queue

    def changed_after(self, refused: Refused) -> bool:
        """Change the dialect so that the server may accept it; False where nothing is left to change."""
        change = self.dialect.after(refused, self._request, self._own_extra_body, self.streamed)
        if change is None or not self._left[change[0]]:
            return False
        kind, self.dialect = change
        self._left[kind] -= 1
        self.plain = self.plain or kind == "plain"
        return True

    def worth_another_try(self, error: StackmemError, deadline: float) -> bool:
        """Wait as long as the server asks and return True, once, where half of the time is left after that."""
        if not (self._may_try_again and isinstance(error, TransientError)):
            return False
        self._may_try_again = False
        pause_s = _PAUSE_S if error.retry_after_s is None else error.retry_after_s
        if deadline - time.monotonic() - pause_s < self._request.timeout_s / 2:
            return False
        time.sleep(pause_s)
        return True
