"""A recogniser, a synthesis and a chat model over HTTP whose answers a test sets, and keeps changing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.scripted import Answer, Recorded, ScriptedServer, say, speech, transcript


class Service:
    """One scripted service: ``answer`` is what it says next, and from then on."""

    def __init__(self, answer: Answer):
        self.answer: Answer | Callable[[Any], Answer] = answer
        self.server = ScriptedServer(lambda request: self._say(request))

    def _say(self, request: Any) -> Answer:
        return self.answer(request) if callable(self.answer) else self.answer

    @property
    def requests(self) -> list[Recorded]:
        """Return the requests so far."""
        return self.server.requests


class Services:
    """The three services of a robot that hears and speaks."""

    def __init__(self) -> None:
        self.asr, self.tts, self.chat = Service(transcript("")), Service(speech()), Service(say(""))
        self.reset()

    def reset(self) -> None:
        """Let everything work again."""
        self.asr.answer = transcript("language Japanese<asr_text>うちの猫の名前はミケっていうの。")
        self.tts.answer = speech()
        self.chat.answer = say("ミケちゃんか。かわいいね！", "happy", "nod")

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings that lead to them."""
        addresses = {"asr": self.asr, "tts": self.tts, "chat": self.chat}
        return {f"{name}_base_url": one.server.base_url for name, one in addresses.items()} | {
            "chat_model": "scripted",
            "memory_model": "offline",
            "chat_extra_body": "{}",
        }

    def spoken(self) -> list[str]:
        """Return the texts that were synthesised, in order."""
        return [request.json["input"] for request in self.tts.requests]


@contextmanager
def services() -> Iterator[Services]:
    """Run the three of them."""
    now = Services()
    with ExitStack() as stack:
        for one in (now.asr, now.tts, now.chat):
            stack.enter_context(one.server)
        yield now
