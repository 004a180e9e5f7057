"""Asking a scripted server through OpenAIChat."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.ports import ChatAnswer, ChatRequest
from tests.scripted import Answer, Script, ScriptedServer, say

KEY = "sk-very-secret"
SEARCH = {"type": "function", "function": {"name": "search_memory", "parameters": {"type": "object"}}}
READ = {"type": "function", "function": {"name": "read_memory_source", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"keep": {"type": "boolean"}}}
HELLO = [{"role": "system", "content": "You are a robot. Answer in JSON."}, {"role": "user", "content": "こんにちは"}]
SAID = '{"reply": "はい", "emotion": "neutral", "action": "none"}'
YES = say("はい")
CALL_TEXT = '{"name": "search_memory", "arguments": {"query": "PC"}}'


@contextmanager
def chatting(script: Script, **options: Any) -> Iterator[tuple[OpenAIChat, ScriptedServer]]:
    """Give a model and the scripted server that it talks to."""
    with ScriptedServer(script) as server:
        chat = OpenAIChat(server.base_url, KEY, "qwen3", **options)
        try:
            yield chat, server
        finally:
            chat.close()


def ask(
    chat: OpenAIChat, *, messages: Any = HELLO, purpose: Any = "remember", s: float = 20, **more: Any
) -> ChatAnswer:
    return chat.complete(ChatRequest(messages=messages, purpose=purpose, timeout_s=s, **more))


def ask_with_tools(chat: OpenAIChat, **more: Any) -> ChatAnswer:
    return ask(chat, tools=[SEARCH, READ], **more)


def answer_to(answer: Answer, **more: Any) -> ChatAnswer:
    """Return what the adapter makes of one answer of a server, tools offered."""
    with chatting([answer]) as (chat, _):
        return ask_with_tools(chat, **more)


def sent_for(messages: Any, **more: Any) -> Any:
    """Return the messages that reach the server."""
    with chatting([YES]) as (chat, server):
        ask(chat, messages=messages, **more)
        return server.requests[0].json["messages"]


def bodies(server: ScriptedServer) -> list[Any]:
    return [request.json for request in server.requests]


def native(identifier: Any, name: Any, arguments: Any = "{}") -> dict[str, Any]:
    """Return a tool call as servers send it."""
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}
