"""Clients that keep their conversation themselves and speak OpenAI's chat completions: any chat front-end."""

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stackmem.brought import Brought, Exchanged
from stackmem.chat_body import ChatBody, Pair, Talk, read_talk, text_of
from stackmem.converse import Conversation, Said
from stackmem.exceptions import BadParameter
from stackmem.front_ends import is_task, unwrap
from stackmem.models import Turn
from stackmem.placing import PREFIX, Asking, Place, find_place
from stackmem.ports import ChatAnswer, ChatRequest, ToolCall
from stackmem.reading import strip_thinking
from stackmem.sessions import NAME_LIMIT
from stackmem.speaking import OnSentence
from stackmem.text import estimate_tokens

PLAIN_TIMEOUT_S = 120.0  # of what is only passed on: no robot stands waiting
SPLIT = 4  # of several new messages of the user's, so many may be known already
# A request sent twice in the same moment must find the turn that the first one began (within this process).
_PLACING = threading.Lock()
_TAG_LENGTH = 12  # characters of the longest tag of thinking
_NOT_SEEN = {
    "ja": "（いまの発言には画像や音声などが付いていますが、あなたには見聞きできません。聞かれたら正直に言います。）",
    "en": "(A picture, sound or file came with these words. You cannot see or hear it; say so honestly when asked.)",
}


@dataclass(frozen=True)
class Visit:
    """One request, and whose it is. ``session`` is what a header says, else None."""

    owner: str
    body: ChatBody
    session: str | None = None
    device: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Answered:
    """The answer: text that is never None, or calls of the client's own tools; ``turn`` where one was stored."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_cut: bool = False  # it reached the client's own limit of tokens
    turn: Turn | None = None


@dataclass(frozen=True)
class Visiting:
    """The same live turn as a robot's, for clients that send their whole conversation."""

    conversation: Conversation

    def answer(self, visit: Visit, on_text: OnSentence | None = None) -> Answered:
        """Answer a request; ``on_text`` gets the text in pieces, joined the answer's.

        ``stackmem-raw`` and the tasks of front-ends are passed on to the model, and nothing of them is stored; they
        raise what the model raises. Raises BadParameter where there is nothing to answer.
        """
        if visit.body.is_raw:
            return self._passed_on(visit.body, on_text)
        talk = read_talk(visit.body.messages)
        if is_task(talk):
            return self._passed_on(replace(visit.body, tools=()), on_text)
        return self._turn(visit, talk, on_text)

    # --- a turn ---

    def _turn(self, visit: Visit, talk: Talk, on_text: OnSentence | None) -> Answered:
        name = visit.session or visit.body.user
        if name is not None and len(name) > NAME_LIMIT:
            raise BadParameter("user", f"A session's name (X-Session-Id, or user) has 1 to {NAME_LIMIT} characters.")
        deadline = self.conversation.deadline()
        with _PLACING:
            said = self._said(visit, talk, name)
            turn, is_new = self.conversation.begin(said)
        turn = self.conversation.go_on(said, turn, is_new, on_text, deadline)
        brought = said.brought or Brought()
        text = "" if brought.calls else turn.reply
        shown, spent = turn.tokens.get("prompt", 0), turn.tokens.get("completion", 0)
        return Answered(text, brought.calls, shown or _tokens(visit.body), spent or estimate_tokens(text), turn=turn)

    def _said(self, visit: Visit, talk: Talk, name: str | None) -> Said:
        talk, around = _unwrapped(talk)
        talk, place = self._placed(visit, talk, name)
        return Said(
            owner=visit.owner,
            text=talk.words,
            session_id=place.session or PREFIX + secrets.token_hex(6),
            device=visit.device,
            key=visit.key,
            brought=self._brought(visit.body, talk, place, around),
            again=place.again.id if place.again else None,
        )

    def _placed(self, visit: Visit, talk: Talk, name: str | None) -> tuple[Talk, Place]:
        """Return where the talk goes on; of several new messages the first may be a turn whose reply was not taken."""
        asking = Asking(visit.owner, visit.device, talk.pairs, talk.words, self.conversation.clock.now())
        for first in range(min(len(talk.new) - 1, SPLIT), 0, -1):
            pairs = (*talk.pairs, Pair(talk.new[:first], ""))
            place = find_place(replace(asking, pairs=pairs, words="\n".join(talk.new[first:])), name)
            if place.is_sure:
                return replace(talk, pairs=pairs, new=talk.new[first:]), place
        return talk, find_place(asking, name)

    def _brought(self, body: ChatBody, talk: Talk, place: Place, around: str) -> Brought:
        language = self.conversation.thinker.persona.language
        notes = [talk.system, around, _NOT_SEEN[language] if talk.has_pictures else ""]
        brought = Brought("\n\n".join(note for note in notes if note))
        if talk.pairs:
            brought.history = _history(talk.pairs, place)
        if body.tools or talk.runs_tools:
            brought.own_tools, brought.tools = True, body.tools
            brought.messages = [_seen(one) for one in body.messages if one["role"] not in ("system", "developer")]
        return brought

    # --- what is only passed on ---

    def _passed_on(self, body: ChatBody, on_text: OnSentence | None) -> Answered:
        request = ChatRequest(
            body.messages,
            "plain",
            PLAIN_TIMEOUT_S,
            tools=body.tools,
            json_schema=None if body.tools else body.json_schema,
            max_tokens=body.max_tokens,
        )
        chat = self.conversation.thinker.chat
        # With tools, a text may turn out to be a call: nothing of it leaves before it is whole.
        streamed = on_text is not None and not body.tools
        text, said = "", ""
        answer = ChatAnswer("")
        for item in chat.stream(request) if streamed else [chat.complete(request)]:
            if isinstance(item, ChatAnswer):
                answer = item
                continue
            text += item
            whole = _without_half_a_tag(text)
            if on_text is not None and len(whole) > len(said) and whole.startswith(said):
                on_text(whole[len(said) :])
                said = whole
        content = "" if answer.tool_calls else answer.content
        if not content.startswith(said):  # it was thinking that nothing opened: what left cannot be taken back
            content = f"{said}\n\n{content}"
        if on_text is not None and len(content) > len(said):
            on_text(content[len(said) :])
        is_cut = body.max_tokens is not None and 0 < body.max_tokens <= answer.completion_tokens
        shown, spent = answer.prompt_tokens or _tokens(body), answer.completion_tokens or estimate_tokens(content)
        return Answered(content, answer.tool_calls, shown, spent, is_cut)


