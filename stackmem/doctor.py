"""Checks of everything that is configured: each tries one thing for real and says what it found and what to do.

A check is a function of the runtime that returns a ``Finding``; what it raises becomes one that failed.
"""

import time
from importlib.metadata import entry_points
from typing import Any

import numpy as np
from peewee import DatabaseError, InterfaceError

from stackmem.bootstrap import Runtime
from stackmem.config import unknown_settings
from stackmem.database import transaction
from stackmem.exceptions import StackmemError, ToolsRefused
from stackmem.findings import Check, Finding
from stackmem.index_handle import IndexHandle
from stackmem.measuring.kept import nearness
from stackmem.models import Lease, Memory, Turn
from stackmem.persona import tools
from stackmem.places import place
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest, IndexFilter, IndexPoint, Purpose
from stackmem.providers import judge_model, memory_model, speaker_of
from stackmem.sound import Sound
from stackmem.surroundings import clock, disk


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
    return Finding("ok", f"{place(runtime.settings.database)}: {counts}; a commit took {took:.0f} ms.")


_REBUILT = "It cannot be opened: it is rebuilt at the next start, or by `stackmem reindex`, while nothing is found."


def index(runtime: Runtime) -> Finding:
    """Write a point, find it, take it away again."""
    handle = runtime.index
    if handle.store is None:
        return Finding("note", "The index belongs to another process.")
    if handle.current is None and not handle.change:
        is_empty = not Memory.select().exists()
        return Finding("ok", "It is made at the first start.") if is_empty else Finding("note", _REBUILT)
    if handle.current is not None and not _finds_what_it_is_given(handle):
        return Finding("failed", "A point that was written is not found: `stackmem reindex` makes the index anew.")
    waiting = Memory.select().where(Memory.outdated).count()
    kind = f"{handle.kind}, vectors of {handle.searching.fingerprint}"
    reasons = handle.reasons()
    if reasons:
        return Finding("note", f"{kind}. {' '.join(reasons)}")
    return Finding("ok", f"{kind}, {waiting} memories wait for it.")


_POINT = "mem_00000000000000000000000000"  # the time of no turn
_OWNER = "\x1fdoctor"  # no owner's name can hold this character


def _finds_what_it_is_given(handle: IndexHandle) -> bool:
    current, dim = handle.current, handle.searching.fingerprint.dim
    if current is None:
        return False
    vector = np.full(dim, dim**-0.5, np.float32)
    times = dict.fromkeys(("occurred_at", "occurred_from", "occurred_to", "said_at"), "2000-01-01T00:00:00+00:00")
    payload = {"owner": _OWNER, "status": "active", "memory_type": "episode", "entity_keys": [], **times}
    with handle.lock:
        try:
            current.upsert([IndexPoint(_POINT, vector, np.empty((0, dim), np.float32), payload)])
            return [hit.memory_id for hit in current.search(vector, IndexFilter(_OWNER), 1)] == [_POINT]
        finally:
            current.delete([_POINT])


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
    """Ask the model that talks about something it must look up."""
    given = runtime.settings
    if given.chat_is_offline:
        return Finding("note", "No chat model is set (STACKMEM_CHAT_BASE_URL, STACKMEM_CHAT_MODEL): rules answer.")
    if given.tool_mode == "json":
        return _answers(runtime.chat, "turn", given.chat_timeout_s)[0]
    try:
        finding, answer = _answers(runtime.chat, "turn", given.chat_timeout_s, with_tools=True)
    except ToolsRefused as exc:
        return Finding("note" if given.tool_mode == "auto" else "failed", str(exc))
    if answer.tool_calls or given.tool_mode == "auto":
        return finding
    return Finding(
        "note",
        f"{finding.sentence} Asked about the past it did not call search_memory: if it never does, take another model, "
        "or set STACKMEM_TOOL_MODE=json.",
    )


