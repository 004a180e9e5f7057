"""How a reply comes about: context → model ↔ tools → reply. One model call for small talk, three at most."""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from stackmem.brought import Brought, messages_with_own_tools, shown_before
from stackmem.context import build_messages, recent_turns
from stackmem.exceptions import ContentRefused, PermanentError, ToolsRefused, TransientError
from stackmem.models import Turn
from stackmem.persona import Persona, Who, render, tools
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest, ToolCall
from stackmem.reading import RawReply, read_json, read_reply
from stackmem.recall import Recall, ToolResult
from stackmem.speaking import Speech
from stackmem.text import clean_json, estimate_tokens
from stackmem.tool_mode import ToolMode, ToolUse

log = logging.getLogger(__name__)

ROUNDS = 3  # model calls of one turn at most; the last has no tools
CALLS = 4  # tool calls of one answer that are run
TOO_MANY = {"error": "Too many calls at once: this one was not run.", "candidates": [], "count": 0}


class Deadline:
    """The one deadline of a turn, from the request's arrival, handed from what hears to what thinks and speaks."""

    def __init__(self, seconds: float):
        self._began = time.monotonic()
        self._end = self._began + seconds

    def left_s(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def spent_ms(self) -> float:
        """Return the milliseconds since the request's arrival."""
        return (time.monotonic() - self._began) * 1000

    def moved(self, seconds: float) -> "Deadline":
        """Return one of the same request that ends later, or earlier where ``seconds`` is below 0."""
        other = Deadline(0)
        other._began, other._end = self._began, self._end + seconds
        return other


@dataclass
class Thought:
    """What the model said, the tools it used, what it cost."""

    speech: Speech
    reply: RawReply | None = None  # None: the model did not answer
    calls: list[tuple[ToolCall, ToolResult, float]] = field(default_factory=list)  # with milliseconds
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_ms: float = 0.0
    withheld: list[Turn] = field(default_factory=list)  # turns that the service refuses to read
    brought: Brought | None = None  # by a client that keeps the conversation itself


@dataclass(frozen=True)
class Thinker:
    """The model with its two tools."""

    chat: ChatModel
    recall: Recall
    who: Who
    zone: tzinfo
    chat_timeout_s: float
    prompt_tokens: int
    tool_use: ToolUse = field(default_factory=lambda: ToolUse("native"))

    @property
    def persona(self) -> Persona:
        """Who the robot is now."""
        return self.who.current()

    def think(self, turn: Turn, deadline: Deadline, speech: Speech, brought: Brought | None = None) -> Thought:
        """Return how the turn is answered; a model that is down is no error, its ``reply`` is None."""
        thought = Thought(speech, brought=brought)
        history: Sequence[Any] = () if brought is None else brought.history or ()
        if brought is None or brought.history is None:
            history = recent_turns(turn)
        try:
            self._answer_without_refused(turn, history, thought, deadline)
        except (TransientError, PermanentError) as exc:
            how = "broke off; the reply is what was said" if speech.said else "did not answer"
            log.warning("turn %s: the chat model %s: %s", turn.id, how, exc)
        return thought

    def _answer_without_refused(
        self, turn: Turn, history: Sequence[Turn], thought: Thought, deadline: Deadline
    ) -> None:
        """Answer; where the service refuses to read a turn, find it, so that it leaves the context (row 22).

        What was sent before was read then: new are the last reply and the words now. With neither at fault it is
        something older, and all of it leaves.
        """
        shown = [history, history[:-1], history[:0]][: 1 + min(2, len(history))]
        for left in shown:
            try:
                self._answer(turn, left, thought, deadline)
            except ContentRefused as exc:
                if thought.calls or thought.speech.said:
                    raise  # it is in what the tools found, or in the answer itself
                log.warning("turn %s: %s", turn.id, exc)
            else:
                thought.withheld = list(history[len(left) :])
                return
        thought.withheld = [turn]

    def _answer(self, turn: Turn, history: Sequence[Turn], thought: Thought, deadline: Deadline) -> None:
        if thought.brought and thought.brought.own_tools:
            self._by_own_tools(turn, thought.brought, thought, deadline)
            return
        try:
            self._answer_as(self.tool_use.mode, turn, history, thought, deadline)
        except ToolsRefused as exc:
            if not self.tool_use.refused():
                raise
            log.warning("%s It is asked in JSON from now on.", exc)
            self._answer_as("json", turn, history, thought, deadline)

    def _answer_as(
        self, mode: ToolMode, turn: Turn, history: Sequence[Turn], thought: Thought, deadline: Deadline
    ) -> None:
        before = shown_before(thought.brought, self.persona.language, self.prompt_tokens)
        budget = self.prompt_tokens - (estimate_tokens(before) if before else 0)
        messages = build_messages(turn, history, self.persona, turn.at, self.zone, budget, mode)
        messages[0]["content"] = before + messages[0]["content"]
        if mode == "json":
            self._by_json(turn, messages, thought, deadline)
        else:
            self._by_tools(turn, messages, thought, deadline)
            self.tool_use.answered(thought.reply.reply if thought.reply else "", called=bool(thought.calls))

    def _by_tools(self, turn: Turn, messages: list[dict[str, Any]], thought: Thought, deadline: Deadline) -> None:
        for left in range(ROUNDS - 1, -1, -1):
            offered = tools(self.persona.language) if left > 0 else []
            answer = self._ask(messages, thought, deadline, offered=offered)
            if not answer.tool_calls or left == 0:
                thought.reply = read_reply(answer.content)
                return
            messages.append(_assistant_message(answer))
            for number, call in enumerate(answer.tool_calls):
                content = self._run(turn, call, thought, deadline).content if number < CALLS else TOO_MANY
                messages.append({"role": "tool", "tool_call_id": call.id, "content": _json(content)})

    def _by_json(self, turn: Turn, messages: list[dict[str, Any]], thought: Thought, deadline: Deadline) -> None:
        """The same for models that call no tools: the first answer says whether to search, in one constrained JSON."""
        answer = self._ask(messages, thought, deadline, schema=_SEARCH_OR_REPLY)
        value = read_json(answer.content)
        wanted = value.get("search") if isinstance(value, dict) else None
        if isinstance(wanted, str):
            wanted = {"query": wanted}
        if not isinstance(wanted, dict) or not str(wanted.get("query") or "").strip():
            thought.reply = read_reply(answer.content)
            return
        result = self._run(turn, ToolCall("json", "search_memory", clean_json(wanted)), thought, deadline)
        found = render(f"found.{self.persona.language}.md", result=_json(result.content), text=turn.user[:500])
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": found}]
        thought.reply = read_reply(self._ask(messages, thought, deadline, schema=_REPLY).content)

    def _by_own_tools(self, turn: Turn, brought: Brought, thought: Thought, deadline: Deadline) -> None:
        """Ask once with the client's tools: it runs them itself and asks again with what they gave."""
        messages = messages_with_own_tools(turn, brought, self.persona, self.zone, self.prompt_tokens)
        answer = self._ask(messages, thought, deadline, offered=list(brought.tools))
        brought.calls = answer.tool_calls
        thought.reply = read_reply(answer.content)

    def _ask(
        self,
        messages: list[dict[str, Any]],
        thought: Thought,
        deadline: Deadline,
        *,
        offered: list[dict[str, Any]] | None = None,
        schema: dict[str, Any] | None = None,
    ) -> ChatAnswer:
        left = deadline.left_s()
        if left <= 0:
            raise TransientError("The turn's time is over.")
        started = time.perf_counter()
        thought.model_calls += 1
        request = ChatRequest(messages, "turn", min(self.chat_timeout_s, left), tools=offered or (), json_schema=schema)
        try:
            answer = thought.speech.ask(self.chat, request, after_search=schema is _SEARCH_OR_REPLY)
        finally:
            thought.model_ms += (time.perf_counter() - started) * 1000
        thought.prompt_tokens += answer.prompt_tokens
        thought.completion_tokens += answer.completion_tokens
        return answer

    def _run(self, turn: Turn, call: ToolCall, thought: Thought, deadline: Deadline) -> ToolResult:
        """Run one tool call; an identical one is answered from the first result.

        An embedder that is still loading is waited for while half of the time is left: the model must answer too.
        """
        for earlier, result, _ in thought.calls:
            if (earlier.name, earlier.arguments) == (call.name, call.arguments):
                return result
        started = time.perf_counter()
        wait_s = deadline.left_s() / 2
        result = self.recall.call(turn.owner, turn.session_id, call.name, call.arguments, wait_s)
        thought.calls.append((call, result, (time.perf_counter() - started) * 1000))
        return result


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _assistant_message(answer: ChatAnswer) -> dict[str, Any]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _json(call.arguments or {})}}
        for call in answer.tool_calls
    ]
    return {"role": "assistant", "content": answer.content, "tool_calls": calls}


_WORDS: dict[str, Any] = {
    "reply": {"type": "string"},
    "emotion": {"type": "string"},
    "action": {"type": "string"},
}
_REPLY: dict[str, Any] = {"type": "object", "properties": _WORDS, "required": ["reply", "emotion", "action"]}
_SEARCH_OR_REPLY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "search": {
            "anyOf": [
                {"type": "null"},
                {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
            ]
        },
        **_WORDS,
    },
    "required": ["search", "reply", "emotion", "action"],
}
