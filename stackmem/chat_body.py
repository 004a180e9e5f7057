"""A request of OpenAI's chat completions, read: what is new in it, and what it brings along. Pure.

https://platform.openai.com/docs/api-reference/chat/create
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stackmem.exceptions import BadParameter
from stackmem.text import clean_json

RAW = "stackmem-raw"  # the model behind, without memory; any other name means stackmem
MODELS = ("stackmem", RAW)
MESSAGES_LIMIT = 4000
TOOLS_LIMIT = 128
WORDS_LIMIT = 300_000  # characters of the user's new words: about a megabyte of Japanese, as for a robot's turn
_PARTS = 8  # of several messages in a row, so many last ones may be a turn of their own
_SYSTEM = ("system", "developer")
_ROLES = (*_SYSTEM, "user", "assistant", "tool")
_TEXT_PARTS = ("text", "input_text", "output_text")


@dataclass(frozen=True)
class Pair:
    """What the user said, in one message or several, and the reply that followed; either may be empty."""

    parts: tuple[str, ...]
    reply: str

    @property
    def user(self) -> str:
        """The user's messages, joined by newlines."""
        return "\n".join(self.parts)

    @property
    def may_be(self) -> list[str]:
        """What a stored turn of this exchange may hold as the user's words: all messages, or only the last ones."""
        firsts = {0, *range(max(0, len(self.parts) - _PARTS), len(self.parts))}
        return ["\n".join(self.parts[first:]) for first in sorted(firsts)]


@dataclass(frozen=True)
class Talk:
    """A conversation as its client keeps it: instructions, the exchanges so far, the user's new messages."""

    system: str
    pairs: tuple[Pair, ...]
    new: tuple[str, ...]
    has_pictures: bool = False  # with the new words; or sound, or a file
    runs_tools: bool = False  # results of the client's own tools follow the new words

    @property
    def words(self) -> str:
        """The user's new words."""
        return "\n".join(self.new)


@dataclass(frozen=True)
class ChatBody:
    """A request's fields, each valid."""

    messages: Sequence[dict[str, Any]]
    model: str = MODELS[0]
    user: str | None = None
    stream: bool = False
    include_usage: bool = False
    tools: Sequence[dict[str, Any]] = field(default=())
    max_tokens: int | None = None
    json_schema: dict[str, Any] | None = None

    @property
    def is_raw(self) -> bool:
        """Whether the model behind is asked, without memory."""
        return self.model == RAW


def read_body(given: Mapping[str, Any]) -> ChatBody:
    """Read a request's JSON. Raises BadParameter; what is not understood is left out, as most servers do."""
    body: dict[str, Any] = clean_json(given)
    if body.get("n") not in (None, 1):
        raise BadParameter("n", "n is 1: there is one answer to a request.")
    if body.get("functions"):
        raise BadParameter("functions", "functions is not taken: send tools.")
    options = body.get("stream_options")
    return ChatBody(
        messages=_messages(body.get("messages")),
        model=RAW if body.get("model") == RAW else MODELS[0],
        user=_text(body, "user"),
        stream=_flag(body, "stream"),
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        tools=_tools(body),
        max_tokens=_count(body, "max_completion_tokens") or _count(body, "max_tokens"),
        json_schema=_schema(body.get("response_format")),
    )


