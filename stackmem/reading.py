"""Reading what a chat model wrote: thinking, JSON, tool calls and replies. Pure, never raises, linear in the text.

"Row 12" and the like are the rows of the table of model servers' habits (docs/chat-models.md).
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from stackmem.lenient_json import BLOCK_LIMIT, FENCE, decode_at, find_json, some
from stackmem.text import clean, clean_json, depth_within, fold

THINK_TAG = re.compile(r"<(/?)think(?:ing)?\s{0,8}>", re.IGNORECASE)
_JSON_ALONE = re.compile(r"""\[?\s*+\{\s*+(?:["'“}]|\w{1,64}\s*+:)""")
_CALL_TAG = re.compile(r"<tool_call>(.*?)(?:</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)
_FUNCTION_TAG = re.compile(
    r"""<function(?:=|\s{1,4}name=)["']?([\w.-]{1,64})["']?\s{0,4}>(.*?)(?:</function>|(?=<function[=\s])|\Z)""",
    re.DOTALL,
)
_PARAMETER_TAG = re.compile(
    r"""<parameter(?:=|\s{1,4}name=)["']?([\w.-]{1,64})["']?\s{0,4}>(.*?)(?:</parameter>|(?=<parameter[=\s])|\Z)""",
    re.DOTALL,
)
_NAME_IN_BROKEN_JSON = re.compile(r'"name"\s{0,8}:\s{0,8}"([^"]{1,64})"')
_NEXT_VALUE = re.compile(r"[\s,;]*+(?=[\[{])")
_REPLY_KEYS = ("reply", "response", "answer", "text", "message", "content")

DEPTH_LIMIT = 60  # levels of JSON

Arguments = dict[str, Any] | None


@dataclass(frozen=True)
class RawReply:
    """A reply as the model gave it. ``emotion`` and ``action`` are unchecked ids, "" where absent."""

    reply: str
    emotion: str
    action: str


def strip_thinking(text: str) -> str:
    """Return the text without its thinking: closed, unclosed, nested, or closed but never opened (row 15)."""
    kept: list[str] = []
    inside, position = False, 0
    for tag in THINK_TAG.finditer(text):
        if tag[1]:  # a closing tag that nothing opened ends thinking that the template opened
            inside, position = False, tag.end()
        elif not inside:
            kept.append(text[position : tag.start()])
            inside, position = True, tag.end()
    if not inside:
        kept.append(text[position:])
    return "".join(kept).strip()


# --- JSON ------------------------------------------------------------------------------------------------------------


def read_json(text: str) -> Any | None:
    """Return the JSON value in the text, clean, or None where there is nothing like JSON; see ``find_json``."""
    return _cleaned(find_json(strip_thinking(text)))


def _cleaned(value: Any) -> Any | None:
    # Nested deeper than that it is no answer to anything, and would end whoever walks it later.
    return clean_json(value) if depth_within(value, DEPTH_LIMIT) else None


# --- tool calls ------------------------------------------------------------------------------------------------------


def read_arguments(raw: Any) -> Arguments:
    """Return a call's arguments: {} for none at all (row 10), repaired where broken (row 9), None where unreadable."""
    if raw is None or raw == "":
        return {}
    if isinstance(raw, str):
        if raw.strip() in ("", "null"):
            return {}
        raw = read_json(raw)
    return _cleaned(raw) if isinstance(raw, dict) else None


def offered_name(name: Any, offered_names: Collection[str]) -> str | None:
    """Return the offered tool meant by a name: itself, or one that differs in width, case, white space or prefix."""
    if not isinstance(name, str) or name in offered_names:
        return name if isinstance(name, str) else None
    key = fold(name).strip().strip("\"'`").removeprefix("functions.").strip()
    return next((offered for offered in offered_names if fold(offered) == key), None)


def read_tool_calls(content: str, offered_names: Collection[str]) -> tuple[str, list[tuple[str, Arguments]]]:
    """Return the content without tool calls, and the calls found in it, in order, as (offered name, arguments).

    Read are ``<tool_call>`` blocks (row 11), a bare or fenced JSON object or list (row 12), ``<function=…>`` (row 13).
    A call inside thinking counts for nothing (row 15). A marked call of a tool that was not offered leaves the content
    too; bare JSON stays there unless it names an offered tool. Arguments are None where they cannot be read.
    """
    remaining, blocks = _split_marked_calls(strip_thinking(content))
    calls = [call for block in blocks for call in _calls_in_block(block)]
    if not blocks:
        calls = [call for value in _bare_values(remaining) for call in _calls_in_value(value)]
    named = [(name, arguments) for raw, arguments in calls if (name := offered_name(raw, offered_names))]
    return ("" if named and not blocks else remaining), named


def _split_marked_calls(content: str) -> tuple[str, list[str]]:
    blocks = [tag[1] for tag in some(_CALL_TAG.finditer(content))]
    content = _CALL_TAG.sub("", content)
    blocks += [tag[0] for tag in some(_FUNCTION_TAG.finditer(content))]
    return _FUNCTION_TAG.sub("", content).strip(), blocks


def _calls_in_block(block: str) -> Iterator[tuple[Any, Arguments]]:
    if functions := list(some(_FUNCTION_TAG.finditer(block))):
        for function in functions:
            yield function[1], _xml_arguments(function[2])
        return
    found = [call for value in _bare_values(block) for call in _calls_in_value(value)]
    if not found and (name := _NAME_IN_BROKEN_JSON.search(block)):
        found = [(name[1], None)]
    yield from found


def _xml_arguments(body: str) -> Arguments:
    parameters = list(some(_PARAMETER_TAG.finditer(body)))
    if not parameters:
        return read_arguments(body.strip())
    values = ((parameter[1], parameter[2].strip()) for parameter in parameters)
    return {name: (read_json(value) if value.startswith(("[", "{")) else clean(value)) for name, value in values}


def _bare_values(text: str) -> Iterator[Any]:
    """Yield the JSON values of a text that is nothing but JSON values, one after the other; else its one value."""
    text = text.strip()
    values: list[Any] = []
    position = 0
    while len(values) < BLOCK_LIMIT and (opening := _NEXT_VALUE.match(text, position)):
        decoded = decode_at(text, opening.end())
        if decoded is None:
            break
        values.append(_cleaned(decoded[0]))
        position = decoded[1]
    yield from values if len(values) > 1 else [read_json(text)]


def _calls_in_value(value: Any) -> Iterator[tuple[Any, Arguments]]:
    """Yield (name, arguments) of each thing in a JSON value that is shaped like a tool call."""
    if isinstance(value, list):
        for item in value[:BLOCK_LIMIT]:
            yield from _calls_in_value(item) if isinstance(item, dict) else ()
    elif isinstance(value, dict):
        if isinstance(value.get("tool_calls"), list):
            yield from _calls_in_value(value["tool_calls"])
        elif isinstance(value.get("function"), dict):
            yield from _calls_in_value({**value["function"], "function": None})
        elif isinstance(value.get("name"), str) and (key := _arguments_key(value)):
            yield value["name"], read_arguments(value[key])


def _arguments_key(value: dict[str, Any]) -> str | None:
    return next((key for key in ("arguments", "parameters") if key in value), None)


# --- replies ---------------------------------------------------------------------------------------------------------


def read_reply(content: str) -> RawReply:
    """Return the reply in a model's answer, whatever its shape (row 25); ``reply`` is "" where nothing can be spoken.

    Plain text is the reply itself. What looks like a tool call is not spoken.
    """
    text, _ = _split_marked_calls(strip_thinking(clean(content)))
    value = read_json(text)
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), None)
    if isinstance(value, dict) and any(_calls_in_value(value)):
        return RawReply("", "", "")
    if isinstance(value, dict) and ("reply" in value or _is_json_alone(text)):
        return _reply_of(value)
    if isinstance(value, str):  # the text in quotation marks
        return RawReply(value.strip(), "", "")
    return RawReply("" if _is_json_alone(text) else _plain(text), "", "")


def _is_json_alone(text: str) -> bool:
    return bool(_JSON_ALONE.match(_plain(text)))


def _plain(text: str) -> str:
    fence = FENCE.fullmatch(text)
    return (fence[1] if fence else text).strip()


def _reply_of(value: dict[str, Any]) -> RawReply:
    reply = next((words for key in _REPLY_KEYS if (words := _words(value.get(key)))), "")
    if reply.startswith(("{", "[", "```")):  # an answer, or a tool call, inside the answer
        inner = read_json(reply)
        if isinstance(inner, dict | list) and any(_calls_in_value(inner)):
            return RawReply("", "", "")
        if isinstance(inner, dict) and "reply" in inner:
            value = value | inner
            reply = _words(inner["reply"])
    return RawReply(reply, _identifier(value.get("emotion")), _identifier(value.get("action")))


def _words(value: Any) -> str:
    """Return what can be spoken of a value of any type."""
    if isinstance(value, list):
        return "".join(_words(item) for item in value if isinstance(item, str)).strip()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else ""


def _identifier(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
