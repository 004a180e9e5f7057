"""The live turn: search, answer from a search or from the session, or converse in one honest sentence."""

import json
from collections.abc import Sequence
from typing import Any

from stackmem.adapters.offline.asking import asks_for_the_past, query_of
from stackmem.adapters.offline.replies import Reply, converse
from stackmem.adapters.offline.telling import tell, tell_from_session
from stackmem.adapters.offline.words import as_text, read_object
from stackmem.ports import ChatAnswer, ToolCall


def turn(messages: Sequence[Any], tools: Sequence[Any]) -> ChatAnswer:
    """Return the answer of one live turn: a call of search_memory, or a reply as JSON."""
    said = [message for message in messages if isinstance(message, dict)]
    asked = max((index for index, message in enumerate(said) if message.get("role") == "user"), default=-1)
    question = as_text(said[asked].get("content")) if asked >= 0 else ""
    results = [read_object(message.get("content")) for message in said[asked + 1 :] if message.get("role") == "tool"]
    if results:
        return _answer(tell(question, results))
    if not asks_for_the_past(question):
        return _answer(converse(question))
    earlier = [as_text(message.get("content")) for message in said[: max(asked, 0)] if message.get("role") == "user"]
    known = tell_from_session(question, earlier)
    if known is not None:
        return _answer(known)
    if _offered(tools):
        return ChatAnswer("", (ToolCall("call_offline_1", "search_memory", {"query": query_of(question)}),))
    return _answer(tell(question, []))


def _offered(tools: Sequence[Any]) -> bool:
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
    return any(isinstance(function, dict) and function.get("name") == "search_memory" for function in functions)


def _answer(reply: Reply) -> ChatAnswer:
    content = {"reply": reply.text, "emotion": reply.emotion, "action": reply.action}
    return ChatAnswer(json.dumps(content, ensure_ascii=False))
