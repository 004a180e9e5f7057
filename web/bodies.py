"""Read what a client sent; whatever it is, a wrong one is answered with one sentence."""

import json
from typing import Any

from flask import request
from werkzeug.exceptions import UnsupportedMediaType

from stackmem.exceptions import InvalidInput


def json_object() -> dict[str, Any]:
    """Return the body as a JSON object. Raises InvalidInput, or 415 for another content type."""
    if request.mimetype != "application/json":
        raise UnsupportedMediaType("Send JSON with the header Content-Type: application/json.")
    data = request.get_data()
    if not data.strip():
        raise InvalidInput("The body is empty: send a JSON object.")
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise InvalidInput("The body is not valid UTF-8.") from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidInput("The body is not valid JSON.") from exc
    if not isinstance(value, dict):
        raise InvalidInput("The body must be a JSON object.")
    return value


def text_of(body: dict[str, Any], name: str) -> str | None:
    """Return an optional text field. Raises InvalidInput where it is something else."""
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    raise InvalidInput(f'"{name}" must be text.')


def number_in_query(name: str, default: int, highest: int) -> int:
    """Return a whole number from the query string, from 1 to ``highest``."""
    text = request.args.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= highest:
        raise InvalidInput(f"{name} must be a whole number from 1 to {highest}.")
    return int(text)
