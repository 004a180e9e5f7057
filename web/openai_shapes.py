"""Errors in the shape that OpenAI's clients read: https://platform.openai.com/docs/guides/error-codes."""

import json
from typing import Any

from flask import Blueprint, Flask, Response

from stackmem.exceptions import BadParameter
from stackmem.text import clean
from web.problems import handle_errors

_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def error_body(status: int, message: str, parameter: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return an error as JSON."""
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": clean(message), "type": kind, "param": parameter, "code": code}}


def openai_error(
    status: int, message: str, parameter: str | None = None, code: str | None = None, **headers: str
) -> Response:
    """Return an error response."""
    body = json.dumps(error_body(status, message, parameter, code), ensure_ascii=False)
    return Response(body, status, headers, content_type="application/json")


def register(part: Flask | Blueprint) -> None:
    """Handle every error of an app, or of a part of it."""
    handle_errors(part, openai_error)

    @part.errorhandler(BadParameter)
    def _parameter(error: BadParameter) -> Response:
        return openai_error(error.status, str(error), error.parameter)
