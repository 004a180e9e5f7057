"""BACKGROUND: new memories against older ones. Supersede a changed value, absorb a repetition, else leave both."""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from stackmem.answers import Decision, read_decisions
from stackmem.asking import ATTEMPTS, ask, delay
from stackmem.clock import show_time
from stackmem.database import Held, lease, transaction
from stackmem.exceptions import BadAnswer, ContentRefused, PermanentError, TransientError
from stackmem.making import absorb, inherit, supersede
from stackmem.models import Memory, MemoryEntity, Owner, Window
from stackmem.persona import language_of, prompt_file
from stackmem.ports import ChatModel, ChatRequest, Clock, Hint, Queue
from stackmem.sources import source_turn_ids
from stackmem.traffic import live

log = logging.getLogger(__name__)

KNOWN = 6  # older memories set against one new one at most
KNOWN_IN_CALL = 20


@dataclass(frozen=True)
class Comparing:
    """The use case over its parts."""

    model: ChatModel
    clock: Clock
    queue: Queue
    zone: tzinfo
    timeout_s: float

    def compare(self, owner: str) -> int:
        """Compare the windows of an owner that wait for it, in order; return how many were.

        Stops at the first whose memories are not indexed yet. One model call a window, none without candidates.
        """
        done = 0
        with lease(f"owner:{owner}", self.clock) as held:
            while held is not None and (window := self._next(owner)) is not None:
                if not self._compare_window(window, held):
                    break
                done += 1
            if held is not None:
                Owner.update(compare_enqueued_at=None).where(Owner.name == owner).execute()
        if done and Memory.select().where(Memory.owner == owner, Memory.outdated).exists():
            self.queue.put(Hint("index", owner))
        return done

    def _next(self, owner: str) -> Window | None:
        row = Owner.get_or_none(Owner.name == owner)
        if row is not None and row.retry_at is not None and row.retry_at > self.clock.now():
            return None
        return next_ready(owner)

    def _compare_window(self, window: Window, held: Held) -> bool:
        live.give_way()
        new = list(Memory.select().where(Memory.window == window, Memory.status == "active").order_by(Memory.id))
        pair = sides(new, candidates(window, new))
        try:
            decisions = self._ask(pair) if pair.allowed else []
        except (BadAnswer, ContentRefused) as exc:
            return self._bad_answer(window, exc)
        except (TransientError, PermanentError) as exc:
            self._wait(window.owner, f"the memory model did not answer: {exc}")
            return False
        with transaction():
            held.check()
            apply_decisions(decisions, pair)
            now = Memory.select().where(Memory.window == window, Memory.status == "active")
            if {row.id for row in now} <= {row.id for row in new}:
                _compared(window)  # else one was corrected meanwhile: that one is compared next
        return True

    def _ask(self, sides: "Sides") -> list[Decision]:
        language = language_of([memory.summary for memory in sides.later.values()])
        pair = {
            "new": [self._line(label, memory) for label, memory in sides.later.items()],
            "known": [self._line(label, memory) for label, memory in sides.earlier.items()],
        }
        messages = [
            {"role": "system", "content": prompt_file(f"compare.{language}.md").strip()},
            {"role": "user", "content": json.dumps(pair, ensure_ascii=False)},
        ]
        return ask(self.model, ChatRequest(messages, "compare", self.timeout_s, json_schema=_SCHEMA), read_decisions)

    def _line(self, label: str, memory: Memory) -> dict[str, Any]:
        line = {
            "id": label,
            "topic": memory.topic,
            "summary": memory.summary,
            "memory_type": memory.memory_type,
            "entities": memory.entities,
            "said_at": show_time(memory.said_at, self.zone),
        }
        # A moment is mostly when it was said, for want of anything better: that decides nothing.
        return line if memory.occurred_from == memory.occurred_to else line | {"occurred": self._days(memory)}

    def _days(self, memory: Memory) -> str:
        first, last = ((show_time(at, self.zone) or "")[:10] for at in (memory.occurred_from, memory.occurred_to))
        return first if first == last else f"{first}/{last}"

    def _bad_answer(self, window: Window, fault: Exception) -> bool:
        attempts = window.compare_attempts + 1
        Window.update(compare_attempts=attempts).where(Window.id == window.id).execute()
        if attempts < ATTEMPTS:
            self._wait(window.owner, f"the answer was bad (attempt {attempts}): {fault}")
            return False
        log.warning("window %s could not be compared: its memories stay as new ones", window.id)
        _compared(window)
        return True

    def _wait(self, owner: str, reason: str) -> None:
        log.warning("owner %s: not compared: %s", owner, reason)
        row = Owner.get_by_id(owner)
        delays = row.delays + 1
        Owner.update(delays=delays, retry_at=self.clock.now() + delay(delays)).where(Owner.name == owner).execute()


