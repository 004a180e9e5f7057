"""The addresses of the app, as the app itself lists them: a new one cannot be forgotten."""

import re
from types import SimpleNamespace
from typing import Any

from web import create_app


def routes() -> list[tuple[str, str, str]]:
    """Return (method, rule, endpoint) of every address, HEAD and OPTIONS left out."""
    app = create_app(SimpleNamespace())  # type: ignore[arg-type]
    rules: Any = app.url_map.iter_rules()
    return [(m, rule.rule, rule.endpoint) for rule in rules for m in sorted(rule.methods - {"HEAD", "OPTIONS"})]


def filled(rule: str, **values: str) -> str:
    """Return a rule as a path: each part in <…> replaced by the value of its name, or by 1."""
    return re.sub(r"<(?:\w+:)?(\w+)>", lambda part: values.get(part[1], "1"), rule)


def as_openapi(rule: str) -> str:
    """Return a rule as OpenAPI writes it; the names of its parts count for nothing."""
    return re.sub(r"<[^>]+>", "{}", rule)
