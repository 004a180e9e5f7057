"""Why a turn was answered as it was: what was searched, found and shown; and why a memory was not among it."""

from datetime import tzinfo
from typing import Any

from stackmem import listing
from stackmem.clock import show_time
from stackmem.exceptions import NotFound, StackmemError
from stackmem.models import Memory, ToolTrace, Turn
from stackmem.recall import CANDIDATES, POOL, Recall
from stackmem.search_arguments import SearchArguments, read_arguments, widened
from stackmem.shapes import turn_with_trace


def turn_of(owner: str, turn_id: str) -> Turn:
    """Return a turn of this owner by the number a client gave. Raises NotFound."""
    number = int(turn_id) if turn_id.isascii() and turn_id.isdigit() and len(turn_id) < 19 else -1
    turn = Turn.get_or_none(Turn.id == number, Turn.owner == owner)
    if turn is None:
        raise NotFound(f"There is no turn {turn_id[:40]}.")
    return turn


def why(turn: Turn, zone: tzinfo) -> dict[str, Any]:
    """Return a turn with its trace; of each call also what was looked for, given to the model, and is there now."""
    shown = turn_with_trace(turn, zone)
    rows = list(ToolTrace.select().where(ToolTrace.turn == turn).order_by(ToolTrace.ordinal))
    memories = {hit["memory_id"] for row in rows for hit in row.hits if hit["memory_id"]}
    now = {row.id: row for row in Memory.select().where(Memory.id.in_(list(memories)), Memory.owner == turn.owner)}
    for call, row in zip(shown["trace"]["calls"], rows, strict=True):
        call |= {"looked_for": row.looked_for, "result": row.result}
        call["hits"] = [hit | _as_it_is(now.get(hit["memory_id"])) for hit in row.hits]
    return shown | {"verdict": verdict(turn, rows)}


def _as_it_is(memory: Memory | None) -> dict[str, Any]:
    if memory is None:
        return {}
    return {"topic": memory.topic, "summary": memory.summary, "status": memory.status}


def verdict(turn: Turn, calls: list[ToolTrace]) -> str:
    """Return in one sentence how the reply came about."""
    if turn.imported:
        return "This turn was imported: its reply was not made here."
    if turn.settled and not (turn.user or turn.reply):
        return "The words of this turn were deleted, as somebody asked."
    if turn.state == "open":
        return "This turn is not answered yet."
    if turn.degraded:
        return "The chat model did not answer in time, or its service refused: the robot said a fallback line."
    searches = [call for call in calls if call.tool == "search_memory"]
    if not searches:
        return "The model answered without asking for a search."
    found = len({hit["memory_id"] or tuple(hit["source_turn_ids"]) for call in searches for hit in call.hits})
    return f"The model asked for {len(searches)} search(es), and was shown {found} candidate(s)."


def why_not(recall: Recall, turn: Turn, memory_id: str, zone: tzinfo) -> dict[str, Any]:
    """Return why a memory was not shown in this turn: one sentence a search, as things are now.

    Raises NotFound for a memory that is not of the turn's owner.
    """
    memory = listing.one(turn.owner, memory_id)
    calls = ToolTrace.select().where(ToolTrace.turn == turn, ToolTrace.tool == "search_memory")
    reasons = [_reason(recall, call, memory, zone) for call in calls.order_by(ToolTrace.ordinal)]
    if not reasons:
        reasons = ["Nothing was searched in this turn."]
    if memory.created_at > turn.received_at:
        reasons.insert(0, f"It was made after this turn, at {show_time(memory.created_at, zone)}.")
    return {"memory_id": memory.id, "status": memory.status, "reasons": reasons}


def _reason(recall: Recall, call: ToolTrace, memory: Memory, zone: tzinfo) -> str:
    if any(hit["memory_id"] == memory.id for hit in call.hits):
        return "It was shown."
    if memory.status != "active":
        return f"It is {memory.status}: only active memories are searched."
    try:
        arguments = widened(read_arguments(memory.owner, call.arguments, zone))
    except StackmemError as exc:
        return f"The search itself failed: {exc}"
    return _mismatch(arguments, memory) or _place(recall, arguments, memory)


def _mismatch(arguments: SearchArguments, memory: Memory) -> str:
    where = arguments.where
    if where.entity_keys and not set(where.entity_keys) & set(memory.entity_keys):
        return (
            f"The search was for {', '.join(where.entity_keys)}; its names are {', '.join(memory.entities) or 'none'}."
        )
    if where.memory_type and where.memory_type != memory.memory_type:
        return f"The search was for {where.memory_type}; it is {memory.memory_type}."
    said = _within(where.since, where.until, memory.said_at, memory.said_at)
    if not (said or _within(where.since, where.until, memory.occurred_from, memory.occurred_to)):
        return "The search was for another time."
    return ""


def _within(since: Any, until: Any, first: Any, last: Any) -> bool:
    return (since is None or last >= since) and (until is None or first <= until)


def _place(recall: Recall, arguments: SearchArguments, memory: Memory) -> str:
    similarity, floor = recall.similarity(arguments, memory.id)
    if similarity is None:
        return f"It is not among the {POOL} nearest, or not in the index yet."
    if similarity < floor:
        return f"Its similarity to the query is {similarity:.2f}; below {floor:.2f} nothing counts."
    ranked = [candidate.memory.id for candidate in recall.find(arguments, limit=POOL)]
    if memory.id not in ranked:
        return "It is filtered out."
    place = ranked.index(memory.id) + 1
    return f"It is number {place} of {len(ranked)}; {CANDIDATES} at most are shown (similarity {similarity:.2f})."
