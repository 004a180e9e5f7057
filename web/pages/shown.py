"""What every page shows alike: its language, its words, its times."""

import re
import tomllib
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

from flask import Flask, g, redirect, render_template, request, url_for
from jinja2 import StrictUndefined
from markupsafe import Markup, escape
from werkzeug.wrappers import Response

from stackmem.clock import day_of_week
from web.access import runtime

LANGUAGES = ("ja", "en")
DONE = "done"  # the query's word for what a form has just done
SECTIONS = (
    ("talk", "pages.talk.show"),
    ("memories", "pages.memories.index"),
    ("conversations", "pages.conversations.index"),
    ("scores", "pages.scores.index"),
    ("health", "pages.health.show"),
)


@cache
def texts(language: str) -> dict[str, Any]:
    """Return the words of the pages in a language, by page."""
    return tomllib.loads((resources.files("web") / "texts" / f"{language}.toml").read_text("utf-8"))


@cache
def _sentences() -> dict[re.Pattern[str], str]:
    found = tomllib.loads((resources.files("web") / "texts" / "errors.ja.toml").read_text("utf-8"))
    return {re.compile(pattern, re.DOTALL): said for pattern, said in found.items()}


def in_japanese(sentence: str) -> str | None:
    """Return the sentence of an error in Japanese, None where it is known in English alone."""
    for pattern, said in _sentences().items():
        if found := pattern.fullmatch(sentence):
            return said.format(sentence, *found.groups())
    return None


def told(sentence: str) -> Markup:
    """Return the sentence of an error in the language of the page; where it is known in English alone, marked so."""
    if language() == "en":
        return escape(sentence)
    known = in_japanese(sentence)
    return Markup('<span lang="en">{}</span>').format(sentence) if known is None else escape(known)


def language() -> str:
    """Return what the browser asks for, ``ja`` or ``en``; Japanese where it asks for neither."""
    if "language" not in g:
        g.language = request.accept_languages.best_match(LANGUAGES, default="ja")
    return str(g.language)


def words() -> dict[str, Any]:
    """Return the words of the pages in the language of this request."""
    return texts(language())


def when(moment: datetime | str | None) -> str:
    """Return a time as people read it, in the zone of the settings; "" for None."""
    if moment is None:
        return ""
    zone = runtime().settings.zone
    given = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    try:
        local = given.astimezone(zone)
    except OverflowError:  # year 9999, or 1
        local = given
    day = day_of_week(local, zone, language())
    if language() == "ja":
        return f"{local.year}年{local.month}月{local.day}日({day}) {local.hour}:{local.minute:02}"
    return f"{day} {local:%Y-%m-%d %H:%M}"


def period(first: str, last: str) -> str:
    """Return from when to when, as days where both are whole ones."""
    if first == last:
        return when(first)
    return f"{when(first)} – {when(last)}"


def done(endpoint: str, what: str, **values: Any) -> Response:
    """Go to a page that says what was done."""
    query: dict[str, Any] = {**values, **({DONE: what} if what else {})}
    return redirect(url_for(endpoint, **query), 303)


def page(template: str, **values: Any) -> str:
    """Return a page."""
    return render_template(template, **values)


def register(app: Flask) -> None:
    """Give the templates what all of them use."""
    app.jinja_env.undefined = StrictUndefined
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters |= {"when": when, "ms": lambda value: f"{value:,.0f}", "score": lambda value: f"{value:.2f}"}
    app.jinja_env.filters["told"] = told
    app.jinja_env.globals |= {"period": period}

    @app.context_processor
    def _common() -> dict[str, Any]:
        said = words()
        return {
            "t": said,
            "language": language(),
            "sections": SECTIONS,
            "owner": g.get("owner", ""),
            "device": g.get("device"),
            "done": said["done"].get(request.args.get(DONE, "")),
        }


def choices(values: Sequence[str], group: str) -> list[tuple[str, str]]:
    """Return values with their words, for a choice."""
    return [(value, words()[group][value]) for value in values]
