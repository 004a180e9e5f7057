"""A response's body as it comes: server-sent events, put together into one completion, or a single JSON text.

Format of events: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from stackmem.adapters.openai_answer import read_object, text_of
from stackmem.text import clean

_EVENTS = re.compile(rb"(?:data|event|id|retry|error)?:")
_MAY_BE_EVENTS = re.compile(rb"[a-z]{0,5}\Z")
_HALF = re.compile("[\ud800-\udbff]\\Z")  # the first half of a character above U+FFFF
_SURROGATE = re.compile("[\ud800-\udfff]")


class Incoming:
    """What has come of one response. Some servers send one JSON though events were asked for, or the reverse."""

    def __init__(self) -> None:
        self.size = 0  # bytes
        self.done = False  # the server said that nothing follows
        self._rest = bytearray()  # of an unfinished line; of the whole body where it is one JSON
        self._is_events: bool | None = None  # None: too little has come to tell
        self._event = b""
        self._error: Any = None
        self._message = _Message()

    @property
    def broke_off(self) -> bool:
        """Tell whether this is a stream without its end: no ``[DONE]``, no reason to finish, no error."""
        return bool(self._is_events) and not (self.done or self._error or self._message.finish_reason)

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Take bytes, and yield the pieces of content that they bring."""
        self.size += len(chunk)
        self._rest += chunk
        if self._is_events is None:
            self._rest = self._rest.lstrip()
            if _EVENTS.match(self._rest):
                self._is_events = True
            elif not _MAY_BE_EVENTS.match(self._rest):
                self._is_events = False
        if self._is_events and b"\n" in chunk:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                yield from self._line(bytes(line))

    def value(self) -> dict[str, Any]:
        """Return the whole answer as one completion, once nothing more comes. Raises Refused where it is not JSON."""
        if not self._is_events:
            return read_object(bytes(self._rest))
        if self._error:
            return {"error": self._error}
        return self._message.completion()

    def _line(self, line: bytes) -> Iterator[str]:
        name, _, data = line.strip().partition(b":")
        data = data.strip()
        if self.done or name not in (b"data", b"error"):  # a comment that keeps the connection alive, an id
            self._event = data if name == b"event" else self._event if name else b""
            return
        if data == b"[DONE]":
            self.done = True
            return
        try:
            chunk = json.loads(data.decode(errors="replace"))
        except (ValueError, RecursionError):
            return
        problem = chunk.get("error") or chunk.get("errors") if isinstance(chunk, dict) else None
        if problem or b"error" in (name, self._event):
            self._error = problem or chunk or "error"
        elif isinstance(chunk, dict):
            yield from self._message.take(chunk)


@dataclass
class _Call:
    """A tool call so far."""

    index: Any
    id: Any = None
    name: str = ""
    arguments: Any = None

    def is_another(self, piece: dict[str, Any], name: str) -> bool:
        """Tell whether the piece begins another call, though it has the same index, or none."""
        if not (name and self.name):
            return False
        if piece.get("id") and self.id:
            return bool(piece["id"] != self.id)
        return piece.get("index") is None and bool(self.arguments)

    def add(self, piece: dict[str, Any], name: str, arguments: Any) -> None:
        """Add a piece: some servers repeat id and name in each."""
        self.id = self.id or piece.get("id")
        self.name += name if name != self.name else ""
        both = isinstance(arguments, str) and isinstance(self.arguments, str)
        self.arguments = self.arguments + arguments if both else self.arguments if arguments is None else arguments


@dataclass
class _Message:
    """The assistant's message so far."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    finish_reason: Any = None
    usage: Any = None
    has_choices: bool = False
    _half: str = ""

    def take(self, chunk: dict[str, Any]) -> Iterator[str]:
        """Take one chunk, and yield the content in it."""
        self.usage = chunk.get("usage") or self.usage
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index") not in (0, None):
                continue
            self.has_choices = True
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            delta = choice.get("delta", choice.get("message"))
            if isinstance(delta, dict):
                yield from self._take_delta(delta)

    def completion(self) -> dict[str, Any]:
        """Return the message as a server that does not stream would have sent it."""
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.calls
        ]
        content, reasoning = "".join([*self.content, clean(self._half)]), "".join(self.reasoning)
        message = {"role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": calls}
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        return {"choices": [choice] if self.has_choices else [], "usage": self.usage}

    def _take_delta(self, delta: dict[str, Any]) -> Iterator[str]:
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else ():
            if isinstance(piece, dict):
                self._take_call(piece)
        self.reasoning.append(text_of(delta.get("reasoning_content") or delta.get("reasoning")))
        content = self._whole_characters(text_of(delta.get("content")))
        self.content.append(content)
        if content and not self.calls:
            yield content

    def _take_call(self, piece: dict[str, Any]) -> None:
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        name = text_of(function.get("name"))
        index = piece.get("index")
        known = [call for call in self.calls if index is None or call.index in (index, None)]
        if not known or known[-1].is_another(piece, name):
            known = [_Call(index)]
            self.calls += known
        known[-1].add(piece, name, function.get("arguments"))

    def _whole_characters(self, text: str) -> str:
        """Join a character that was cut into two surrogates; the first waits for the second."""
        text = self._half + text
        self._half = text[-1:] if _HALF.search(text) else ""
        text = text[: len(text) - len(self._half)]
        if _SURROGATE.search(text):
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return clean(text)