def next_uncompared(owner: str) -> Window | None:
    """Return the owner's oldest window whose memories have not been set against older ones."""
    rows = Window.select().where(Window.owner == owner, ~Window.compared)
    return rows.order_by(Window.id).first()  # type: ignore[no-any-return]


def next_ready(owner: str) -> Window | None:
    """Return the owner's oldest uncompared window, None while one of its memories waits for the index."""
    window = next_uncompared(owner)
    if window is None or Memory.select().where(Memory.window == window, Memory.outdated).exists():
        return None
    return window


def _compared(window: Window) -> None:
    Window.update(compared=True).where(Window.id == window.id).execute()
    Owner.update(delays=0, retry_at=None).where(Owner.name == window.owner).execute()


@dataclass(frozen=True)
class Sides:
    """Who is set against whom, under the labels of the request, and which (later, earlier) ids may be decided about."""

    later: dict[str, Memory]
    earlier: dict[str, Memory]
    allowed: set[tuple[str, str]]


def candidates(window: Window, new: Sequence[Memory]) -> dict[str, list[Memory]]:
    """Return for each new memory the active ones of older windows that are worth comparing with it.

    They share an entity key (by the database) or are near (by the index). Newer windows do not count, so that comparing
    again in order gives the same result.
    """
    found: dict[str, list[Memory]] = {}
    for memory in new:
        shares = MemoryEntity.select(MemoryEntity.memory).where(
            MemoryEntity.owner == window.owner, MemoryEntity.key.in_(memory.entity_keys or [""])
        )
        older = (
            Memory.select()
            .where(Memory.owner == window.owner, Memory.status == "active", Memory.id != memory.id)
            .where(Memory.id.in_(shares) | Memory.id.in_(memory.neighbours or [""]))
            .where(Memory.window.is_null() | (Memory.window < window.id))
        )
        near = {memory_id: place for place, memory_id in enumerate(memory.neighbours)}
        ranked = sorted(older, key=lambda row: (near.get(row.id, KNOWN), -row.said_at.timestamp(), row.id))
        found[memory.id] = ranked[:KNOWN]
    return found


def sides(new: Sequence[Memory], found: dict[str, list[Memory]]) -> Sides:
    """Set what was said later against what was said earlier, in whatever order the two were made."""
    kept = list({row.id: row for rows in found.values() for row in rows}.values())[:KNOWN_IN_CALL]
    said = {row.id: row.said_at for row in [*new, *kept]}
    last = {memory_id: max(ids, default=0) for memory_id, ids in source_turn_ids(list(said)).items()}
    later, earlier = dict[str, Memory](), dict[str, Memory]()
    allowed: set[tuple[str, str]] = set()
    ids = {row.id for row in kept}
    for memory in new:
        for row in found[memory.id]:
            if row.id in ids:
                in_order = (said[row.id], last[row.id]) <= (said[memory.id], last[memory.id])
                after, before = (memory, row) if in_order else (row, memory)
                later[after.id], earlier[before.id] = after, before
                allowed.add((after.id, before.id))
    return Sides(_labels("N", later.values()), _labels("K", earlier.values()), allowed)


def apply_decisions(decisions: Sequence[Decision], sides: Sides) -> None:
    """Carry out what the model decided, as far as it is about pairs of this call that are both still active."""
    for decision in decisions:
        fresh, old = sides.later.get(decision.id), sides.earlier.get(decision.known or "")
        if fresh is None or old is None or (fresh.id, old.id) not in sides.allowed or decision.decision == "new":
            continue
        later, earlier = _as_it_is_now(fresh, same=True), _as_it_is_now(old)
        if later is None or earlier is None or later.id == earlier.id:
            continue
        if decision.decision == "repeats":
            absorb(earlier, later)
        else:
            supersede(earlier, later.id)
            inherit(later, earlier, decision.keep)


def _as_it_is_now(memory: Memory, *, same: bool = False) -> Memory | None:
    """Return an active memory, or the correction by hand that replaced it while the model thought; else None."""
    now: Memory | None = Memory.get_or_none(Memory.id == memory.id)
    if now is not None and now.status == "superseded" and not same:
        now = Memory.get_or_none(Memory.id == now.superseded_by, Memory.origin == "edited")
    return now if now is not None and now.status == "active" else None


def _labels(letter: str, memories: Iterable[Memory]) -> dict[str, Memory]:
    return {f"{letter}{number}": memory for number, memory in enumerate(memories, 1)}


_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decisions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "decision": {"type": "string", "enum": ["new", "supersedes", "repeats"]},
                    "known": {"type": ["string", "null"]},
                    "keep": {"type": "string"},
                },
                "required": ["id", "decision", "known"],
            },
        }
    },
    "required": ["decisions"],
}
