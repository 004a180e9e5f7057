"""Which turns of real talk are judged, and what the judge is shown of one."""

from datetime import datetime, tzinfo
from typing import Any

from evals.judge.turn import MEMORIES, Case, Shown
from evals.nearest import nearest
from stackmem.brought import OWN_TOOLS
from stackmem.clock import show_time
from stackmem.config import OFFLINE
from stackmem.context import recent_turns
from stackmem.models import Memory, ToolTrace, Turn
from stackmem.ports import Embedder
from stackmem.score_models import Label
from stackmem.text import estimate_tokens

CONTEXT_TOKENS = 2000  # of the session before the turn: the newest turns that fit

OPEN = (Turn.state == "open") & ~Turn.imported
# A degraded turn was answered by no model, an offline one by rules; about a settled one a person decided. With
# tools of the client's own, the model was offered no search.
LIVE = (
    (Turn.state != "open")
    & ~Turn.imported
    & ~Turn.degraded
    & (Turn.model != OFFLINE)
    & ~Turn.settled
    & (Turn.prompts.is_null() | (Turn.prompts != OWN_TOOLS))
    & (Turn.user != "")
    & (Turn.reply != "")
)


def unfinished() -> Any:
    """Return the condition of live turns that are still to be judged."""
    finished = Label.select(Label.turn).where(Label.state != "waiting")
    return LIVE & Turn.id.not_in(finished)


def due_turns(now: datetime, limit: int) -> list[int]:
    """Return all owners' live turns that can be judged now, oldest first; after a bad answer a turn waits a while."""
    delayed = Label.select(Label.turn).where(Label.retry_at > now)
    rows = Turn.select(Turn.id).where(unfinished(), Turn.id.not_in(delayed)).order_by(Turn.id).limit(limit)
    return [row.id for row in rows]


def last_turns(owner: str, count: int) -> list[int]:
    """Return the owner's last ``count`` live turns, judged or not, oldest first."""
    rows = Turn.select(Turn.id).where(Turn.owner == owner, LIVE).order_by(Turn.id.desc()).limit(count)
    return [row.id for row in rows][::-1]


def case_of(turn: Turn, embedder: Embedder, zone: tzinfo) -> Case:
    """Return what the judge is shown of a turn: all as it was when the turn was answered, as far as it is known."""
    near = [_shown(memory, zone) for memory in nearest(turn.owner, turn.user, turn.received_at, embedder, MEMORIES)]
    returned = [*_returned(turn, zone), *_returned_words(turn, zone)]
    ids = {memory.id for memory in returned}
    beyond = [memory for memory in returned if memory.id not in {memory.id for memory in near}][:MEMORIES]
    return Case(
        user=turn.user,
        reply=turn.reply,
        searched=turn.searched,
        context=_context(turn),
        memories=[*near[: MEMORIES - len(beyond)], *beyond],
        returned=frozenset(ids),
    )


def _shown(memory: Memory, zone: tzinfo) -> Shown:
    return Shown(memory.id, (show_time(memory.said_at, zone) or "")[:10], memory.summary)


def _returned(turn: Turn, zone: tzinfo) -> list[Shown]:
    """Return the memories the robot was given; those forgotten since are left out."""
    rows = Memory.select().where(
        Memory.id.in_(turn.memory_ids), Memory.owner == turn.owner, Memory.status != "forgotten"
    )
    return [_shown(row, zone) for row in rows.order_by(Memory.id)]


def _returned_words(turn: Turn, zone: tzinfo) -> list[Shown]:
    """Return the turns that the robot was given while they were no memory yet."""
    hits = [hit for call in ToolTrace.select().where(ToolTrace.turn == turn) for hit in call.hits]
    ids = [identity for hit in hits if hit["memory_id"] is None for identity in hit["source_turn_ids"]]
    rows = Turn.select().where(Turn.id.in_(ids), Turn.owner == turn.owner, (Turn.user != "") | (Turn.reply != ""))
    return [
        Shown(f"turn_{row.id}", (show_time(row.at, zone) or "")[:10], f"{row.user}\n{row.reply}")
        for row in rows.order_by(Turn.id)
    ]


def _context(turn: Turn) -> list[tuple[str, str]]:
    shown, left = list[tuple[str, str]](), CONTEXT_TOKENS
    for earlier in reversed(recent_turns(turn)):
        left -= estimate_tokens(earlier.user) + estimate_tokens(earlier.reply)
        if left < 0:
            break
        shown.append((earlier.user, earlier.reply))
    return shown[::-1]