def _tokens(body: ChatBody) -> int:
    """Return about how many tokens a request has, for where the model's server does not tell."""
    return sum(estimate_tokens(text_of(message)) for message in body.messages)


def _seen(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what the robot cannot see or hear."""
    return message | {"content": text_of(message)}


def _unwrapped(talk: Talk) -> tuple[Talk, str]:
    """Take off what a front-end put around the newest message."""
    said, around = unwrap(talk.new[-1])
    return (replace(talk, new=(*talk.new[:-1], said)), around) if around else (talk, "")


def _history(pairs: Sequence[Pair], place: Place) -> list[Exchanged]:
    """Return the client's exchanges, with what is stored of them; those that the chat service refused are left out."""
    history: list[Exchanged] = []
    for position, pair in enumerate(pairs):
        turn: Any = place.stored.get(position)
        if turn is None:
            history.append(Exchanged(pair.user, pair.reply))
        elif not turn.withheld:
            history.append(Exchanged(pair.user, turn.reply, turn.emotion, turn.action, turn.id))
    return history


def _without_half_a_tag(text: str) -> str:
    """Return what of a growing text can be shown: no thinking, and nothing that may become its beginning."""
    opening = text.rfind("<")
    if opening >= max(0, len(text) - _TAG_LENGTH) and ">" not in text[opening:]:
        text = text[:opening]
    return strip_thinking(text)
