"""Turns that a person decided about: no look and no rebuild takes them again."""

from collections.abc import Iterable, Sequence

from stackmem.models import Memory, MemorySource, Turn


def settle(owner: str, ids: Sequence[str]) -> None:
    """Take the turns of these memories out of every later look and rebuild.

    A memory that shares turns with them can then not be made again either: it is kept as it is, and its turns with it.
    """
    turns: set[int] = set()
    memories, newly = set(ids), set(ids)
    while newly:
        found = {row.turn_id for row in MemorySource.select().where(MemorySource.memory.in_(list(newly)))} - turns
        turns |= found
        sharing = MemorySource.select(MemorySource.memory).where(MemorySource.turn.in_(list(found))).distinct()
        newly = {row.memory_id for row in sharing} - memories
        memories |= newly
    if turns:
        Turn.update(settled=True).where(Turn.id.in_(list(turns))).execute()
    Memory.update(origin="kept").where(
        Memory.id.in_(list(memories)), Memory.owner == owner, Memory.origin == "made"
    ).execute()


def forgotten_turns(ids: Iterable[int]) -> set[int]:
    """Return those of these turns that are settled and that no memory rests on any more: they are forgotten."""
    wanted = list(ids)
    settled = {row.id for row in Turn.select(Turn.id).where(Turn.id.in_(wanted), Turn.settled)}
    live = (
        MemorySource.select(MemorySource.turn)
        .join(Memory)
        .where(MemorySource.turn.in_(wanted), Memory.status != "forgotten")
    )
    return settled - {row.turn_id for row in live}
