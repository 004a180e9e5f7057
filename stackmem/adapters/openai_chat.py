"""A chat model at an OpenAI-compatible address: ModelScope, DashScope, vLLM, SGLang, llama.cpp, Ollama, LM Studio.

"Row 12" and the like, here and in the modules beside this one, are rows of the table of model servers' habits.
"""

import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import Any

from stackmem.adapters.openai_answer import read_completion
from stackmem.adapters.openai_client import Connection
from stackmem.adapters.openai_course import Course
from stackmem.adapters.openai_errors import Complaints, Refused
from stackmem.adapters.openai_request import Dialect, body_of
from stackmem.adapters.openai_stream import Incoming
from stackmem.exceptions import StackmemError, TransientError
from stackmem.ports import ChatAnswer, ChatRequest

_BODY_LIMIT = 8_000_000  # bytes; an answer is a few thousand


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
        self._connection = Connection(self._complaints)

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the model's answer within ``request.timeout_s``, retries included, however slowly the server sends.

        Raises TransientError, PermanentError, or ContentRefused where the words are what the service objects to.
        """
        return next(item for item in self._in_time(request, streamed=False) if isinstance(item, ChatAnswer))

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield the content in pieces, then the whole answer, all of it within ``request.timeout_s``.

        Raises what ``complete`` raises; after the first piece nothing is tried again. Where the server does not
        stream, the answer comes without pieces.
        """
        return self._in_time(request, streamed=True)

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._connection.close()

    def _in_time(self, request: ChatRequest, *, streamed: bool) -> Iterator[str | ChatAnswer]:
        """Yield what the attempts bring until the time is over."""
        deadline = time.monotonic() + request.timeout_s
        said: SimpleQueue[str | ChatAnswer | Exception] = SimpleQueue()
        given_up = threading.Event()
        attempts = self._attempts(request, deadline, streamed)
        # A thread, because no time-out of a socket bounds a name look-up, or a server that sends a byte a second.
        threading.Thread(target=_pump, args=(attempts, said, given_up), name="chat", daemon=True).start()
        item: str | ChatAnswer | Exception = ""
        try:
            while not isinstance(item, ChatAnswer):
                item = said.get(timeout=max(deadline - time.monotonic(), 0))
                if isinstance(item, Exception):
                    raise item
                yield item
        except Empty:
            raise self._complaints.too_slow() from None
        finally:
            given_up.set()

    def _attempts(
        self, request: ChatRequest, deadline: float, streamed: bool
    ) -> Generator[str | ChatAnswer, None, None]:
        """Ask until there is an answer, or a problem that neither another dialect nor another try helps against."""
        course = Course(self._dialect, request, self._extra_body is not None, streamed)
        while True:
            error: StackmemError
            incoming, is_begun = Incoming(), False
            coming = self._post(request, course, deadline, incoming)
            try:
                while not incoming.done and (piece := next(coming, None)) is not None:
                    if piece:
                        is_begun = True
                        yield piece
                answer, thought = read_completion(incoming.value(), request)
            except Refused as refused:
                if not is_begun and course.changed_after(refused):
                    continue
                error = self._complaints.refused(refused)
            except TransientError as broken:
                error = broken
            else:
                self._dialect = course.dialect.after_thinking_aloud() if thought else course.dialect
                yield answer
                with suppress(TransientError):  # read to its end, the connection can be used again
                    list(coming)
                return
            if is_begun or not course.worth_another_try(error, deadline):
                raise error

    def _post(self, request: ChatRequest, course: Course, deadline: float, incoming: Incoming) -> Iterator[str]:
        """Let one successful response come in, and yield its pieces. Raises Refused, or TransientError for none."""
        body = body_of(request, course.dialect, self._extra_body, course.plain, course.streamed)
        with self._connection.translated():
            completions: Any = self._connection.client().chat.completions.with_streaming_response
            with completions.create(model=self.name, timeout=self._left(deadline), **body) as response:
                yield from self._read(response.iter_bytes(), incoming, deadline)

    def _read(self, chunks: Iterable[bytes], incoming: Incoming, deadline: float) -> Iterator[str]:
        """Yield the pieces in the chunks; gives up at the deadline: no thread reads a dripping body for ever."""
        for chunk in chunks:
            yield from incoming.feed(chunk)
            if incoming.done:
                yield ""  # so that nobody waits for the end behind the end
            self._left(deadline)
            if incoming.size > _BODY_LIMIT:
                raise self._complaints.too_much()
        yield from incoming.feed(b"\n")  # the last line may have no end
        if incoming.broke_off:
            raise self._complaints.unreachable()

    def _left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._complaints.too_slow()
        return left


def _pump(
    attempts: Generator[str | ChatAnswer, None, None], said: "SimpleQueue[Any]", given_up: threading.Event
) -> None:
    """Put what comes, an error too, where the waiting thread finds it, as long as there is one."""
    try:
        with closing(attempts):
            for item in attempts:
                said.put(item)
                if given_up.is_set() and not isinstance(item, ChatAnswer):
                    return
    except Exception as exc:  # the thread's edge: raised again by the one who waits
        said.put(exc)
