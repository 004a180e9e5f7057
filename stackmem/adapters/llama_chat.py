"""The chat model in a GGUF file, asked as any other OpenAI-compatible server."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stackmem.adapters.llama_server import LlamaServer
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.ports import ChatAnswer, ChatRequest


class LlamaChat:
    """A ``ChatModel`` over a ``LlamaServer``, which it starts at the first request.

    A turn does not wait for the loading, whose user is waiting; anything else does, within its own time.
    """

    def __init__(
        self,
        server: LlamaServer,
        model: str,
        *,
        extra_body: dict[str, Any] | None = None,
        setting_prefix: str = "STACKMEM_CHAT",
    ):
        self.name = model
        self._server, self._extra_body, self._prefix = server, extra_body, setting_prefix
        self._lock = threading.Lock()
        self._address, self._chat = "", None  # type: tuple[str, OpenAIChat | None]

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the model's answer. Raises TransientError while it is loading, and what ``OpenAIChat`` raises."""
        chat, request = self._loaded(request)
        return chat.complete(request)

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield the content in pieces, then the whole answer. Raises what ``complete`` raises."""
        chat, request = self._loaded(request)
        yield from chat.stream(request)

    def close(self) -> None:
        """Close the connections; the server runs on."""
        with self._lock:
            chat, self._address, self._chat = self._chat, "", None
        if chat is not None:
            chat.close()

    def _loaded(self, request: ChatRequest) -> tuple[OpenAIChat, ChatRequest]:
        """Return a client of the server as it runs now, and the request with the time that is left to it."""
        began = time.monotonic()
        address = self._server.address(0 if request.purpose == "turn" else request.timeout_s)
        left_s = max(request.timeout_s - (time.monotonic() - began), 0.1)
        return self._client(address), replace(request, timeout_s=left_s)

    def _client(self, address: str) -> OpenAIChat:
        with self._lock:
            if self._chat is None or address != self._address:  # each start has a port of its own
                former, self._address = self._chat, address
                self._chat = OpenAIChat(
                    f"{address}/v1",
                    self._server.api_key,
                    self.name,
                    extra_body=self._extra_body,
                    setting_prefix=self._prefix,
                )
                if former is not None:
                    former.close()
            return self._chat
