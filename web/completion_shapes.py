"""Answers in the shapes of OpenAI's chat completions, whole and as server-sent events.

https://platform.openai.com/docs/api-reference/chat/object, …/chat/streaming
"""

import json
import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from stackmem.exceptions import StackmemError
from stackmem.ports import ToolCall
from stackmem.visiting import Answered
from web.openai_shapes import error_body
from web.underway import Underway

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Completion:
    """One answer under way: its id, its time, and the model's name."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answered: Answered) -> dict[str, Any]:
        """Return the answer as one object."""
        message: dict[str, Any] = {"role": "assistant", "content": answered.text, "refusal": None}
        if answered.calls:
            message["tool_calls"] = [_call(call) for call in answered.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answered)}
        return self._base("chat.completion") | {"choices": [choice], "usage": _usage(answered)} | _ours(answered)

    def events(self, underway: Underway[Answered], *, include_usage: bool) -> Iterator[bytes]:
        """Yield the answer as events, each piece as it comes."""
        empty = {"usage": None} if include_usage else {}
        yield self._event({"role": "assistant", "content": ""}, **empty)
        try:
            for piece in underway.pieces():
                yield self._event({"content": piece}, **empty)
        except Exception as exc:  # the stream's edge: its status is sent already
            log.warning("an answer broke off: %s", exc)
            sentence = str(exc) if isinstance(exc, StackmemError) else "Something went wrong inside stackmem."
            yield _data(error_body(getattr(exc, "status", 500), sentence)) + b"data: [DONE]\n\n"
            return
        answered = underway.result
        if answered.calls:
            calls = [{"index": place} | _call(call) for place, call in enumerate(answered.calls)]
            yield self._event({"tool_calls": calls}, **empty)
        yield self._event({}, _finish(answered), **empty, **_ours(answered))
        if include_usage:
            yield _data(self._base("chat.completion.chunk") | {"choices": [], "usage": _usage(answered)})
        yield b"data: [DONE]\n\n"

    def _base(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _event(self, delta: dict[str, Any], finish_reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _data(self._base("chat.completion.chunk") | {"choices": [choice]} | more)


def _data(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _finish(answered: Answered) -> str:
    return "tool_calls" if answered.calls else "length" if answered.is_cut else "stop"


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments or {}, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(answered: Answered) -> dict[str, int]:
    prompt, completion = answered.prompt_tokens, answered.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _ours(answered: Answered) -> dict[str, Any]:
    """Return what a robot may want to know besides; clients of OpenAI's leave it alone."""
    turn = answered.turn
    if turn is None:
        return {}
    return {
        "stackmem": {
            "turn_id": turn.id,
            "session_id": turn.session.name,
            "emotion": turn.emotion,
            "action": turn.action,
            "searched": turn.searched,
            "memory_ids": turn.memory_ids,
            "degraded": turn.degraded,
            "model": turn.model,
        }
    }
