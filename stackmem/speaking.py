"""Speech before the whole answer is there: sentences leave the stream as soon as they are whole.

What has been handed over cannot be taken back. So nothing leaves before the reply's own text has begun, and what left
is what is stored.
"""

import json
import logging
import re
from collections.abc import Callable

from stackmem.ports import ChatAnswer, ChatModel, ChatRequest
from stackmem.reading import THINK_TAG
from stackmem.sentences import end_of_sentence, sentences
from stackmem.text import clean, cut_at_sentence

log = logging.getLogger(__name__)

OnSentence = Callable[[str], None]

_OPENING_LIMIT = 500  # characters before the reply's text; more is no reply of ours
_TAG_LENGTH = 24  # characters of the longest tag, and some
_HIDDEN = re.compile(r"</?think|<tool_call|<function", re.IGNORECASE)  # is cut out of replies, with what follows
_OTHER_KEY = r'"(?:emotion|action)"\s*+:\s*+"[^"\\<]*+"\s*+,\s*+'
_NO_SEARCH = r'(?P<no_search>"search"\s*+:\s*+null\s*+,\s*+)'
_OPENING = re.compile(rf'(?:```(?:json)?\s*+)?\{{\s*+(?:{_OTHER_KEY}|{_NO_SEARCH})*+"reply"\s*+:\s*+"')
# Whole characters and escapes of a JSON string. Half an escape waits; what is no JSON (a raw new line) ends the matter.
_HEX = "[0-9A-Fa-f]"
_CHARACTERS = re.compile(
    r'(?:[^"\\\x00-\x1f]'
    r'|\\["\\/bfnrt]'
    rf"|\\u(?![Dd][89A-Fa-f]){_HEX}{{4}}"
    rf"|\\u[Dd][89ABab]{_HEX}{{2}}\\u[Dd][C-Fc-f]{_HEX}{{2}})++"
)
_END_OF_STRING = re.compile(r'"\s*+(?:\}|,\s*+"\w++"\s*+:)')  # not a quotation mark that was not escaped


class ReplyDecoder:
    """Reads the reply's text out of one answer while it comes: ``{"reply": "…", …}``, fenced, or after thinking.

    Nothing leaves an answer of another shape. Plain text is among them: it may turn out to be thinking (``</think>``
    without a beginning), or what a model says before it calls a tool. At most ``limit`` characters leave.
    ``after_search``: a reply counts only behind ``"search": null``.
    """

    def __init__(self, limit: int, *, after_search: bool = False):
        self._limit, self._after_search = limit, after_search
        self._held = ""  # what came and is not read yet
        self._is_inside = self._is_thinking = self._is_closed = False
        self._is_odd = False  # other text came first; only the end of thinking shows that it was none
        self._text, self._taken = "", 0

    def feed(self, piece: str) -> list[str]:
        """Take a piece of the answer; return the sentences that are whole now, with the white space before them."""
        if self._is_closed or len(self._text.rstrip()) > self._limit:
            return []
        self._held += piece
        if not self._is_inside:
            self._find_reply()
        if not self._is_inside or self._is_closed:
            return []
        self._read_text()
        return self._new_sentences()

    def _find_reply(self) -> None:
        while True:
            if not (self._is_thinking or self._is_odd):
                self._held = self._held.lstrip()
                if opening := _OPENING.match(self._held[:_OPENING_LIMIT]):
                    self._held = self._held[opening.end() :]
                    self._is_inside = True
                    self._is_closed = self._after_search and not opening["no_search"]
                    return
            tag = THINK_TAG.search(self._held)
            if tag is None:
                self._is_odd = self._is_odd or (not self._is_thinking and len(self._held) > _OPENING_LIMIT)
                if self._is_odd or self._is_thinking:
                    self._held = self._held[-_TAG_LENGTH:]
                return
            self._pass(tag)

    def _pass(self, tag: re.Match[str]) -> None:
        """Go on behind a tag, as ``strip_thinking`` does: a closing tag that nothing opened ends thinking too."""
        self._held = self._held[tag.end() :]
        if not self._is_thinking:
            self._is_odd = not tag[1] and (self._is_odd or tag.start() > 0)
        self._is_thinking = not tag[1]

    def _read_text(self) -> None:
        if characters := _CHARACTERS.match(self._held):
            self._text += clean(json.loads(f'"{characters[0]}"'))
            self._held = self._held[characters.end() :]
        if _END_OF_STRING.match(self._held):
            self._is_closed = True
        if not self._taken:
            self._text = self._text.lstrip()

    def _new_sentences(self) -> list[str]:
        if self._text.startswith(("{", "[", "```")):  # an answer inside the answer
            return []
        hidden = _HIDDEN.search(self._text, self._taken)
        last, found = min(self._limit, hidden.start() if hidden else self._limit), []
        while (end := end_of_sentence(self._text, self._taken)) is not None and end <= last:
            found.append(self._text[self._taken : end])
            self._taken = end
        rest = self._text[self._taken :].rstrip() if self._is_closed else ""
        if rest and self._taken + len(rest) <= last:
            found.append(rest)
        return found


class Speech:
    """What of one turn is handed over to be spoken: each sentence once, in order, joined the reply that is stored.

    Without ``on_sentence`` nothing is streamed. It is called in the turn's own thread and should return at once.
    """

    def __init__(self, on_sentence: OnSentence | None, limit: int):
        self.said = ""
        self._on_sentence, self._limit = on_sentence, limit
        self._before = ""  # what was said before the present answer: "Let me look." and then a tool call

    def ask(self, chat: ChatModel, request: ChatRequest, *, after_search: bool = False) -> ChatAnswer:
        """Return the model's answer, and hand over what can be spoken while it comes. Raises what the model raises."""
        self._before = self.said + (" " if self.said.isascii() and self.said else "")
        if self._on_sentence is None:
            return chat.complete(request)
        decoder = ReplyDecoder(self._limit - len(self._before), after_search=after_search)
        answer = ChatAnswer("")
        for item in chat.stream(request):
            if isinstance(item, ChatAnswer):
                answer = item
            else:
                for sentence in decoder.feed(item):
                    self._say(self._before[len(self.said) :] + sentence)
        return answer

    def stored(self, reply: str) -> str:
        """Return what is stored for the last answer's reply ("" where there is none): it begins with what was said."""
        whole = cut_at_sentence((self._before + reply).strip(), self._limit).rstrip()
        return whole if whole.startswith(self.said) else self.said

    def finish(self, reply: str) -> None:
        """Hand over what of the stored reply was not said yet."""
        if reply.startswith(self.said):
            for sentence in sentences(reply[len(self.said) :]):
                self._say(sentence)

    def _say(self, sentence: str) -> None:
        self.said += sentence
        if self._on_sentence is None:
            return
        try:
            self._on_sentence(sentence)
        except Exception:  # the caller's own code: it must not cost the turn its answer
            log.exception("a sentence could not be handed over")
            self._on_sentence = None
