"""Ask the background model for JSON: once, once more with the fault, then give up."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from stackmem.exceptions import BadAnswer
from stackmem.ports import ChatModel, ChatRequest

Answer = TypeVar("Answer")

ATTEMPTS = 5  # bad answers until the turns of a look are failed
LONGEST_DELAY = timedelta(minutes=15)
FIRST_DELAY = timedelta(seconds=5)


def delay(count: int) -> timedelta:
    """Return how long to wait after the ``count``-th failure in a row: 5 s, 10 s, 20 s, … 15 min."""
    factor: int = 2 ** min(max(count - 1, 0), 10)
    return min(LONGEST_DELAY, FIRST_DELAY * factor)


def ask(model: ChatModel, request: ChatRequest, read: Callable[[str], Answer]) -> Answer:
    """Return the model's answer as read by ``read``; a bad one is asked again once, with the fault.

    Raises BadAnswer after the second bad one, TransientError or PermanentError where the model did not answer.
    """
    content = model.complete(request).content
    try:
        return read(content)
    except BadAnswer as fault:
        again: list[dict[str, Any]] = [
            *request.messages,
            {"role": "assistant", "content": content[:4000]},
            {"role": "user", "content": f"{fault} Return only the JSON described above."},
        ]
        retry = ChatRequest(again, request.purpose, request.timeout_s, json_schema=request.json_schema)
        return read(model.complete(retry).content)
