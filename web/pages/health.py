"""Health: what runs where, what waits, what went wrong and what to do about it, storage, calls of today."""

import shutil
from pathlib import Path
from typing import Any

from flask import Blueprint, g

from evals.allowance import Allowance
from stackmem import __version__
from stackmem.bootstrap import Runtime
from stackmem.config import OFFLINE, Settings
from stackmem.doctor import examine
from stackmem.places import place
from stackmem.standing import calls_since, last_comparison, troubles, waiting
from stackmem.surroundings import files_under, taken_by
from web.access import runtime
from web.pages.shown import page

blueprint = Blueprint("health", __name__)

NOT_SET = "–"


@blueprint.get("/health")
def show() -> str:
    """Show how things stand; no model is called."""
    return _page([])


@blueprint.post("/health")
def check() -> str:
    """Try everything that is configured, as somebody asked; a model is asked for one word."""
    return _page(examine(runtime()))


def _page(checks: list[dict[str, Any]]) -> str:
    now, settings = runtime().clock.now(), runtime().settings
    midnight = now.astimezone(settings.zone).replace(hour=0, minute=0, second=0, microsecond=0)
    found = waiting(g.owner, now)
    allowance = Allowance(settings.judge_calls_per_day, runtime().clock, settings.zone)
    return page(
        "health.html",
        version=__version__,
        parts_of=parts(runtime()),
        reasons=runtime().reasons(),
        ready=runtime().index.current is not None,
        waiting=found,
        troubles=troubles(g.owner, now),
        storage=storage(settings),
        calls=calls_since(g.owner, midnight),
        judge_calls=(allowance.used(), allowance.per_day),
        judge_down=allowance.is_down(),
        checks=checks,
        compared=last_comparison(),
        live=not checks and bool(found.turns or found.memories or found.jobs),
    )


def parts(now: Runtime) -> list[tuple[str, str]]:
    """Return what does what: a name of a part, and what it is; never a key or a password."""
    settings = now.settings
    return [
        ("chat", _model(settings, "chat")),
        ("memory", _model(settings, "memory")),
        ("judge", _model(settings, "judge")),
        ("embedder", f"{now.index.embedder.fingerprint.name}, {now.index.embedder.fingerprint.dim}"),
        ("asr", f"{settings.asr_model}, {place(settings.asr_base_url)}" if settings.hears else NOT_SET),
        ("tts", f"{settings.tts_model}, {place(settings.tts_base_url)}" if settings.speaks else NOT_SET),
        ("index", f"{now.index.kind}"),
        ("database", place(settings.database)),
        ("broker", place(settings.broker_url)),
        ("persona", now.persona.name),
        ("home", str(settings.home)),
    ]


def _model(settings: Settings, kind: str) -> str:
    if getattr(settings, f"{kind}_is_offline"):
        return OFFLINE
    model = getattr(settings, f"{kind}_model")
    model = model if model and model != OFFLINE else settings.chat_model
    return f"{model}, {place(getattr(settings, f'{kind}_base_url') or settings.chat_base_url)}"


def storage(settings: Settings) -> dict[str, int | None]:
    """Return bytes: of the database, None where it is elsewhere; of the index; that are free on the disk."""
    file = Path(settings.database.removeprefix("sqlite:///")) if settings.database.startswith("sqlite:") else None
    files = [file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))] if file else []
    return {
        "database": taken_by(files) if file else None,
        "index": taken_by(files_under(settings.index_folder)),
        "free": shutil.disk_usage(settings.home).free,
    }
