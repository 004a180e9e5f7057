"""Errors in the shape that OpenAI's clients read: https://platform.openai.com/docs/guides/error-codes."""

import json
import logging

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from stackmem.exceptions import InvalidInput, StackmemError
from stackmem.text import clean
from web.problems import SENTENCES

log = logging.getLogger(__name__)

_KINDS = {401: "authentication_error", 404: "not_found_error"}


class BadParameter(InvalidInput):
    """A parameter of the request is not valid."""

    def __init__(self, parameter: str, message: str):
        super().__init__(message)
        self.parameter = parameter


def openai_error(status: int, message: str, parameter: str | None = None, **headers: str) -> Response:
    """Return an error response."""
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    body = {"error": {"message": clean(message), "type": kind, "param": parameter, "code": None}}
    return Response(json.dumps(body, ensure_ascii=False), status, headers, content_type="application/json")


def register(app: Flask) -> None:
    """Handle every error of the app."""

    @app.errorhandler(StackmemError)
    def _ours(error: StackmemError) -> Response:
        again = {"Retry-After": "1"} if error.status == 503 else {}
        return openai_error(error.status, str(error), getattr(error, "parameter", None), **again)

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        status = error.code or 500
        return openai_error(status, SENTENCES.get(status, error.description or "The request could not be served."))

    @app.errorhandler(Exception)
    def _unexpected(error: Exception) -> Response:
        log.exception("a request failed")
        return openai_error(500, f"Something went wrong inside stackmem ({type(error).__name__}); its log says more.")
