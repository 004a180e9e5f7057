"""Waitress as a robot's memory needs it: threads, limits, and errors of the protocol as problem details too."""

import re
import resource
import socket
import time
from typing import Any

import waitress
import waitress.utilities
from flask import Flask
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.task import ErrorTask

from web.problems import SENTENCES, problem_body

THREADS = 32  # waitress's own default of 4 lets a few waiting requests stop a robot
LONGEST_BODY = 64 * 1024 * 1024  # bytes that are taken in at all; the app's own limits are lower
SILENT_FOR = 60  # seconds after which a connection that says nothing is closed
WHOLE_WITHIN, SLOWEST = 60, 4000  # seconds for any request, and bytes a second for what takes longer
CONNECTIONS = 400  # at once; with waitress's own 100, as many slow senders would shut everybody else out


class ProblemTask(ErrorTask):
    """The answer to what is not HTTP at all, or too much of it: waitress's own would be plain text."""

    def execute(self) -> None:
        """Write the problem details."""
        error = self.request.error
        body = problem_body(error.code, SENTENCES.get(error.code, "This is not a valid HTTP request.")).encode()
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", "application/problem+json"))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class TooSlow(waitress.utilities.Error):
    """The request did not come in time."""

    code = 408
    reason = "Request Timeout"


class Parser(HTTPRequestParser):
    """Takes addresses with unescaped UTF-8 too: MicroPython's ``requests`` sends them as they are.

    Whoever sends a byte now and then is never silent, and would hold a connection for ever: a request that comes too
    slowly is answered by 408.
    """

    completed: bool

    def __init__(self, adj: Any):
        super().__init__(adj)
        self._begun, self._came = time.monotonic(), 0

    def received(self, data: bytes) -> int:
        """Take bytes; return how many of them belong to this request."""
        taken: int = super().received(data)
        self._came += taken
        if not self.completed and time.monotonic() > self._begun + WHOLE_WITHIN + self._came / SLOWEST:
            self.error, self.completed = TooSlow(SENTENCES[408]), True
        return taken

    def parse_header(self, header_plus: bytes) -> None:
        """Read the request line and the headers."""
        line, end, rest = header_plus.partition(b"\r\n")
        line = re.sub(rb"[\x80-\xff]", lambda byte: b"%%%02X" % byte[0][0], line)
        super().parse_header(line + end + rest)


class Channel(HTTPChannel):
    """A connection whose protocol errors are problem details."""

    error_task_class = ProblemTask
    parser_class = Parser


def make_server(app: Flask, listening: socket.socket) -> Any:
    """Return a server for ``app`` on a bound socket. Raises OSError where another one listens there."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    server = waitress.create_server(
        app,
        sockets=[listening],
        threads=THREADS,
        ident="stackmem",
        max_request_body_size=LONGEST_BODY,
        channel_timeout=SILENT_FOR,
        connection_limit=min(CONNECTIONS, max(files // 2, 50)),
        asyncore_use_poll=True,  # select() breaks at 1,024 open files
        clear_untrusted_proxy_headers=False,  # web.access must see that a request came through a proxy
        log_socket_errors=False,  # a robot that leaves the Wi-Fi is no stack trace
    )
    server.channel_class = Channel
    return server
