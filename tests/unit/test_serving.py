"""A request that takes for ever to come is refused, one that is only long is not."""

import socket
import threading
from collections.abc import Iterator

import pytest
from flask import Flask, request

from tests.wire import answer_on, check_problem, connected
from web import serving
from web.serving import make_server


@pytest.fixture
def url() -> Iterator[str]:
    """A server that tells how much came."""
    app = Flask("test")
    app.add_url_rule("/", view_func=lambda: str(len(request.get_data())), methods=["GET", "POST"])
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = make_server(app, listening)
        thread = threading.Thread(target=server.run)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.trigger.pull_trigger(server.close)  # in the server's own thread
        thread.join()
        server.task_dispatcher.shutdown()


@pytest.mark.parametrize(
    "beginning", [b"GET / HT", b"GET / HTTP/1.1\r\nX: ", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"]
)
def test_a_request_that_comes_too_slowly_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(serving, "WHOLE_WITHIN", -1)
    with connected(url) as connection:
        connection.sendall(beginning)
        check_problem(answer_on(connection), 408, "too slowly")
        assert connection.recv(1) == b""


def test_a_long_request_may_take_longer(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "WHOLE_WITHIN", -1)
    monkeypatch.setattr(serving, "SLOWEST", 1)
    with connected(url) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc")
        connection.sendall(b"defghi")
        assert answer_on(connection).body == b"9"
