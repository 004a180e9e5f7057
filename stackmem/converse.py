"""LIVE: one turn. Context, model and tools, reply, stored; the robot is answered after the commit."""

import hashlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import Any

from stackmem import sessions
from stackmem.clock import AHEAD
from stackmem.context import build_messages, recent_turns
from stackmem.database import transaction
from stackmem.exceptions import Conflict, InvalidInput, PermanentError, TransientError
from stackmem.ids import turn_uid
from stackmem.models import Session, ToolTrace, Turn
from stackmem.persona import Persona, tools
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest, Clock, Hint, Queue, ToolCall
from stackmem.reading import RawReply, read_reply
from stackmem.recall import Recall, ToolResult
from stackmem.text import clean, clean_json, cut_at_sentence

log = logging.getLogger(__name__)

ROUNDS = 3  # model calls of one turn at most; the last has no tools
LOOK_AFTER = 6  # turns not yet looked at
POLL = 0.1  # seconds between looks at a turn that another request is answering


@dataclass(frozen=True)
class Said:
    """What a client sent: the words, and whose they are."""

    owner: str
    text: str
    session_id: str | None = None
    device: str | None = None
    at: datetime | None = None
    key: str | None = None  # a retry with the same key gets the stored answer


@dataclass
class Thought:
    """How a reply came about: what the model said, the tools it used, what it cost."""

    reply: RawReply | None = None  # None: the model did not answer
    calls: list[tuple[ToolCall, ToolResult, float]] = field(default_factory=list)
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_ms: float = 0.0


class Deadline:
    """The one deadline of a turn, from the request's arrival."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())


@dataclass(frozen=True)
class Conversation:
    """The live turn over its parts."""

    chat: ChatModel
    recall: Recall
    persona: Persona
    clock: Clock
    queue: Queue
    zone: tzinfo
    chat_timeout_s: float
    turn_timeout_s: float
    prompt_tokens: int

    def turn(self, said: Said) -> Turn:
        """Store the words, answer them, store the answer; return the stored turn.

        Raises InvalidInput for empty words; a model that is down is no error: the reply is a fallback line.
        """
        started = time.perf_counter()
        deadline = Deadline(self.turn_timeout_s)
        turn, is_new = self._open(said)
        if not is_new:
            turn = self._answered_elsewhere(turn, deadline)
            if turn.state != "open":
                return turn
        thought = self._think(turn, deadline)
        return self._store(turn, thought, started)

    def _open(self, said: Said) -> tuple[Turn, bool]:
        """Store the user's words as an open turn; or find the turn stored under the same key."""
        words, now = clean(said.text), self.clock.now()
        if not words.strip():
            raise InvalidInput("The text is empty: there is nothing to answer.")
        if said.at and said.at > now + AHEAD:
            raise InvalidInput("`at` lies in the future: a turn is at most 5 minutes ahead of the server's clock.")
        key = _key(said)
        with transaction():
            known = Turn.get_or_none(Turn.key == key) if key else None
            if known is not None:
                return known, False
            session = sessions.session_for_turn(said.owner, said.session_id, said.device, now)
            ordinal = sessions.next_ordinal(session)
            Session.update(received_at=now).where(Session.id == session.id).execute()
            uid = turn_uid(said.owner, session.name, session.seq, ordinal, words)
            turn = Turn.create(
                uid=uid, session=session, ordinal=ordinal, owner=said.owner, at=said.at or now, received_at=now,
                user=words, state="open", key=key,
            )  # fmt: skip
        return turn, True

    def _answered_elsewhere(self, turn: Turn, deadline: Deadline) -> Turn:
        """Wait while another request answers the same turn; take it over when that one is dead."""
        while turn.state == "open":
            if self.clock.now() > turn.received_at + timedelta(seconds=self.turn_timeout_s):
                return turn
            if deadline.left_s() <= 0:
                raise Conflict("This turn is still being answered; ask again with the same key.")
            time.sleep(POLL)
            turn = Turn.get_by_id(turn.id)
        return turn

    def _think(self, turn: Turn, deadline: Deadline) -> Thought:
        history = recent_turns(turn)
        messages = build_messages(turn, history, self.persona, turn.at, self.zone, self.prompt_tokens)
        thought, known = Thought(), dict[tuple[str, str], ToolResult]()
        try:
            for left in range(ROUNDS - 1, -1, -1):
                answer = self._ask(messages, thought, deadline, with_tools=left > 0)
                if not answer.tool_calls or left == 0:
                    thought.reply = read_reply(answer.content)
                    break
                messages.append(_assistant_message(answer))
                for call in answer.tool_calls:
                    result = self._run(turn, call, known, thought)
                    messages.append(_tool_message(call, result))
        except (TransientError, PermanentError) as exc:
            log.warning("turn %s: the chat model did not answer: %s", turn.id, exc)
        return thought

    def _ask(
        self, messages: list[dict[str, Any]], thought: Thought, deadline: Deadline, with_tools: bool
    ) -> ChatAnswer:
        left = deadline.left_s()
        if left <= 0:
            raise TransientError("The turn's time is over.")
        started = time.perf_counter()
        thought.model_calls += 1
        try:
            answer = self.chat.complete(
                ChatRequest(
                    messages=messages,
                    purpose="turn",
                    timeout_s=min(self.chat_timeout_s, left),
                    tools=tools(self.persona.language) if with_tools else (),
                )
            )
        finally:
            thought.model_ms += (time.perf_counter() - started) * 1000
        thought.prompt_tokens += answer.prompt_tokens
        thought.completion_tokens += answer.completion_tokens
        return answer

    def _run(
        self, turn: Turn, call: ToolCall, known: dict[tuple[str, str], ToolResult], thought: Thought
    ) -> ToolResult:
        """Run one tool call; an identical one is answered from the first result."""
        same = (call.name, repr(call.arguments))
        started = time.perf_counter()
        if same not in known:
            known[same] = self.recall.call(turn.owner, turn.session_id, call.name, call.arguments)
            thought.calls.append((call, known[same], (time.perf_counter() - started) * 1000))
        return known[same]

    def _store(self, turn: Turn, thought: Thought, started: float) -> Turn:
        """Store reply, state and trace in one transaction; then hint that there may be something to remember."""
        raw = thought.reply
        reply = cut_at_sentence(clean(raw.reply).strip(), self.persona.reply_characters * 3) if raw else ""
        degraded = not reply
        turn.reply = reply or self.persona.fallback_line(turn.id)
        turn.emotion = _known(raw.emotion if raw else "", self.persona.emotions, "neutral")
        turn.action = _known(raw.action if raw else "", self.persona.actions, "none")
        turn.degraded, turn.model, turn.state = degraded, self.chat.name, "pending"
        turn.searched = any(call.name == "search_memory" for call, _, _ in thought.calls)
        turn.memory_ids = _returned_ids(thought)
        turn.model_calls = thought.model_calls
        turn.tokens = {"prompt": thought.prompt_tokens, "completion": thought.completion_tokens}
        turn.durations_ms = {
            "model": round(thought.model_ms, 3),
            "embed": round(sum(result.embed_ms for _, result, _ in thought.calls), 3),
            "search": round(sum(result.search_ms for _, result, _ in thought.calls), 3),
            "total": round((time.perf_counter() - started) * 1000, 3),
        }
        with transaction():
            fresh = Turn.get_by_id(turn.id)
            if fresh.state != "open" and fresh.reply:
                return fresh  # another request took it over and was first
            turn.save()
            for ordinal, (call, result, spent_ms) in enumerate(thought.calls):
                _trace(turn, ordinal, call, result, spent_ms)
            hints = due_looks(turn, self.clock.now())
        for hint in hints:
            self.queue.put(hint)
        return turn


