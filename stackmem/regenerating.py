"""Another reply to a turn that is stored already: "regenerate", or the end of what a client's own tools began."""

from stackmem.database import lock_row
from stackmem.making import changed
from stackmem.models import Memory, MemorySource, ToolTrace, Turn


def make_way(turn: Turn) -> str:
    """Prepare a stored turn for another reply, inside the transaction that writes it; return the state it then has.

    Its trace goes. It is looked at again, unless memories were made of it (those are indexed with the new reply) or a
    person decided about it. What the user said, and so its uid, stays.
    """
    lock_row(turn)
    stored = Turn.get_by_id(turn.id)
    ToolTrace.delete().where(ToolTrace.turn == turn.id).execute()
    of_turn = MemorySource.select(MemorySource.memory).where(MemorySource.turn == turn.id)
    Memory.update(**changed()).where(Memory.id.in_(of_turn), Memory.status != "forgotten").execute()
    return str(stored.state) if stored.settled or stored.state == "kept" else "pending"
