"""What the address of a page asks for."""

from flask import request

from stackmem.text import clean

HIGHEST = 100_000  # page


def page_number() -> int:
    """Return which page is wanted, 1 where that is not said or no number."""
    text = request.args.get("page", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1
    return min(max(number, 1), HIGHEST)


def asked(name: str) -> str | None:
    """Return a text of the query; None where nothing is filled in."""
    return clean(request.args.get(name, "")).strip() or None


def filled(name: str) -> str:
    """Return a field of the form that was sent, its line ends as Python's."""
    return clean(request.form.get(name, "")).replace("\r\n", "\n").strip()
