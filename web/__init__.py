"""Flask: live turns, sessions, memories, transfer and health. ``create_app`` builds everything a process needs."""

import secrets

from flask import Flask
from werkzeug.routing import BaseConverter, IntegerConverter, Map

from stackmem.bootstrap import Runtime
from web import (
    access,
    admin,
    completions,
    health,
    kai,
    memories,
    metrics,
    pages,
    problems,
    rates,
    speech,
    transfer,
    turns,
)
from web.pages import login
from web.process import own_runtime

BODY_LIMIT = 1024 * 1024  # bytes of a JSON body; an import has its own limit


class RowNumber(IntegerConverter):
    """The number of a row: what no database can hold is not found."""

    def __init__(self, url_map: Map):
        super().__init__(url_map, max=2**63 - 1)


class AnyText(BaseConverter):
    """A part of a path that may hold slashes, at its beginning and in a row too: a session may have any name."""

    regex = r"[\s\S]+"
    part_isolating = False


def create_app(runtime: Runtime | None = None, *, insecure: bool = False, key: str = "") -> Flask:
    """Return the WSGI app; without a runtime it builds one and starts the threads that belong to the web process.

    ``key`` is what the command line of this machine sends to be trusted with any owner; without one, one is made.
    """
    app = Flask("web")
    app.url_map.merge_slashes = False
    app.url_map.converters |= {"any_text": AnyText, "int": RowNumber}
    app.json.ensure_ascii = False  # type: ignore[attr-defined]
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.config.update(MAX_CONTENT_LENGTH=BODY_LIMIT, INSECURE=insecure, KEY=key or secrets.token_urlsafe(32))
    app.extensions["stackmem"] = runtime or own_runtime(app.config["KEY"])
    problems.register(app, completions.shaped(problems.problem))
    access.register(app, completions.shaped(login.refuse))
    rates.register(app)
    metrics.register(app)
    for module in (turns, speech, kai, memories, transfer, health, metrics, admin, completions):
        app.register_blueprint(module.blueprint)
    pages.register(app)
    return app
