"""Checks of everything that is configured: each tries one thing for real and says what it found and what to do.

A check is a function of the runtime that returns a ``Finding``; what it raises becomes one that failed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from peewee import DatabaseError, InterfaceError

from stackmem.bootstrap import Runtime, memory_model
from stackmem.config import unknown_settings
from stackmem.database import transaction
from stackmem.exceptions import StackmemError
from stackmem.measuring.kept import nearness
from stackmem.models import Lease, Memory, Turn
from stackmem.ports import ChatModel, ChatRequest, Purpose

State = Literal["ok", "note", "failed"]


@dataclass(frozen=True)
class Finding:
    """What a check found: ``ok``, ``note`` (works, but somebody should know) or ``failed``; one sentence."""

    state: State
    sentence: str


Check = Callable[[Runtime], Finding]


def settings(runtime: Runtime) -> Finding:
    """Look for settings that nothing reads."""
    unknown = unknown_settings()
    if unknown:
        return Finding("note", " ".join(unknown))
    return Finding("ok", f"Every STACKMEM_ setting is known; home is {runtime.settings.home}.")


def database(runtime: Runtime) -> Finding:
    """Write and read."""
    started = time.perf_counter()
    with transaction():
        Lease.delete().where(Lease.name == "doctor").execute()
        Lease.create(name="doctor", holder="doctor", until=runtime.clock.now())
        Lease.delete().where(Lease.name == "doctor").execute()
    took = (time.perf_counter() - started) * 1000
    counts = f"{Turn.select().count()} turns, {Memory.select().count()} memories"
    return Finding("ok", f"{runtime.settings.database.split('@')[-1]}: {counts}; a commit took {took:.0f} ms.")


_REBUILT = "It cannot be opened: it is rebuilt at the next start, or by `stackmem reindex`, while nothing is found."


def index(runtime: Runtime) -> Finding:
    """Read a point where there is any."""
    handle = runtime.index
    if handle.store is None:
        return Finding("note", "The index belongs to another process.")
    if handle.current is None and not handle.change:
        is_empty = not Memory.select().exists()
        return Finding("ok", "It is made at the first start.") if is_empty else Finding("note", _REBUILT)
    if handle.current is not None:
        next(iter(handle.current.scan()), None)
    waiting = Memory.select().where(Memory.outdated).count()
    kind = f"{handle.kind}, vectors of {handle.searching.fingerprint}"
    reasons = handle.reasons()
    if reasons:
        return Finding("note", f"{kind}. {' '.join(reasons)}")
    return Finding("ok", f"{kind}, {waiting} memories wait for it.")


def embedder(runtime: Runtime) -> Finding:
    """Embed a query."""
    it = runtime.index.embedder
    it.load()
    started = time.perf_counter()
    it.embed_queries(["猫の名前は何だったっけ"])
    took = (time.perf_counter() - started) * 1000
    is_near, sentence = nearness(runtime.settings.home, it.fingerprint)
    return Finding("ok" if is_near else "note", f"{it.fingerprint}: a query took {took:.0f} ms. {sentence}".rstrip())


def chat_model(runtime: Runtime) -> Finding:
    """Ask the model that talks for one word."""
    if runtime.settings.chat_is_offline:
        return Finding("note", "No chat model is set (STACKMEM_CHAT_BASE_URL, STACKMEM_CHAT_MODEL): rules answer.")
    return _answers(runtime.chat, "turn", runtime.settings.chat_timeout_s)


def memory_model_(runtime: Runtime) -> Finding:
    """Ask the model that makes memories for one word, where it is another one."""
    given = runtime.settings
    if given.memory_is_offline:
        return Finding("note", "Memories are made by rules: no model is set for that.")
    if not (given.memory_base_url or given.memory_model or given.memory_extra_body):
        return Finding("ok", "Memories are made by the chat model.")
    return _answers(memory_model(given), "remember", given.memory_timeout_s)


CHECKS: dict[str, Check] = {
    "settings": settings,
    "database": database,
    "index": index,
    "embedder": embedder,
    "chat model": chat_model,
    "memory model": memory_model_,
}


def examine(runtime: Runtime) -> list[dict[str, Any]]:
    """Run all checks; return ``{"name", "state", "sentence"}`` of each, in order."""
    return [{"name": name, **_tried(check, runtime).__dict__} for name, check in CHECKS.items()]


def _tried(check: Check, runtime: Runtime) -> Finding:
    try:
        return check(runtime)
    except StackmemError as exc:
        return Finding("failed", str(exc))
    except (DatabaseError, InterfaceError) as exc:
        return Finding("failed", f"The database did not take it: {' '.join(str(exc).split())}.")


def _answers(model: ChatModel, purpose: Purpose, timeout_s: float) -> Finding:
    """Make one real completion: a list of models says 200 to a bad key."""
    asked = [{"role": "system", "content": "Answer with one word."}, {"role": "user", "content": "こんにちは"}]
    started = time.perf_counter()
    model.complete(ChatRequest(asked, purpose, timeout_s))
    return Finding("ok", f"{model.name} answered in {time.perf_counter() - started:.1f} s.")
