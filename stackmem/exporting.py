"""Write everything of an owner as JSON lines, oldest first; ``import`` takes it back."""

import json
from collections.abc import Iterator
from datetime import tzinfo

from stackmem.clock import show_time
from stackmem.models import Alias, ForgetRequest, Memory, Session, Turn
from stackmem.shapes import memory_lines, session_line, turn_line

BATCH = 500


def export_lines(owner: str, zone: tzinfo) -> Iterator[str]:
    """Yield one JSON line a session, turn, memory, alias and request to forget; Japanese unescaped.

    Not in it: traces, measurements, clients' keys of turns, and which look made a memory. Times are to the second.
    """
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
    for alias in Alias.select().where(Alias.owner == owner).order_by(Alias.id):
        yield _line("alias", alias_line(alias, zone))
    for request in ForgetRequest.select().where(ForgetRequest.owner == owner).order_by(ForgetRequest.id):
        yield _line("forget_request", forget_request_line(request, zone))


def alias_line(alias: Alias, zone: tzinfo) -> dict[str, object]:
    """Two names of one thing; ``turn_id`` is None where a person added them."""
    names = [alias.name, alias.other_name]
    return {"names": names, "turn_id": alias.turn, "created_at": show_time(alias.created_at, zone)}


def forget_request_line(request: ForgetRequest, zone: tzinfo) -> dict[str, object]:
    """What the user asked the robot to forget, in which turn, and whether nobody has decided yet."""
    return {
        "turn_id": request.turn,
        "what": request.what,
        "created_at": show_time(request.created_at, zone),
        "is_open": request.is_open,
    }


def _turns(owner: str, after: int) -> list[Turn]:
    rows = Turn.select(Turn, Session).join(Session).where(Turn.owner == owner, Turn.id > after)
    return list(rows.order_by(Turn.id).limit(BATCH))


def _memories(owner: str, after: str) -> list[Memory]:
    rows = Memory.select().where(Memory.owner == owner, Memory.id > after, Memory.status != "forgotten")
    return list(rows.order_by(Memory.id).limit(BATCH))


def _line(kind: str, value: dict[str, object]) -> str:
    return json.dumps({"kind": kind, **value}, ensure_ascii=False)