def memory_model_(runtime: Runtime) -> Finding:
    """Ask the model that makes memories for one word, where it is another one."""
    given = runtime.settings
    if given.memory_is_offline:
        return Finding("note", "Memories are made by rules: no model is set for that.")
    if not (given.memory_base_url or given.memory_model or given.memory_extra_body):
        return Finding("ok", "Memories are made by the chat model.")
    return _answers(memory_model(given), "remember", given.memory_timeout_s)[0]


def judge_model_(runtime: Runtime) -> Finding:
    """Ask the model that judges turns for one word, where it is another one."""
    given = runtime.settings
    if not given.judge_calls_per_day:
        return Finding("ok", "No turn is judged (STACKMEM_JUDGE_CALLS_PER_DAY=0).")
    if given.chat_is_offline:
        return Finding("note", "No turn is judged: only those that a chat model answers are.")
    if given.judge_is_offline:
        return Finding("note", "Turns are judged by rules: no model is set for that.")
    if not (given.judge_base_url or given.judge_model or given.judge_extra_body):
        return Finding("ok", "Turns are judged by the chat model.")
    return _answers(judge_model(given), "judge", given.judge_timeout_s)[0]


def ears(runtime: Runtime) -> Finding:
    """Have half a second of silence recognised."""
    transcriber, timeout_s = runtime.aloud.transcriber, runtime.settings.asr_timeout_s
    if transcriber is None:
        return Finding("note", "No speech recogniser is set (STACKMEM_ASR_BASE_URL): turns come as text.")
    started = time.perf_counter()
    heard = transcriber.transcribe(Sound(np.zeros(8000, np.int16), 16000), timeout_s)
    took = f"Half a second of silence took {time.perf_counter() - started:.1f} s."
    return Finding("note", f"{took} It heard 「{heard[:40]}」 in it.") if heard else Finding("ok", took)


def voice(runtime: Runtime) -> Finding:
    """Have one word spoken."""
    if (speaker := speaker_of(runtime.settings)) is None:
        return Finding("note", "No speech synthesis is set (STACKMEM_TTS_BASE_URL): replies are text.")
    started = time.perf_counter()
    sound = speaker.speak("はい", runtime.settings.tts_timeout_s)
    took = time.perf_counter() - started
    return Finding("ok", f"「はい」 is {sound.seconds:.1f} s long and took {took:.1f} s.")


CHECKS: dict[str, Check] = {
    "settings": settings,
    "clock": clock,
    "disk": disk,
    "database": database,
    "index": index,
    "embedder": embedder,
    "chat model": chat_model,
    "memory model": memory_model_,
    "judge model": judge_model_,
    "ears": ears,
    "voice": voice,
}


def checks() -> dict[str, Check]:
    """Return all checks by their names, those that other packages add too."""
    return CHECKS | {point.name: point.load() for point in entry_points(group="stackmem.checks")}


def examine(runtime: Runtime) -> list[dict[str, Any]]:
    """Run all checks; return ``{"name", "state", "sentence"}`` of each, in order."""
    return [{"name": name, **tried(check, runtime).__dict__} for name, check in checks().items()]


def tried(check: Check, runtime: Runtime) -> Finding:
    """Return what a check finds; an error it raises is a part that failed."""
    try:
        return check(runtime)
    except StackmemError as exc:
        return Finding("failed", str(exc))
    except (DatabaseError, InterfaceError) as exc:
        return Finding("failed", f"The database did not take it: {' '.join(str(exc).split())}.")


def _answers(
    model: ChatModel, purpose: Purpose, timeout_s: float, *, with_tools: bool = False
) -> tuple[Finding, ChatAnswer]:
    """Make one real completion: a list of models says 200 to a bad key."""
    rule = "You are a talking robot. What was said in earlier talks you look up with search_memory before you answer."
    asked = [
        {"role": "system", "content": rule if with_tools else "Answer with one word."},
        {"role": "user", "content": "先週話した、うちの猫の名前って何だったっけ？" if with_tools else "こんにちは"},
    ]
    started = time.perf_counter()
    answer = model.complete(ChatRequest(asked, purpose, timeout_s, tools("ja") if with_tools else ()))
    return Finding("ok", f"{model.name} answered in {time.perf_counter() - started:.1f} s."), answer