def read_talk(messages: Sequence[Mapping[str, Any]]) -> Talk:
    """Read what is new: the user's messages after the assistant's last one. Raises BadParameter where nothing is."""
    system = [text for message in messages if message["role"] in _SYSTEM and (text := text_of(message).strip())]
    pairs: list[tuple[list[str], list[str]]] = []
    for message in messages:
        text = text_of(message).strip()
        if message["role"] == "user" and text:
            if not pairs or pairs[-1][1]:
                pairs.append(([], []))
            pairs[-1][0].append(text)
        elif message["role"] == "assistant" and text and not message.get("tool_calls"):
            if not pairs:
                pairs.append(([], []))
            pairs[-1][1].append(text)
    behind = _behind_the_users_last(messages)
    if behind is None:
        raise BadParameter("messages", "There is no message of the user's in messages: nothing is to be answered.")
    asked, following = behind
    if any(message["role"] == "assistant" and not message.get("tool_calls") for message in following):
        raise BadParameter("messages", "The last of the messages must be the user's: it is answered.")
    if not text_of(asked).strip():
        raise BadParameter("messages", _empty(asked))
    new = tuple(pairs.pop()[0])
    if sum(map(len, new)) > WORDS_LIMIT:
        raise BadParameter("messages", f"The user's last message is longer than {WORDS_LIMIT:,} characters.")
    read = tuple(Pair(tuple(said), "\n".join(replies)) for said, replies in pairs)
    runs_tools = any(message["role"] == "tool" for message in following)
    return Talk("\n\n".join(system), read, new, _has_other_parts(asked), runs_tools)


def text_of(message: Mapping[str, Any]) -> str:
    """Return a message's text; of a list of parts the text parts, one a line; "" for null."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part if isinstance(part, str) else part["text"] for part in content if _is_text(part))
    return content or ""


def _behind_the_users_last(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]] | None:
    for place in range(len(messages) - 1, -1, -1):
        if messages[place]["role"] == "user":
            return messages[place], messages[place + 1 :]
    return None


def _is_text(part: Any) -> bool:
    if isinstance(part, str):
        return True
    return isinstance(part, dict) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str)


def _has_other_parts(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and not all(map(_is_text, content))


def _empty(message: Mapping[str, Any]) -> str:
    if _has_other_parts(message):
        return "Pictures, sound and files are not understood here: send some text with them."
    return "The user's last message is empty: there is nothing to answer."


# --- fields ----------------------------------------------------------------------------------------------------------


def _messages(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not 0 < len(given) <= MESSAGES_LIMIT:
        raise BadParameter("messages", f"messages is a list of 1 to {MESSAGES_LIMIT} messages.")
    for place, message in enumerate(given):
        where = f"messages[{place}]"
        if not isinstance(message, dict):
            raise BadParameter(where, f"{where} must be an object with a role and a content.")
        if message.get("role") not in _ROLES:
            raise BadParameter(f"{where}.role", f"{where}.role must be one of {', '.join(_ROLES)}.")
        if not isinstance(message.get("content"), str | list | None):
            raise BadParameter(f"{where}.content", f"{where}.content must be text, a list of parts, or null.")
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list) or not all(map(_name, calls)):
            raise BadParameter(f"{where}.tool_calls", f"{where}.tool_calls must be a list of calls of functions.")
    return given


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tools that may be called: all, those that tool_choice names, or none."""
    given = body.get("tools")
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > TOOLS_LIMIT or not all(map(_name, given)):
        raise BadParameter("tools", f"tools is a list of at most {TOOLS_LIMIT} functions, each with its name.")
    choice = body.get("tool_choice")
    if choice == "none":
        return []
    named = _allowed(choice) if isinstance(choice, dict) else set()
    return [tool for tool in given if _name(tool) in named] or given


def _name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def _allowed(choice: Mapping[str, Any]) -> set[str]:
    allowed = choice.get("allowed_tools")
    listed = allowed.get("tools") if isinstance(allowed, dict) else None
    return {_name(tool) for tool in (listed if isinstance(listed, list) else [choice])}


def _schema(given: Any) -> dict[str, Any] | None:
    if not isinstance(given, dict):
        return None
    if given.get("type") == "json_object":
        return {"type": "object"}
    named = given.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    return schema if given.get("type") == "json_schema" and isinstance(schema, dict) else None


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if isinstance(value, dict):  # Open WebUI may send all it knows of its user, who has many chats
        return None
    if value is None or isinstance(value, str):
        return value or None
    raise BadParameter(name, f"{name} must be text.")


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise BadParameter(name, f"{name} must be true or false.")


def _count(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None or value == -1:  # -1 is what some clients mean by "no limit"
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadParameter(name, f"{name} must be a whole number, 1 or more.")
    return value