def due_looks(turn: Turn, now: datetime) -> list[Hint]:
    """Return hints for the looks that this turn makes due, and mark them as enqueued."""
    waiting = Turn.select().where(
        Turn.session == turn.session_id, Turn.state == "pending", Turn.id > turn.session.looked_to
    )
    due = [turn.session_id] if waiting.count() >= LOOK_AFTER else []
    if turn.ordinal == 1:
        others = Session.select(Session.id).where(Session.owner == turn.owner, Session.look_due)
        due += [row.id for row in others if row.id != turn.session_id]
    if due:
        Session.update(enqueued_at=now).where(Session.id.in_(due)).execute()
    return [Hint("remember", session_id) for session_id in due]


def give_up_open_turns(now: datetime, older_than: timedelta, fallback: Callable[[int], str]) -> int:
    """Make turns whose request died ``pending``, answered by a fallback line; return how many."""
    dead = list(Turn.select().where(Turn.state == "open", Turn.received_at < now - older_than))
    for turn in dead:
        Turn.update(state="pending", degraded=True, reply=fallback(turn.id)).where(
            Turn.id == turn.id, Turn.state == "open"
        ).execute()
    return len(dead)


def _key(said: Said) -> str | None:
    if not said.key:
        return None
    if len(said.key) > 200:
        raise InvalidInput("An Idempotency-Key has at most 200 characters.")
    # Two robots of one owner may count from 1 alike.
    return hashlib.sha256("\0".join((said.owner, said.device or "", clean(said.key))).encode()).hexdigest()


def _known(given: str, ids: list[str], default: str) -> str:
    return given if given in ids else default


def _returned_ids(thought: Thought) -> list[str]:
    ids = [hit["memory_id"] for _, result, _ in thought.calls for hit in result.hits if hit["memory_id"]]
    return list(dict.fromkeys(ids))


def _assistant_message(answer: ChatAnswer) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments or {}, ensure_ascii=False)},
        }
        for call in answer.tool_calls
    ]
    return {"role": "assistant", "content": answer.content, "tool_calls": calls}


def _tool_message(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result.content, ensure_ascii=False)}


def _trace(turn: Turn, ordinal: int, call: ToolCall, result: ToolResult, spent_ms: float) -> None:
    ToolTrace.create(
        turn=turn,
        ordinal=ordinal,
        tool=clean(call.name),
        arguments=clean_json(call.arguments),
        hits=result.hits,
        relaxed=result.relaxed,
        note=result.note,
        duration_ms=round(spent_ms, 3),
    )
