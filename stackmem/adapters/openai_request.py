"""What is sent to an OpenAI-compatible server: well-formed messages, in the dialect that this server understands."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stackmem.adapters.openai_errors import THINKING, Refused
from stackmem.ports import ChatRequest
from stackmem.reading import read_arguments
from stackmem.text import clean_json

# Row 1: ModelScope and DashScope want the first, vLLM, SGLang and llama.cpp the second, OpenAI refuses both.
_THINKING_OFF: tuple[dict[str, Any], ...] = (
    {"enable_thinking": False},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {},
)
_FORMATS = ("json_schema", "json_object", None)
_FORMAT = re.compile(r"response_?format|json_?.?(schema|object|mode)|structured|guided|grammar|\bjson\b", re.I)
# Row 20: Jinja templates that loop over the arguments, and their counterparts that want text.
_ARGUMENTS = re.compile(r"from a mapping|no attribute '?items|not a mapping|\barguments\b|dict(ionary)? object", re.I)
_USAGE = re.compile(r"stream_?options|include_?usage", re.I)
_STREAM = re.compile(
    r"(?:n[o']t (?:yet )?support|cannot|can't|unsupported|disabled|without).{0,60}\bstream"
    r"|\bstream\w*.{0,60}(?:not (?:yet )?(?:support|allow|available|implement)|unsupported|must be false)",
    re.I,
)
_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")


@dataclass(frozen=True)
class Dialect:
    """What one server was found to accept; remembered for the life of the process."""

    thinking: int = 0  # index in _THINKING_OFF
    thinking_settled: bool = False  # the server refused another variant: what it lets pass now stays
    format: int = 0  # index in _FORMATS
    arguments_as_object: bool = False
    streams: bool = True
    usage_in_streams: bool = True  # where it is not asked for, most streams do not tell the tokens

    def after(
        self, refused: Refused, request: ChatRequest, own_extra_body: bool, streamed: bool = False
    ) -> tuple[str, "Dialect"] | None:
        """Return what to change after a refusal, and the dialect changed so; None where nothing can help."""
        if refused.status in (401, 402, 403, 404, 429):
            return None
        has_format = bool(request.json_schema and not request.tools and _FORMATS[self.format])
        if refused.status < 300:  # row 2
            return ("plain", replace(self, format=self.format + 1)) if has_format else None
        if has_format and _FORMAT.search(refused.codes):
            return "format", replace(self, format=self.format + 1)
        if streamed and (change := self._after_stream(refused.codes)):
            return change
        if not own_extra_body and refused.status < 500 and THINKING.search(refused.codes):
            following = (self.thinking + 1) % len(_THINKING_OFF)
            return "thinking", replace(self, thinking=following, thinking_settled=True)
        if _has_calls(request.messages) and _ARGUMENTS.search(refused.codes):
            return "arguments", replace(self, arguments_as_object=not self.arguments_as_object)
        return None

    def _after_stream(self, codes: str) -> tuple[str, "Dialect"] | None:
        if self.streams and self.usage_in_streams and _USAGE.search(codes):
            return "usage", replace(self, usage_in_streams=False)
        if self.streams and _STREAM.search(codes):
            return "stream", replace(self, streams=False)
        return None

    def after_thinking_aloud(self) -> "Dialect":
        """Return the dialect to go on with after an answer that holds thinking: vLLM ignores the first variant."""
        return self if self.thinking or self.thinking_settled else replace(self, thinking=1)


def _has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(message.get("tool_calls") for message in messages)


def body_of(
    request: ChatRequest, dialect: Dialect, extra_body: dict[str, Any] | None, plain: bool, streamed: bool = False
) -> dict[str, Any]:
    """Return the arguments of ``chat.completions.create`` for a request, all but the model and the time-out.

    ``extra_body``: the user's own, else the dialect's. ``plain``: without a response format, this time. ``streamed``:
    as server-sent events where the dialect has them.
    """
    body: dict[str, Any] = {"messages": outgoing(request.messages, dialect.arguments_as_object)}
    body["extra_body"] = _THINKING_OFF[dialect.thinking] if extra_body is None else extra_body
    kind = None if plain else _FORMATS[dialect.format]
    if request.tools:  # row 8: never "required" nor one tool by name; never with a response format
        body |= {"tools": clean_json(request.tools), "tool_choice": "auto"}
    elif request.json_schema and kind == "json_schema":
        body["response_format"] = {"type": kind, "json_schema": {"name": "answer", "schema": request.json_schema}}
    elif request.json_schema and kind:
        body["response_format"] = {"type": kind}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if streamed and dialect.streams:
        body |= {"stream": True} | ({"stream_options": {"include_usage": True}} if dialect.usage_in_streams else {})
    # The client walks through every message to turn its own types into JSON (8 ms for 60 turns, measured). These are
    # JSON already: they go in where it looks at nothing.
    ready = {name: body.pop(name) for name in ("messages", "tools", "response_format") if name in body}
    return body | {"messages": [], "extra_body": ready | body["extra_body"]}


def outgoing(messages: Sequence[Mapping[str, Any]], arguments_as_object: bool = False) -> list[dict[str, Any]]:
    """Return messages that any chat template takes (rows 10, 16, 18, 19, 20).

    One system message, first; content never null; every tool result behind its call, and every call with its result.
    """
    cleaned = [_message(message, arguments_as_object) for message in messages]
    system = [_as_text(message["content"]) for message in cleaned if message["role"] == "system"]
    rest = [message for message in cleaned if message["role"] != "system"]
    first = [{"role": "system", "content": "\n\n".join(text for text in system if text)}] if any(system) else []
    return first + list(_whole_pairs(rest))


def _message(message: Mapping[str, Any], arguments_as_object: bool) -> dict[str, Any]:
    kept: dict[str, Any] = clean_json({key: message[key] for key in _KEYS if message.get(key) is not None})
    kept["role"] = "system" if kept.get("role") == "developer" else kept.get("role", "user")
    content = kept.get("content", "")
    kept["content"] = content if kept["role"] == "user" else _as_text(content)
    if calls := kept.pop("tool_calls", None):
        kept["tool_calls"] = [_call(call, arguments_as_object) for call in calls]
    return kept


def _as_text(content: Any) -> str:
    """Return content as text; of a list of parts, the text parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content)


def _call(call: dict[str, Any], arguments_as_object: bool) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = read_arguments(function.get("arguments")) or {}
    shaped = arguments if arguments_as_object else json.dumps(arguments, ensure_ascii=False)
    named = {"name": function.get("name") or "", "arguments": shaped}
    return {"id": str(call.get("id") or ""), "type": "function", "function": named}


def _whole_pairs(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages without results that have no call before them, and calls that have no result behind them."""
    for position, message in enumerate(messages):
        if message["role"] == "tool":
            continue  # given out with its call
        results = _results_behind(messages, position)
        calls = [call for call in message.pop("tool_calls", ()) if call["id"] in results]
        if calls:
            yield {**message, "tool_calls": calls}
            yield from (results[call["id"]] for call in calls)
        elif message["content"] or message["role"] == "user":
            yield message


def _results_behind(messages: Sequence[dict[str, Any]], position: int) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    for message in messages[position + 1 :]:
        if message["role"] != "tool":
            break
        results[str(message.get("tool_call_id"))] = message
    return results
