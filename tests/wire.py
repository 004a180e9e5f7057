"""HTTP as bytes on a socket, for what no client library would send."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 30  # seconds until an answer that must come is given up


@dataclass(frozen=True)
class Answer:
    """What came back: names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body's JSON, which is UTF-8."""
        return json.loads(self.body.decode("utf-8"))


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    """Yield a connection to the server at ``url``."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 80), PATIENCE) as connection:
        yield connection


def answer_on(connection: socket.socket, method: str = "GET") -> Answer:
    """Read one answer; it must come with its length."""
    response = HTTPResponse(connection, method=method)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    answer = Answer(response.status, headers, response.read())
    assert "transfer-encoding" not in headers, headers
    assert "content-length" in headers, headers
    if method != "HEAD":
        assert len(answer.body) == int(headers["content-length"])
    return answer


def send(
    url: str, method: str, path: str, body: bytes | None = None, version: str = "1.1", **headers: str | None
) -> Answer:
    """Send one request and return the answer; ``content_type="…"`` and so on are headers, None leaves one out."""
    given = {"host": "robot", "connection": "close", **({} if body is None else {"content_length": str(len(body))})}
    lines = [f"{method} {path} HTTP/{version}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in {**given, **headers}.items() if value is not None]
    with connected(url) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))
        return answer_on(connection, method)


def check_problem(answer: Answer, status: int, *words: str) -> str:
    """Check that it is a problem of one sentence; return the sentence."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json
    assert set(problem) == {"type", "title", "status", "detail"}
    assert (problem["type"], problem["status"]) == ("about:blank", status)
    assert problem["title"]
    detail: str = problem["detail"]
    assert detail.endswith((".", "?")), detail
    assert "\n" not in detail
    assert len(detail) < 250
    assert "Traceback" not in answer.body.decode()
    for word in words:
        assert word in detail
    return detail
