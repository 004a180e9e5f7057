"""Reading a chat completion as it really comes, not as its specification has it."""

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from stackmem.adapters.openai_errors import Refused
from stackmem.exceptions import ContentRefused
from stackmem.ports import ChatAnswer, ChatRequest, ToolCall
from stackmem.reading import offered_name, read_arguments, read_tool_calls, strip_thinking
from stackmem.text import clean

NO_ANSWER = 200  # the status of a Refused that came as a success


def read_completion(value: dict[str, Any], request: ChatRequest) -> tuple[ChatAnswer, bool]:
    """Return the answer in a response (a completion as one JSON object), and whether the model was thinking aloud.

    Raises Refused where there is no answer in it, ContentRefused where the service held it back.
    """
    choice = _first_choice(value)
    message: dict[str, Any] = choice["message"]
    spoken = clean(text_of(message.get("content")))
    reasoning = clean(text_of(message.get("reasoning_content") or message.get("reasoning")))
    names = [tool["function"]["name"] for tool in request.tools]
    content = strip_thinking(spoken)
    native = list(_native_calls(message, names))
    if not content and not native:
        content = _answer_in_reasoning(reasoning)
    elif names:
        content, found = read_tool_calls(content, names)
        native = native or [(None, name, arguments) for name, arguments in found]
    if choice.get("finish_reason") == "content_filter" and not content and not native:
        raise ContentRefused
    calls = tuple(_with_ids(native, request.messages))
    thought = bool(reasoning.strip()) or _holds_thinking(spoken)
    usage = value.get("usage")
    return ChatAnswer(content, calls, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")), thought


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a body is; {} for another JSON. Raises Refused where it is none."""
    text = body.decode(errors="replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip().startswith("<"):
            raise Refused(404, "a web page came instead of JSON") from None
        raise Refused(NO_ANSWER, "the body is not JSON") from None
    return value if isinstance(value, dict) else {}


def _first_choice(value: dict[str, Any]) -> dict[str, Any]:
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
        return choice
    raise refusal_in(value, "no choices")  # row 2


def refusal_in(value: dict[str, Any], otherwise: str) -> Refused:
    """Return the refusal in a response that came as a success, or, where it holds none, these words as one."""
    problem = value.get("error") or value.get("errors")
    if not problem:
        return Refused(NO_ANSWER, otherwise)
    code = problem.get("code") if isinstance(problem, dict) else None
    return Refused(code if isinstance(code, int) and 400 <= code < 600 else 500, value)


def text_of(content: Any) -> str:
    """Return content as text: a string, a list of parts, or null."""
    if isinstance(content, list):
        return "".join(text_of(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _holds_thinking(spoken: str) -> bool:
    """Tell whether there are words in the thinking; many a server sends an empty block where thinking is off."""
    text, closed, _ = spoken.rpartition("</think>")
    text = text if closed else spoken
    _, opened, inside = text.partition("<think>")
    return bool((inside if opened else text if closed else "").strip())


def _answer_in_reasoning(reasoning: str) -> str:
    """Return an answer that came as reasoning (row 14): what follows the thinking, or JSON and nothing else.

    Anything else may be thinking, which is never spoken; a call in it is not executed (row 15).
    """
    text = strip_thinking(reasoning)
    return text if "</think>" in reasoning or text.startswith(("{", "```")) else ""


def _native_calls(message: dict[str, Any], names: Sequence[str]) -> Iterator[tuple[Any, str, dict[str, Any] | None]]:
    """Yield (id, offered name, arguments) of the calls of offered tools."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and (name := offered_name(function.get("name"), names)):
            yield call.get("id"), name, read_arguments(function.get("arguments"))


def _with_ids(
    calls: Sequence[tuple[Any, str, dict[str, Any] | None]], history: Sequence[dict[str, Any]]
) -> Iterator[ToolCall]:
    """Yield the calls with ids that are unique, in the history too: some servers count from 0 in every answer."""
    taken = {call.get("id") for message in history for call in message.get("tool_calls") or ()}
    for wanted, name, arguments in calls:
        fresh = not isinstance(wanted, str) or not wanted or wanted in taken
        identifier = f"call_{uuid.uuid4().hex[:24]}" if fresh else wanted
        taken.add(identifier)
        yield ToolCall(identifier, name, arguments)


def _count(usage: Any, key: str) -> int:
    value = usage.get(key) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value > 0 else 0
