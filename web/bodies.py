"""Read what a client sent; whatever it is, a wrong one is answered with one sentence."""

import json
from contextlib import suppress
from typing import Any, NoReturn

from flask import request
from werkzeug.exceptions import UnsupportedMediaType

from stackmem.exceptions import InvalidInput
from stackmem.text import clean, depth_within

DEPTH_LIMIT = 100  # levels of JSON
# MicroPython's ``requests.post(json=…)`` announces the number of characters, which cuts Japanese off.
CUT_OFF = "The body ends in the middle of a text: Content-Length must be its number of bytes, not of characters."


def json_object(otherwise: str = "") -> dict[str, Any]:
    """Return the body as a JSON object. Raises InvalidInput, or 415 for another content type.

    ``otherwise`` is what else the address takes, as the end of a sentence.
    """
    if request.mimetype.startswith("audio/"):
        raise UnsupportedMediaType("Sound is not taken here: send JSON, Content-Type: application/json.")
    data = request.get_data()
    if not data.strip():
        raise InvalidInput("The body is empty: send a JSON object.")
    if request.mimetype != "application/json":
        raise UnsupportedMediaType(f"Send JSON with the header Content-Type: application/json{otherwise}.")
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=_no_number)
    except UnicodeDecodeError as exc:
        is_cut_off = exc.reason == "unexpected end of data"
        raise InvalidInput(CUT_OFF if is_cut_off else "The body is not valid UTF-8.") from exc
    except RecursionError as exc:
        raise InvalidInput("The body is nested too deeply.") from exc
    except ValueError as exc:
        is_cut_off = "Unterminated string" in str(exc)
        raise InvalidInput(CUT_OFF if is_cut_off else "The body is not valid JSON.") from exc
    if not isinstance(value, dict):
        raise InvalidInput("The body must be a JSON object.")
    if not depth_within(value, DEPTH_LIMIT):
        raise InvalidInput("The body is nested too deeply.")
    return value


def _no_number(name: str) -> NoReturn:
    """Refuse NaN and Infinity: Python reads them, JSON does not have them (https://www.rfc-editor.org/rfc/rfc8259)."""
    raise ValueError(f"{name} is not JSON")


def text_of(body: dict[str, Any], name: str) -> str | None:
    """Return an optional text field. Raises InvalidInput where it is something else."""
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    raise InvalidInput(f'"{name}" must be text.')


def text_in_header(name: str) -> str | None:
    """Return a header's value, None where it is empty; as UTF-8 where it is, which WSGI hands over as Latin-1."""
    value = request.headers.get(name, "")
    with suppress(UnicodeError):
        value = value.encode("latin-1").decode("utf-8")
    return clean(value) or None


def text_in_query(name: str) -> str | None:
    """Return a text of the query string, None where it is not given."""
    value = request.args.get(name)
    return None if value is None else clean(value)


def number_in_query(name: str, default: int, highest: int, lowest: int = 1) -> int:
    """Return a whole number from the query string, from ``lowest`` to ``highest``."""
    text = request.args.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not lowest <= int(text) <= highest:
        raise InvalidInput(f"{name} must be a whole number from {lowest} to {highest}.")
    return int(text)


def flag_in_query(name: str) -> bool:
    """Return whether a flag of the query string is set: 1, true, yes or nothing at all, against 0, false, no."""
    text = request.args.get(name)
    if text is None or text.lower() in ("0", "false", "no"):
        return False
    if text.lower() in ("", "1", "true", "yes"):
        return True
    raise InvalidInput(f"{name} must be 1 or 0.")
