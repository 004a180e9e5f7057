"""A scripted OpenAI-compatible server: it answers what a test tells it to, and keeps what it was asked.

    with ScriptedServer([say("こんにちは"), error(500, "down")]) as server:
        OpenAIChat(server.base_url, "key", "qwen")
        ...
        assert server.requests[0].json["messages"]

A script is a list of answers, used in turn, or a callable that takes the request's JSON and returns an answer.
"""

import contextlib
import email
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Literal, Self

import numpy as np

from stackmem.sound import Sound, wav

_ids = count(1)


# Of a stream: bytes as they are, JSON as one event's data, or what must be set before the stream goes on.
Part = bytes | dict[str, Any] | threading.Event


@dataclass(frozen=True)
class Answer:
    """One answer. ``completion`` (a message of the assistant) can be streamed; ``body`` is sent as it is."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    completion: dict[str, Any] | None = None
    delay_s: float = 0.0
    interval_s: float | None = None  # between single bytes, the headers' too
    end: Literal["whole", "reset", "never"] = "whole"
    events: Sequence["Part"] | None = None


@dataclass(frozen=True)
class Recorded:
    """One request: its path, its JSON body (None where it was none), headers (names in lower case), and bytes."""

    path: str
    json: Any
    headers: dict[str, str]
    body: bytes = b""


Script = Sequence[Answer] | Callable[[Any], Answer]


def content(text: str | None, **message: Any) -> Answer:
    """Answer with plain content; more keys of the message (``reasoning_content``, …) may be given."""
    return Answer(completion={"role": "assistant", "content": text, **message})


def say(reply: str, emotion: str = "neutral", action: str = "none") -> Answer:
    """Answer in the form stackmem asks of its model."""
    return content(json.dumps({"reply": reply, "emotion": emotion, "action": action}, ensure_ascii=False))


def call(tool: str, arguments: Any = None) -> Answer:
    """Answer with one tool call; a string (or None) as arguments is sent as it is."""
    return calls((tool, {} if arguments is None else arguments))


def calls(*wanted: tuple[str, Any]) -> Answer:
    """Answer with several tool calls (name, arguments) at once."""
    return content(None, tool_calls=[_tool_call(name, arguments) for name, arguments in wanted])


def _tool_call(name: str, arguments: Any) -> dict[str, Any]:
    text = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict | list) else arguments
    return {"id": f"call_{next(_ids)}", "type": "function", "function": {"name": name, "arguments": text}}


def error(status: int, body: Any, **headers: str) -> Answer:
    """Answer with an error; a string becomes ``{"error": {"message": …}}``. ``Retry_After="1"`` gives Retry-After."""
    body = {"error": {"message": body}} if isinstance(body, str) else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json", **named})


def raw(body: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> Answer:
    """Answer 200 with these bytes, or this JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(200, data, headers or {"Content-Type": "application/json"})


def transcript(text: str) -> Answer:
    """Answer a transcription."""
    return raw({"text": text})


def tone(seconds: float = 0.2, rate: int = 48000, hertz: float = 440) -> Sound:
    """Return a sine."""
    return Sound((np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate) * 9000).astype(np.int16), rate)


def speech(sound: Sound | None = None) -> Answer:
    """Answer a synthesis with a WAV file, of a sine where no sound is given."""
    return raw(wav(sound or tone()), {"Content-Type": "audio/wav"})


def form_of(request: Recorded) -> dict[str, bytes]:
    """Return the fields of a multipart request by their names."""
    head = b"Content-Type: " + request.headers["content-type"].encode() + b"\r\n\r\n"
    parts = email.message_from_bytes(head + request.body).get_payload()
    assert isinstance(parts, list)
    return {str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True) for part in parts}


def slow(seconds: float, answer: Answer) -> Answer:
    """Answer after a while (at once when the server stops)."""
    return replace(answer, delay_s=seconds)


def drip(body: bytes, interval: float) -> Answer:
    """Answer 200 one byte at a time."""
    return replace(raw(body), interval_s=interval)


def reset() -> Answer:
    """Send half a body, then reset the connection."""
    return replace(say("これは届かない"), end="reset")


def sse(*parts: Part, end: Literal["whole", "reset"] = "whole") -> Answer:
    """Answer with a stream of server-sent events, asked for or not; ``DONE`` is not added."""
    return Answer(events=parts, end=end)


def delta(text: str | None = None, /, **more: Any) -> dict[str, Any]:
    """Return a chunk of a stream: content, and more keys of the delta; ``finish_reason`` stands beside it."""
    reason = more.pop("finish_reason", None)
    words = {} if text is None else {"content": text}
    return {"choices": [{"index": 0, "delta": words | more, "finish_reason": reason}]}


DONE = b"data: [DONE]\n\n"


def hang() -> Answer:
    """Take the request and never answer."""
    return Answer(end="never")


