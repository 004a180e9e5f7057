"""Forget memories: unsearchable at once, purged a day later. A tombstone stays, and nothing brings the words back."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from peewee import Cast

from stackmem.browsing import memory_of
from stackmem.database import transaction
from stackmem.exceptions import NotFound
from stackmem.forget_requests import close, open_requests
from stackmem.making import changed, replaced
from stackmem.models import (
    Alias,
    ForgetRequest,
    Job,
    Memory,
    MemoryEntity,
    MemorySource,
    MemoryVector,
    PointDeletion,
    ToolTrace,
    Turn,
)
from stackmem.naming import spellings
from stackmem.score_models import Label
from stackmem.settling import settle
from stackmem.sources import source_turns
from stackmem.text import content_pieces

PURGE_AFTER = timedelta(hours=24)
SCRUBBED: dict[str, Any] = {"arguments": {}, "note": "", "looked_for": None, "result": None}
PIECES = 2  # of the forgotten words in a reply that recalled them: then it repeats them


@dataclass(frozen=True)
class Forgotten:
    """What was forgotten: the memories, their histories with them, and when their words go."""

    memory_ids: list[str]
    purge_at: datetime


def forget(owner: str, ids: Sequence[str], now: datetime, *, turns: bool = False, at_once: bool = False) -> Forgotten:
    """Make memories unsearchable, and due to be purged after a day or ``at_once``; ``turns``: with their words.

    What they replaced is forgotten with them: an older version tells the same. Raises NotFound before anything changes.
    """
    purge_at = now if at_once else now + PURGE_AFTER
    asked = open_requests(owner)  # before the transaction: it reads much
    with transaction():
        wanted = [memory_of(owner, identity) for identity in dict.fromkeys(ids)]
        rows = _with_history(owner, wanted)
        gone = {row.id for row in rows}
        for row in rows:
            first = row.status != "forgotten"
            Memory.update(
                status="forgotten",
                status_before=row.status if first else row.status_before,
                forgotten_at=now if first else row.forgotten_at,
                purge_at=purge_at if first else min(purge_at, row.purge_at),
                purge_turns=turns or row.purge_turns,
                version=Memory.version + 1,
                outdated=False,
            ).where(Memory.id == row.id).execute()
            PointDeletion.insert(memory_id=row.id, owner=owner).on_conflict_ignore().execute()
        settle(owner, [row.id for row in rows])
        _take_back_sentences(rows, gone)
        close([request for request, about in asked if about and gone.issuperset(m.id for m in about)])
    return Forgotten([row.id for row in rows], purge_at)


def undo(owner: str, ids: Sequence[str]) -> list[str]:
    """Bring back memories that are not purged yet, with their histories; return their ids. Raises NotFound."""
    with transaction():
        wanted = [memory_of(owner, identity) for identity in dict.fromkeys(ids)]
        if awake := [row.id for row in wanted if row.status != "forgotten"]:
            raise NotFound(f"{awake[0]} is not forgotten.")
        rows = [row for row in _with_history(owner, _with_successors(wanted)) if row.status == "forgotten"]
        for row in rows:
            Memory.update(
                **changed(
                    status=row.status_before, status_before=None, forgotten_at=None, purge_at=None, purge_turns=False
                )
            ).where(Memory.id == row.id).execute()
            PointDeletion.delete().where(PointDeletion.memory_id == row.id).execute()
        _give_back_sentences(rows)
    return [row.id for row in rows]


def _with_history(owner: str, rows: Sequence[Memory]) -> list[Memory]:
    """Return these memories and all that they replaced, over any number of steps; a tombstone has no link."""
    return [*rows, *replaced(owner, [row.id for row in rows])]


def _with_successors(rows: Sequence[Memory]) -> list[Memory]:
    """Return these memories and the forgotten ones that replaced them: nobody would find an old version alone."""
    found = {row.id: row for row in rows}
    for row in rows:
        step: Memory | None = row
        while step is not None and step.superseded_by is not None:
            step = Memory.get_or_none(Memory.id == step.superseded_by, Memory.purge_at.is_null(False))
            if step is None or step.id in found:
                break
            found[step.id] = step
    return list(found.values())


def _take_back_sentences(rows: Sequence[Memory], gone: set[str]) -> None:
    """Take what these memories handed on out of those that replaced them and stay."""
    for row in rows:
        if row.handed_on:
            for heir in _heirs(row, gone):
                if row.handed_on in heir.summary:
                    summary = heir.summary.replace(row.handed_on, "").strip()
                    Memory.update(**changed(summary=summary or heir.topic)).where(Memory.id == heir.id).execute()


def _give_back_sentences(rows: Sequence[Memory]) -> None:
    gone = {row.id for row in rows}
    for row in rows:
        if row.handed_on:
            for heir in _heirs(row, gone):
                if row.handed_on not in heir.summary:
                    Memory.update(**changed(summary=f"{heir.summary}{row.handed_on}")).where(
                        Memory.id == heir.id
                    ).execute()


def _heirs(row: Memory, gone: set[str]) -> list[Memory]:
    """Return what replaced a memory, over all steps, without those that go with it."""
    heirs, step = list[Memory](), row
    while step.superseded_by is not None:
        found = Memory.get_or_none(Memory.id == step.superseded_by, Memory.status != "forgotten")
        if found is None or found.id in gone or found in heirs:
            break
        heirs.append(found)
        step = found
    return heirs


# --- purge -----------------------------------------------------------------------------------------------------------


def purge_due(now: datetime) -> int:
    """Purge what is due, of every owner; return how many memories. A job then scrubs the files they stood in."""
    with transaction():
        rows = list(Memory.select().where(Memory.purge_at <= now).order_by(Memory.id))
        for row in rows:
            _purge(row)
        if rows and not Job.select().where(Job.kind == "scrub", Job.state == "waiting").exists():
            Job.create(kind="scrub", created_at=now)
    return len(rows)


def _purge(row: Memory) -> None:
    turns = source_turns([row.id])[row.id]
    words = [row.topic, row.summary, *row.entities, *(text for turn in turns for text in (turn.user, turn.reply))]
    told = _scrub_traces(row, {turn.id for turn in turns})
    _scrub_labels(row, [*turns, *told, *_requests_turns(row.owner)])
    if row.purge_turns:
        _blank_repetitions(row, [*told, *_requests_turns(row.owner)], " ".join(words))
    Alias.delete().where(Alias.owner == row.owner, Alias.turn.in_([turn.id for turn in turns])).execute()
    for table in (MemoryVector, MemoryEntity, MemorySource):
        table.delete().where(table.memory == row.id).execute()
    if row.purge_turns:
        _blank(turns)
    _skip_unused(turns)
    Memory.update(
        topic="", summary="", entities=[], entity_keys=[], neighbours=[], superseded_by=None, status_before=None,
        handed_on="", occurred_at=row.forgotten_at, occurred_from=row.forgotten_at, occurred_to=row.forgotten_at,
        said_at=row.forgotten_at, purge_at=None, purge_turns=False,
    ).where(Memory.id == row.id).execute()  # fmt: skip


def _blank(turns: Sequence[Turn]) -> None:
    """Delete the words of turns; other memories lose them as a source."""
    ids = [turn.id for turn in turns]
    others = {row.memory_id for row in MemorySource.select().where(MemorySource.turn.in_(ids))}
    MemorySource.delete().where(MemorySource.turn.in_(ids)).execute()
    _embed_again(others)
    Turn.update(user="", reply="", emotion="neutral", action="none").where(Turn.id.in_(ids)).execute()
    ToolTrace.update(**SCRUBBED).where(ToolTrace.turn.in_(ids)).execute()
    ForgetRequest.update(what="", is_open=False).where(ForgetRequest.turn.in_(ids)).execute()


def _embed_again(memory_ids: Iterable[str]) -> None:
    """Drop the vectors made from words that have gone: they are made again from what is left."""
    ids = list(memory_ids)
    MemoryVector.delete().where(MemoryVector.memory.in_(ids)).execute()
    Memory.update(**changed()).where(Memory.id.in_(ids), Memory.status != "forgotten").execute()


def _skip_unused(turns: Iterable[Turn]) -> None:
    used = MemorySource.select(MemorySource.turn)
    ids = [turn.id for turn in turns]
    Turn.update(state="skipped").where(Turn.id.in_(ids), Turn.state == "kept", Turn.id.not_in(used)).execute()


def _scrub_traces(row: Memory, turn_ids: set[int]) -> list[Turn]:
    """Take a memory, and its source turns wherever a tool showed them, out of the traces; return the turns they are of.

    ``turn_ids`` are those of its source turns: shown as its words, as neighbours, or from when they were no memory yet.
    """
    hits, result = Cast(ToolTrace.hits, "TEXT"), Cast(ToolTrace.result, "TEXT")
    # PostgreSQL keeps JSON with its keys in another order: the turn's may be the last.
    shown = [result.contains(f'"turn_id": {turn_id}{after}') for turn_id in turn_ids for after in ",}"]
    possible = reduce(operator.or_, shown, hits.contains(row.id) | result.contains(row.id) | hits.contains("null"))
    told: dict[int, Turn] = {}
    for trace in ToolTrace.select(ToolTrace, Turn).join(Turn).where(Turn.owner == row.owner, possible):
        left = [hit for hit in trace.hits if not _is_about(hit, row.id, turn_ids)]
        if len(left) < len(trace.hits) or _shows(trace.result, row.id, turn_ids):
            ToolTrace.update(**SCRUBBED, hits=left).where(ToolTrace.id == trace.id).execute()
            told[trace.turn.id] = trace.turn
    return list(told.values())


def _scrub_labels(row: Memory, turns: Sequence[Turn]) -> None:
    """Delete what the judge wrote where it was shown the memory, or (as context) one of these turns."""
    near = Turn.select(Turn.id).where(Turn.session.in_(list({turn.session_id for turn in turns})))
    shown = Cast(Label.shown_ids, "TEXT").contains(row.id)
    Label.update(reason="").where(Label.owner == row.owner, shown | Label.turn.in_(near)).execute()


def _is_about(hit: dict[str, Any], memory_id: str, turn_ids: set[int]) -> bool:
    if hit.get("memory_id") is None:
        return not turn_ids.isdisjoint(hit.get("source_turn_ids", []))
    return bool(hit["memory_id"] == memory_id)


def _shows(result: Any, memory_id: str, turn_ids: set[int]) -> bool:
    if isinstance(result, dict):
        if result.get("memory_id") == memory_id or result.get("turn_id") in turn_ids:
            return True
        result = list(result.values())
    return isinstance(result, list) and any(_shows(inner, memory_id, turn_ids) for inner in result)


def _requests_turns(owner: str) -> list[Turn]:
    asked = ForgetRequest.select(ForgetRequest.turn).where(ForgetRequest.owner == owner)
    return list(Turn.select().where(Turn.id.in_(asked)))


def _blank_repetitions(row: Memory, turns: Sequence[Turn], words: str) -> None:
    """Delete what repeats the words that go, where a turn had recalled them or asked to forget them.

    What the user said there beside them stays where it is a source of another memory, or may still become one.
    """
    pieces = content_pieces(words)
    for turn in turns:
        others = [link.memory_id for link in MemorySource.select().where(MemorySource.turn == turn.id)]
        matters = bool(others) or turn.state in ("pending", "failed")
        gone = {"reply": ""} if _repeats(turn.reply, pieces, row) else {}
        if _repeats(turn.user, pieces, row) and (not matters or content_pieces(turn.user) <= pieces):
            gone["user"] = ""
        if gone:
            Turn.update(**gone).where(Turn.id == turn.id).execute()
            _embed_again(others)


def _repeats(said: str, pieces: frozenset[str], row: Memory) -> bool:
    """Tell whether words repeat those of a memory: a name of it, or any two pieces."""
    return len(pieces & content_pieces(said)) >= PIECES or any(spellings(said, key) for key in row.entity_keys)
