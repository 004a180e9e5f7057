"""A chat model at an OpenAI-compatible address: ModelScope, DashScope, vLLM, SGLang, llama.cpp, Ollama, LM Studio.

"Row 12" and the like, here and in the modules beside this one, are rows of the table of model servers' habits.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stackmem.adapters.openai_answer import read_completion
from stackmem.adapters.openai_errors import Complaints, Refused
from stackmem.adapters.openai_request import Dialect, body_of
from stackmem.exceptions import SettingsError, StackmemError, TransientError
from stackmem.ports import ChatAnswer, ChatRequest

if TYPE_CHECKING:
    import openai


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
        _check(self._complaints, self._base_url, self._api_key)

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
        """Ask until there is an answer, or a problem that neither another dialect nor another try helps against."""
        course = _Course(self._dialect, request, self._extra_body is not None)
        while True:
            error: StackmemError
            try:
                answer, thought = read_completion(self._post(request, course, deadline), request)
            except Refused as refused:
                if course.changed_after(refused):
                    continue
                error = self._complaints.refused(refused)
            except TransientError as broken:
                error = broken
            else:
                self._dialect = course.dialect.after_thinking_aloud() if thought else course.dialect
                return answer
            if not course.worth_another_try(error, deadline):
                raise error

    def _post(self, request: ChatRequest, course: "_Course", deadline: float) -> bytes:
        """Return the body of one successful response. Raises Refused, or TransientError where there is none."""
        import httpx2  # openai's own HTTP client; neither is imported before the first call (0.7 s)
        import openai

        body = body_of(request, course.dialect, self._extra_body, course.plain)
        try:
            completions: Any = self._connected().chat.completions.with_streaming_response
            with completions.create(model=self.name, timeout=self._left(deadline), **body) as response:
                return self._read(response.iter_bytes(), deadline)
        except openai.APIStatusError as exc:
            raise Refused(exc.status_code, exc.response.text, exc.response.headers) from None  # it may echo the key
        except (openai.APITimeoutError, httpx2.TimeoutException) as exc:
            raise self._complaints.too_slow() from exc
        except (openai.APIConnectionError, httpx2.HTTPError) as exc:
            raise self._complaints.unreachable() from exc

    def _connected(self) -> "openai.OpenAI":
        import openai

        with self._lock:
            if self._client is None:  # local servers want no key, the client wants one
                key = self._api_key or "none"
                self._client = openai.OpenAI(base_url=self._base_url, api_key=key, max_retries=0)
            return self._client

    def _read(self, chunks: Iterable[bytes], deadline: float) -> bytes:
        """Return the chunks joined; gives up at the deadline, so that no thread reads a dripping body for ever."""
        body = bytearray()
        for chunk in chunks:
            body += chunk
            self._left(deadline)
            if len(body) > _BODY_LIMIT:
                raise self._complaints.unreachable()
        return bytes(body)

    def _left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._complaints.too_slow()
        return left


class _Course:
    """What one call has tried so far."""

    def __init__(self, dialect: Dialect, request: ChatRequest, own_extra_body: bool):
        self.dialect = dialect
        self.plain = False  # without a response format
        self._request = request
        self._own_extra_body = own_extra_body
        self._left = dict(_CHANGES)
        self._may_try_again = request.purpose == "turn"  # background work is tried again by its queue

    def changed_after(self, refused: Refused) -> bool:
        """Change the dialect so that the server may accept it; False where nothing is left to change."""
        change = self.dialect.after(refused, self._request, self._own_extra_body)
        if change is None or not self._left[change[0]]:
            return False
        kind, self.dialect = change
        self._left[kind] -= 1
        self.plain = self.plain or kind == "plain"
        return True

    def worth_another_try(self, error: StackmemError, deadline: float) -> bool:
        """Wait as long as the server asks and return True, once, where half of the time is left after that."""
        if not (self._may_try_again and isinstance(error, TransientError)):
            return False
        self._may_try_again = False
        pause_s = _PAUSE_S if error.retry_after_s is None else error.retry_after_s
        if deadline - time.monotonic() - pause_s < self._request.timeout_s / 2:
            return False
        time.sleep(pause_s)
        return True


def _settle(answer: "Future[ChatAnswer]", work: Callable[[], ChatAnswer]) -> None:
    """Put what the work returns, or raises, where the waiting thread finds it."""
    try:
        answer.set_result(work())
    except Exception as exc:  # the thread's edge: raised again by the one who waits
        answer.set_exception(exc)


def _check(complaints: Complaints, base_url: str, api_key: str) -> None:
    """Raise SettingsError, without showing the key, where address or key cannot go into any request."""
    try:
        port = urlsplit(base_url).port
    except ValueError:  # no number, above 65535, or half an IPv6 address
        port = 0
    if port == 0 or not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", base_url):
        raise complaints.bad_address()
    if not re.fullmatch(r"[!-~]*", api_key):
        raise SettingsError(f"{complaints.prefix}_API_KEY holds characters that no key has (spaces, or not ASCII).")
