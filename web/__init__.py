"""Flask: live turns, sessions, memories, transfer and health. ``create_app`` builds everything a process needs."""

import atexit

from flask import Flask
from werkzeug.routing import BaseConverter

from stackmem.adapters.prometheus_meter import PrometheusMeter
from stackmem.bootstrap import Runtime, build
from stackmem.config import load_settings
from stackmem.exceptions import Busy, SettingsError
from stackmem.logs import set_up
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

BODY_LIMIT = 1024 * 1024  # bytes of a JSON body; an import has its own limit


class AnyText(BaseConverter):
    """A part of a path that may hold slashes, at its beginning and in a row too: a session may have any name."""

    regex = r"[\s\S]+"
    part_isolating = False


def create_app(runtime: Runtime | None = None, *, insecure: bool = False, key: str = "") -> Flask:
    """Return the WSGI app; without a runtime it builds one and starts the threads that belong to the web process.

    ``key`` is what the command line of this machine sends to be trusted with any owner.
    """
    app = Flask("web")
    app.url_map.merge_slashes = False
    app.url_map.converters["any_text"] = AnyText
    app.json.ensure_ascii = False  # type: ignore[attr-defined]
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.config.update(MAX_CONTENT_LENGTH=BODY_LIMIT, INSECURE=insecure, KEY=key)
    app.extensions["stackmem"] = runtime or _own_runtime()
    problems.register(app, completions.shaped(problems.problem))
    access.register(app, completions.shaped(login.refuse))
    rates.register(app)
    metrics.register(app)
    for module in (turns, speech, kai, memories, transfer, health, metrics, admin, completions):
        app.register_blueprint(module.blueprint)
    pages.register(app)
    return app


def _own_runtime() -> Runtime:
    """Build the runtime of a web process started by ``waitress-serve`` or ``gunicorn``, with its threads."""
    from workers.app import CeleryQueue, check_broker, use_runtime
    from workers.embedded import Embedded

    try:
        settings = load_settings()
        if settings.log_format == "json":
            set_up(settings.log_format)
        check_broker()
        meter = PrometheusMeter()
        runtime = build(settings, owns_index=True, queue=CeleryQueue(meter), meter=meter)
    except (SettingsError, Busy) as exc:
        # `waitress-serve` and `gunicorn` shall say one line, not a stack trace.
        raise SystemExit(f"Error: {exc}") from None
    use_runtime(runtime)
    alone = settings.broker_url.startswith("memory")
    # An embedded index is this process's own, so its queue is consumed here; memory:// reaches no other process at all.
    embedded = Embedded(queues=("live", "index", "batch") if alone else ("index",), beat=alone)
    embedded.start()
    runtime.warm_up()
    with runtime.database.connection_context():
        runtime.start()

    def stop() -> None:
        embedded.stop()
        runtime.close()

    atexit.register(stop)
    return runtime
