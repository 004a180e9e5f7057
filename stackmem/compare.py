"""BACKGROUND: new memories against older ones. Supersede a changed value, absorb a repetition, else leave both."""

import json
import logging
from collections.abc import Sequence
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
        new = list(Memory.select().where(Memory.window == window, Memory.status == "active").order_by(Memory.id))
        known = candidates(window, new)
        try:
            decisions = self._ask(new, known) if known else []
        except (BadAnswer, ContentRefused) as exc:
            return self._bad_answer(window, exc)
        except (TransientError, PermanentError) as exc:
            self._wait(window.owner, f"the memory model did not answer: {exc}")
            return False
        with transaction():
            held.check()
            apply_decisions(decisions, _labels("N", new), _labels("K", known))
            _compared(window)
        return True

    def _ask(self, new: Sequence[Memory], known: Sequence[Memory]) -> list[Decision]:
        language = language_of([memory.summary for memory in new])
        pair = {
            "new": [self._line(label, memory) for label, memory in _labels("N", new).items()],
            "known": [self._line(label, memory) for label, memory in _labels("K", known).items()],
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


def candidates(window: Window, new: Sequence[Memory]) -> list[Memory]:
    """Return the older active memories worth comparing: a shared entity key (by the database) or near (by the index).

    Newer windows do not count, so that comparing again in order gives the same result.
    """
    found: dict[str, Memory] = {}
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
        found |= {row.id: row for row in ranked[:KNOWN]}
    return list(found.values())[:KNOWN_IN_CALL]


def apply_decisions(decisions: Sequence[Decision], new: dict[str, Memory], known: dict[str, Memory]) -> None:
    """Carry out what the model decided, as far as it names memories of this call that are still active.

    Of two that contradict each other the one said later stays, in whatever order they were made.
    """
    retired: set[str] = set()
    for decision in decisions:
        fresh, old = new.get(decision.id), known.get(decision.known or "")
        if fresh is None or old is None or {fresh.id, old.id} & retired or decision.decision == "new":
            continue
        # Both may have been forgotten or corrected while the model thought.
        current = Memory.get_or_none(Memory.id == old.id, Memory.status == "active")
        if current is None or not Memory.select().where(Memory.id == fresh.id, Memory.status == "active").exists():
            continue
        if decision.decision == "repeats":
            absorb(current, fresh)
            retired.add(fresh.id)
        elif fresh.said_at >= current.said_at:
            supersede(current, fresh.id)
            inherit(fresh, current, decision.keep)
            retired.add(old.id)
        else:
            supersede(fresh, old.id)
            retired.add(fresh.id)


def _labels(letter: str, memories: Sequence[Memory]) -> dict[str, Memory]:
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
