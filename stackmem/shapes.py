"""The JSON shapes of rows as they go out: to HTTP, the command line and exports."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any

from stackmem.body import word_for
from stackmem.clock import show_time
from stackmem.models import Memory, Session, ToolTrace, Turn, TurnJob
from stackmem.naming import display_forms
from stackmem.sources import source_turn_ids


def turn_answer(turn: Turn, client: str = "") -> dict[str, Any]:
    """What the robot gets for a turn; with ``client`` its own word for the emotion."""
    return {
        "turn_id": turn.id,
        "session_id": turn.session.name,
        "text": turn.user,
        "reply": turn.reply,
        "emotion": word_for(client, turn.emotion),
        "action": turn.action,
        "audio_url": None,
        "searched": turn.searched,
        "memory_ids": turn.memory_ids,
        "degraded": turn.degraded,
        "model": turn.model,
    }


def job_line(job: TurnJob, turn: Turn | None, client: str = "") -> dict[str, Any]:
    """A job that a robot polls for; with the whole answer once it is done, with the reason where it failed."""
    line = {"job_id": job.id, "state": job.state}
    if job.state == "failed":
        return line | {"detail": job.message}
    return line | (turn_answer(turn, client) if turn else {})


def silence(session_id: str | None) -> dict[str, Any]:
    """What the robot gets where nothing was said: the same fields, and there is no turn."""
    return {
        "turn_id": None,
        "session_id": session_id,
        "text": "",
        "reply": "",
        "emotion": "neutral",
        "action": "none",
        "audio_url": None,
        "searched": False,
        "memory_ids": [],
        "degraded": False,
        "model": None,
        "silence": True,
    }


def turn_with_trace(turn: Turn, zone: tzinfo) -> dict[str, Any]:
    """A turn with everything that is known of how its reply came about."""
    calls = ToolTrace.select().where(ToolTrace.turn == turn).order_by(ToolTrace.ordinal)
    return turn_answer(turn) | {
        "session_seq": turn.session.seq,
        "at": show_time(turn.at, zone),
        "received_at": show_time(turn.received_at, zone),
        "state": turn.state,
        "trace": {
            "calls": [
                {
                    "tool": call.tool,
                    "arguments": call.arguments,
                    "hits": call.hits,
                    "relaxed": call.relaxed,
                    "note": call.note,
                    "duration_ms": call.duration_ms,
                }
                for call in calls
            ],
            "model_calls": turn.model_calls,
            "tokens": turn.tokens,
            "durations_ms": turn.durations_ms,
        },
    }


def turn_line(turn: Turn, zone: tzinfo) -> dict[str, Any]:
    """A turn as exported, and as the source of a memory."""
    return {
        "turn_id": turn.id,
        "uid": turn.uid,
        "session_id": turn.session.name,
        "session_seq": turn.session.seq,
        "ordinal": turn.ordinal,
        "at": show_time(turn.at, zone),
        "received_at": show_time(turn.received_at, zone),
        "user": turn.user,
        "reply": turn.reply,
        "emotion": turn.emotion,
        "action": turn.action,
        "state": turn.state,
        "settled": turn.settled,
        "searched": turn.searched,
        "memory_ids": turn.memory_ids,
        "degraded": turn.degraded,
        "model": turn.model,
    }


def session_line(session: Session, zone: tzinfo) -> dict[str, Any]:
    """A session as listed and exported."""
    return {
        "session_id": session.name,
        "session_seq": session.seq,
        "named": session.named,
        "device": session.device,
        "started_at": show_time(session.started_at, zone),
        "received_at": show_time(session.received_at, zone),
        "ended_at": show_time(session.ended_at, zone),
        "both_speakers": session.both_speakers,
        "imported": session.imported is not None,
    }


def memory_line(
    memory: Memory, zone: tzinfo, sources: Sequence[int], forms: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A memory as shown, listed and exported; ``forms`` are the spellings of its entity keys said most often."""
    return {
        "memory_id": memory.id,
        "topic": memory.topic,
        "summary": memory.summary,
        "entities": shown_entities(memory, forms or {}),
        "memory_type": memory.memory_type,
        "occurred_at": show_time(memory.occurred_at, zone),
        "occurred_from": show_time(memory.occurred_from, zone),
        "occurred_to": show_time(memory.occurred_to, zone),
        "said_at": show_time(memory.said_at, zone),
        "source_turn_ids": list(sources),
        "status": memory.status,
        "superseded_by": memory.superseded_by,
        "owner": memory.owner,
        "entity_keys": memory.entity_keys,
        "revision": memory.revision,
        "origin": memory.origin,
    }


def memory_lines(memories: Sequence[Memory], zone: tzinfo) -> list[dict[str, Any]]:
    """Memories as listed, their source turns read in one query."""
    ids = source_turn_ids([memory.id for memory in memories])
    forms = forms_of(memories)
    return [memory_line(memory, zone, ids[memory.id], forms) for memory in memories]


def forms_of(memories: Sequence[Memory]) -> dict[str, str]:
    """Return how the names in these memories of one owner are shown."""
    keys = {key for memory in memories for key in memory.entity_keys}
    return display_forms(memories[0].owner, keys) if keys else {}


def shown_entities(memory: Memory, forms: Mapping[str, str]) -> list[str]:
    """Return a memory's names in the spelling said most often."""
    return [forms.get(key, name) for key, name in zip(memory.entity_keys, memory.entities, strict=False)]
