"""A chat model behind an OpenAI-compatible address: ModelScope, DashScope, vLLM, SGLang, llama.cpp, Ollama, …

"Row 12" and the like, here and in the modules beside this one, are rows of the table of model servers' habits.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stackmem.adapters.openai_answer import read_completion
from stackmem.adapters.openai_errors import Complaints, ContentRefused, Refused
from stackmem.adapters.openai_request import Dialect, body_of
from stackmem.exceptions import SettingsError, TransientError
from stackmem.ports import ChatAnswer, ChatRequest

if TYPE_CHECKING:
    import openai

__all__ = ["ContentRefused", "OpenAIChat"]

_BODY_LIMIT = 8_000_000  # bytes; an answer is a few thousand
_PAUSE_S = 0.2  # before a failed request is tried again, where the server asks for no other
# How often each may be changed in one call. Three ways to switch thinking off and three formats make two changes.
_CHANGES = {"plain": 1, "format": 2, "thinking": 2, "arguments": 1}


class OpenAIChat:
    """A ``ChatModel``. Safe to call from several threads; what a server turned out to accept is remembered.

    ``extra_body`` None lets it find out how thinking is switched off (row 1); given, exactly that is sent. The settings
    that errors name begin with ``setting_prefix``. Raises SettingsError where address or key cannot be used at all.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        model: str,
        *,
        extra_body: dict[str, Any] | None = None,
        setting_prefix: str = "STACKMEM_CHAT",
    ):
        self.name = model
        self._base_url, self._api_key = base_url.strip(), api_key.strip()
        self._extra_body = extra_body
        self._complaints = Complaints(setting_prefix, self._base_url, self._api_key)
        self._dialect = Dialect()
        self._client: openai.OpenAI | None = None
        self._lock = threading.Lock()
        _check(setting_prefix, self._base_url, self._api_key)

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the model's answer within ``request.timeout_s``, retries included, however slowly the server sends.

        Raises TransientError, PermanentError, or ContentRefused where the words are what the service objects to.
        """
        deadline = time.monotonic() + request.timeout_s
        answer: Future[ChatAnswer] = Future()
        work = threading.Thread(
            target=_settle, args=(answer, lambda: self._attempts(request, deadline)), name="chat", daemon=True
        )
        # A thread, because no time-out of a socket bounds a name look-up, or a server that sends a byte a second.
        work.start()
        try:
            return answer.result(request.timeout_s)
        except TimeoutError:
            raise self._complaints.too_slow() from None

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _attempts(self, request: ChatRequest, deadline: float) -> ChatAnswer:
        """Ask until there is an answer, or a refusal that no change of dialect helps against."""
        dialect, changes, again, plain = self._dialect, Counter(_CHANGES), request.purpose == "turn", False
        while True:
            try:
                answer, thought = self._ask(request, dialect, plain, deadline)
                self._dialect = dialect.after_thinking_aloud() if thought else dialect
                return answer
            except Refused as refused:
                change = dialect.after(refused, request, self._extra_body is not None)
                error = self._complaints.refused(refused)
                if change and changes[change[0]]:
                    kind, dialect = change
                    changes[kind] -= 1
                    plain = plain or kind == "plain"
                    continue
            except TransientError as broken:
                error = broken
            if not (again and _wait_for_another_try(error, request.timeout_s, deadline)):
                raise error
            again = False