class ScriptedServer:
    """Listens on 127.0.0.1 at a free port while the ``with`` block lasts. ``requests`` holds the POSTs, in order."""

    def __init__(self, script: Script):
        self._script = script
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.stopping = threading.Event()
        self.requests: list[Recorded] = []
        self.connections = 0  # so far
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.scripted = self  # type: ignore[attr-defined]
        self._http.daemon_threads = False  # so that closing waits for every handler
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self.base_url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End every connection and stop."""
        self.stopping.set()
        self._http.shutdown()
        self._thread.join()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RDWR)
        self._http.server_close()

    def answer(self, request: Recorded) -> Answer:
        """Return the script's answer to a request; 500 where the script has none left or fails."""
        with self._lock:
            position = len(self.requests)
            self.requests.append(request)
        if not callable(self._script):
            return self._script[position] if position < len(self._script) else error(500, "the script is over")
        try:
            return self._script(request.json)
        except Exception as problem:  # a test's own mistake must be seen in that test
            return error(500, f"the script failed: {problem!r}")

    def opened(self, connection: socket.socket) -> None:
        """Note an open connection."""
        with self._lock:
            self.connections += 1
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        """Forget a connection that is about to be closed."""
        with self._lock:
            self._open.discard(connection)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def scripted(self) -> ScriptedServer:
        return self.server.scripted  # type: ignore[attr-defined, no-any-return]

    def setup(self) -> None:
        super().setup()
        self.scripted.opened(self.connection)

    def finish(self) -> None:
        self.scripted.closed(self.connection)
        super().finish()

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client went away, as some tests want it to
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        """Answer ``GET /models`` with 200 whatever the key (row 6)."""
        models = {"object": "list", "data": [{"id": "scripted", "object": "model"}]}
        self._send(raw(models) if self.path.endswith("/models") else error(404, "Not Found"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            value = json.loads(body)
        except ValueError:
            value = None
        headers = {name.lower(): text for name, text in self.headers.items()}
        answer = self.scripted.answer(Recorded(self.path, value, headers, body))
        self.scripted.stopping.wait(answer.delay_s)
        if answer.end == "never":
            self.scripted.stopping.wait()
            self.close_connection = True
        elif answer.events is not None:
            self._send_events(answer.events, answer.end == "reset")
        elif answer.completion is not None and isinstance(value, dict) and value.get("stream"):
            self._stream(answer.completion, value)
        else:
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        body = answer.body if answer.completion is None else _whole(answer.completion)
        head = [f"HTTP/1.1 {answer.status} Scripted", f"Content-Length: {len(body)}"]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        data = "\r\n".join([*head, "", ""]).encode() + body
        if answer.end == "reset":
            self.wfile.write(data[: -len(body) // 2])
            self._reset()
        elif answer.interval_s is None:
            self.wfile.write(data)
        else:
            self._drip(data, answer.interval_s)

    def _reset(self) -> None:
        linger_not = struct.pack("ii", 1, 0)  # closing then sends RST, not FIN
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
        self.close_connection = True
        self.scripted.closed(self.connection)
        self.connection.close()

    def _drip(self, data: bytes, interval_s: float) -> None:
        for position in range(len(data)):
            if self.scripted.stopping.wait(interval_s):
                self.close_connection = True
                return
            self.wfile.write(data[position : position + 1])

    def _send_events(self, parts: Sequence[Part], then_reset: bool) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.wfile.write(head)
        for part in parts:
            if isinstance(part, threading.Event):
                while not part.wait(0.01):
                    if self.scripted.stopping.is_set():
                        self.close_connection = True
                        return
            else:
                data = part if isinstance(part, bytes) else b"data: " + json.dumps(part).encode() + b"\n\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        if then_reset:
            self._reset()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _stream(self, message: dict[str, Any], request: dict[str, Any]) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for chunk in _chunks(message, bool((request.get("stream_options") or {}).get("include_usage"))):
            self.wfile.write(
                b"data: " + json.dumps(chunk, ensure_ascii=False).encode(errors="backslashreplace") + b"\n\n"
            )
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


_USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def _finish(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _whole(message: dict[str, Any]) -> bytes:
    """Return a completion's body around a message of the assistant."""
    choice = {"index": 0, "message": message, "finish_reason": _finish(message)}
    completion = {"object": "chat.completion", "model": "scripted", "choices": [choice], "usage": _USAGE}
    return json.dumps({"id": f"chatcmpl-{next(_ids)}", "created": 0, **completion}, ensure_ascii=False).encode(
        errors="backslashreplace"
    )


def _chunks(message: dict[str, Any], with_usage: bool) -> Iterator[dict[str, Any]]:
    """Yield the same message as the chunks of a stream, four characters of content each."""
    base = {"id": f"chatcmpl-{next(_ids)}", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    text = message.get("content") or ""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": text[start : start + 4]} for start in range(0, len(text), 4)]
    tool_calls = message.get("tool_calls") or []
    deltas += [{"tool_calls": [{"index": index, **wanted}]} for index, wanted in enumerate(tool_calls)]
    for delta in deltas:
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(message)}]}
    if with_usage:
        yield {**base, "choices": [], "usage": _USAGE}
