"""Write everything of an owner as JSON lines, oldest first; ``import`` takes it back."""

import json
from collections.abc import Iterator
from datetime import tzinfo

from stackmem.models import Memory, Session, Turn
from stackmem.shapes import memory_lines, session_line, turn_line

BATCH = 500


def export_lines(owner: str, zone: tzinfo) -> Iterator[str]:
    """Yield one JSON line a session, turn and memory; Japanese unescaped."""
    for session in Session.select().where(Session.owner == owner).order_by(Session.id):
        yield _line("session", session_line(session, zone))
    after = 0
    while turns := _turns(owner, after):
        for turn in turns:
            yield _line("turn", turn_line(turn, zone))
        after = turns[-1].id
    last = ""
    while memories := _memories(owner, last):
        for line in memory_lines(memories, zone):
            yield _line("memory", line)
        last = memories[-1].id


def _turns(owner: str, after: int) -> list[Turn]:
    rows = Turn.select(Turn, Session).join(Session).where(Turn.owner == owner, Turn.id > after)
    return list(rows.order_by(Turn.id).limit(BATCH))


def _memories(owner: str, after: str) -> list[Memory]:
    rows = Memory.select().where(Memory.owner == owner, Memory.id > after, Memory.status != "forgotten")
    return list(rows.order_by(Memory.id).limit(BATCH))


def _line(kind: str, value: dict[str, object]) -> str:
    return json.dumps({"kind": kind, **value}, ensure_ascii=False)
