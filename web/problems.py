"""Errors as RFC 9457 problem details: one clear sentence, never a stack trace."""

import json
import logging
import sqlite3
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Flask, Response, request
from peewee import DatabaseError, InterfaceError
from werkzeug.exceptions import HTTPException, RequestedRangeNotSatisfiable, TooManyRequests

from stackmem.exceptions import StackmemError
from stackmem.text import clean

log = logging.getLogger(__name__)

SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not take this method.",
    408: "The request came too slowly: send it again.",
    413: "The body is too large.",
    416: "The part asked for begins behind the end.",
    431: "The headers are too large.",
    501: "This transfer encoding is not understood: send the body whole or chunked.",
}


def problem_body(status: int, detail: str) -> str:
    """Return problem details as JSON (https://www.rfc-editor.org/rfc/rfc9457)."""
    title = HTTPStatus(status).phrase
    return json.dumps(
        {"type": "about:blank", "title": title, "status": status, "detail": clean(detail)}, ensure_ascii=False
    )


def problem(status: int, detail: str, **headers: str) -> Response:
    """Return a problem details response."""
    return Response(problem_body(status, detail), status, headers, content_type="application/problem+json")


def register(app: Flask, answer: Callable[..., Any] = problem) -> None:
    """Answer every error of the app, by problem details where nothing else is given."""
    handle_errors(app, answer)


def handle_errors(part: Flask | Blueprint, answer: Callable[..., Any]) -> None:
    """Answer every error of an app, or of a part of it, by ``answer(status, sentence, **headers)``."""

    @part.errorhandler(StackmemError)
    def _ours(error: StackmemError) -> Any:
        again = {"Retry-After": "1"} if error.status == 503 else {}
        return answer(error.status, str(error), **again)

    @part.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Any:
        status = error.code or 500
        allowed = getattr(error, "valid_methods", None)
        headers = {"Allow": ", ".join(sorted(allowed))} if allowed else {}
        if isinstance(error, TooManyRequests) and error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        if isinstance(error, RequestedRangeNotSatisfiable) and error.length is not None:
            headers["Content-Range"] = f"{error.units} */{error.length}"
        sentence = SENTENCES.get(status, error.description or "The request could not be served.")
        return answer(status, sentence, **headers)

    @part.errorhandler(DatabaseError)
    @part.errorhandler(InterfaceError)
    @part.errorhandler(sqlite3.Error)
    def _database(error: Exception) -> Any:
        log.error("%s %s: %s", request.method, request.path, error)
        return answer(503, "The database did not take the request; try again in a moment.")

    @part.errorhandler(Exception)
    def _unexpected(error: Exception) -> Any:
        log.exception("%s %s failed", request.method, request.path)
        return answer(500, f"Something went wrong inside stackmem ({type(error).__name__}); its log says more.")
