"""One store for a test: the real use cases over real rows, an index in memory and a clock that stands still."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from stackmem import sessions
from stackmem.answers import Segment
from stackmem.compare import Comparing
from stackmem.converse import Conversation, Said
from stackmem.ids import turn_uid
from stackmem.index_handle import IndexHandle
from stackmem.indexing import index_owner
from stackmem.making import make_memory
from stackmem.models import Memory, MemoryEntity, MemorySource, Owner, Session, Turn, Window
from stackmem.persona import load_persona
from stackmem.ports import ChatModel, Clock, Embedder, Hint, IndexStore
from stackmem.recall import Recall
from stackmem.reindexing import reindex
from stackmem.remember import Remembering
from stackmem.thinking import Thinker
from stackmem.work import Work
from tests.fakes import FixedClock, MemoryIndex, MemoryIndexStore
from tests.scripted import Answer, content

ZONE = ZoneInfo("Asia/Tokyo")
TURN_TIMEOUT_S = 10.0


def at(text: str) -> datetime:
    """Return a time of day in July 2026, in Tokyo: ``at("22 20:15")``."""
    return datetime.fromisoformat(f"2026-07-{text}").replace(tzinfo=ZONE)


class Hints:
    """A queue that keeps what was put into it."""

    def __init__(self) -> None:
        self.hints: list[Hint] = []

    def put(self, hint: Hint) -> None:
        """Keep it."""
        self.hints.append(hint)

    def taken(self) -> list[Hint]:
        """Return the hints so far and forget them."""
        taken, self.hints = self.hints, []
        return taken


class World:
    """The use cases over their parts. ``chat`` talks, ``memory_chat`` (else the same) remembers and compares."""

    def __init__(
        self,
        embedder: Embedder,
        chat: ChatModel,
        memory_chat: ChatModel | None = None,
        store: IndexStore | None = None,
        clock: Clock | None = None,
    ):
        self.clock: Any = clock or FixedClock()
        self.queue, self.persona = Hints(), load_persona("stackchan")
        self.store, self.embedder = store or MemoryIndexStore(), embedder
        self.index = IndexHandle(self.store, embedder)
        if self.index.current is None:
            reindex(self.index)
        self.recall = Recall(self.index, ZONE)
        self.thinker = Thinker(chat, self.recall, self.persona, ZONE, 5.0, 3500)
        self.conversation = Conversation(self.thinker, self.clock, self.queue, TURN_TIMEOUT_S)
        thinking = memory_chat or chat
        self.remembering = Remembering(thinking, self.persona, self.clock, self.queue, ZONE, 5.0)
        self.comparing = Comparing(thinking, self.clock, self.queue, ZONE, 5.0)
        self.work = Work(
            self.remembering, self.comparing, self.index, self.persona, self.clock, self.queue, TURN_TIMEOUT_S
        )

    # --- live ---

    def say(self, text: str, session: str | None = "s", owner: str = "home", **more: Any) -> Turn:
        """Let the user say something and return the stored turn."""
        return self.conversation.turn(Said(owner, text, session, **more))

    # --- rows, as a live turn or a look would have written them ---

    def session(self, name: str = "s", owner: str = "home", **more: Any) -> Session:
        """Return the newest sequence of a session, begun where there is none; ``ended=True`` ends it."""
        Owner.insert(name=owner).on_conflict_ignore().execute()
        found = Session.select().where(Session.owner == owner, Session.name == name).order_by(Session.seq.desc())
        ended_at = self.clock.now() if more.pop("ended", False) else None
        return found.first() or sessions.begin(  # type: ignore[no-any-return]
            owner, name, now=self.clock.now(), named=True, **{"ended_at": ended_at, **more}
        )

    def turn(self, user: str, reply: str = "そうなんだ", session: str = "s", owner: str = "home", **more: Any) -> Turn:
        """Insert an answered turn (pending, said and received now, unless given)."""
        row = self.session(session, owner)
        ordinal, now = sessions.next_ordinal(row), self.clock.now()
        columns = {"at": now, "received_at": now, "state": "pending", **more}
        Session.update(received_at=columns["received_at"]).where(Session.id == row.id).execute()
        uid = turn_uid(owner, session, row.seq, ordinal, user)
        return Turn.create(uid=uid, session=row, ordinal=ordinal, owner=owner, user=user, reply=reply, **columns)  # type: ignore[no-any-return]

    def turns(self, count: int, session: str = "s", **more: Any) -> list[Turn]:
        """Insert so many turns."""
        return [self.turn(f"話{number}", session=session, **more) for number in range(1, count + 1)]

    def memory(self, summary: str, *words: str, owner: str = "home", session: str = "old", **more: Any) -> Memory:
        """Insert the memory of turns with these words (one with the summary's, where none are given), in a window."""
        said, compared = more.pop("said", self.clock.now()), more.pop("compared", True)
        turns = [self.turn(text, session=session, owner=owner, at=said, state="kept") for text in words or (summary,)]
        return self.memory_of(turns, summary, compared=compared, **more)

    def memory_of(
        self, turns: Sequence[Turn], summary: str, *, compared: bool = True, status: str = "active", **segment: Any
    ) -> Memory:
        """Insert the memory of these turns, in a window of its own."""
        window = self.window(turns, compared=compared)
        known = {row.id for row in Memory.select(Memory.id)}
        made = Segment(turn_ids=[1], keep=True, summary=summary, **{"topic": summary[:8], **segment})
        assert make_memory(made, turns, window, self.clock.now(), ZONE) == 1
        (row,) = Memory.select().where(Memory.id.not_in(known))
        if status != "active":
            Memory.update(status=status).where(Memory.id == row.id).execute()
        return Memory.get_by_id(row.id)  # type: ignore[no-any-return]

    def window(self, turns: Sequence[Turn], *, compared: bool = True, final: bool = True) -> Window:
        """Insert the window in which these turns were looked at."""
        return Window.create(  # type: ignore[no-any-return]
            session=turns[0].session, owner=turns[0].owner, turn_ids=[turn.id for turn in turns], final=final,
            prompt_version="test", model="test", created_at=self.clock.now(), compared=compared,
        )  # fmt: skip

    # --- what became of it ---

    def indexed(self, owner: str = "home") -> int:
        """Bring everything of an owner into the index."""
        return index_owner(self.index, owner)

    def settle(self, *owners: str) -> None:
        """Do all that waits, as workers would, until nothing does."""
        for _ in range(100):
            now = self.clock.now()
            hints = list(self.work.waiting(now, now))
            if not hints:
                return
            for hint in hints:
                self.work.run(hint)
        raise AssertionError(f"it never settles: {hints}")

    def points(self, owner: str | None = None) -> dict[str, str]:
        """Return memory_id → status of every point."""
        assert self.index.current is not None
        return {memory_id: payload["status"] for memory_id, payload in self.index.current.scan(owner)}


def states(*turns: Turn) -> list[str]:
    """Return the states of these turns (of all, where none are given), in order of their ids."""
    rows = Turn.select().order_by(Turn.id)
    return [row.state for row in (rows.where(Turn.id.in_([turn.id for turn in turns])) if turns else rows)]


def summaries(owner: str = "home", status: str = "active") -> list[str]:
    """Return the summaries of an owner's memories of this status, in the order they were made."""
    rows = Memory.select().where(Memory.owner == owner, Memory.status == status)
    return [row.summary for row in sorted(rows, key=lambda row: (row.window_id or 0, row.id))]


def sources_of(memory: Memory | str) -> list[int]:
    """Return the ids of a memory's source turns."""
    identity = memory if isinstance(memory, str) else memory.id
    rows = MemorySource.select().where(MemorySource.memory == identity).order_by(MemorySource.turn)
    return [row.turn_id for row in rows]


def again(row: Any) -> Any:
    """Return the row as it stands now."""
    return type(row).get_by_id(row.id if hasattr(row, "id") else row.name)


def everything() -> tuple[Any, ...]:
    """All that is derived, and the states of the turns, as plain values."""
    memories = sorted(
        (m.id, m.summary, m.topic, m.entities, m.status, m.superseded_by, m.said_at, m.occurred_from, m.window_id)
        for m in Memory.select()
    )
    sources = sorted(MemorySource.select(MemorySource.memory, MemorySource.turn).tuples())
    keys = sorted(MemoryEntity.select(MemoryEntity.memory, MemoryEntity.key).tuples())
    turns = sorted(Turn.select(Turn.id, Turn.state).tuples())
    windows = sorted((w.id, w.turn_ids, w.final, w.compared) for w in Window.select())
    sessions = sorted(Session.select(Session.id, Session.looked_to, Session.attempts).tuples())
    return memories, sources, keys, turns, windows, sessions


TALK = [
    "昨日富士通のPCを12万円で買ったよ",
    "うちの猫の名前はモモだよ",
    "来月京都旅行に行く予定",
    "こんにちは",
    "好きな食べ物は寿司だよ",
    "うん",
    "ごめん、富士通のPCは12万円じゃなくて13万円だった",
    "妹の誕生日は5月3日なんだ",
]


def ingest(world: World) -> None:
    """Two live sessions and another owner's, remembered, indexed and compared as they went on."""
    for number, text in enumerate(TALK):
        world.turn(text, session="a" if number < 6 else "b")
        world.turn(f"{text}ってことにしよう", session="m", owner="mari")
        world.settle()
        world.clock.advance(seconds=30)
    world.clock.advance(minutes=20)
    world.work.sweep()
    world.settle()


def points_and_vectors(world: World) -> dict[str, tuple[bytes, bytes, dict[str, Any]]]:
    """Return all that the current generation of the index in memory holds, to the bit."""
    current = world.index.current
    assert isinstance(current, MemoryIndex)
    assert current.generation is not None
    return {
        key: (point.summary.tobytes(), point.sources.tobytes(), point.payload)
        for key, point in current.generation.points.items()
    }


def segments(*given: dict[str, Any]) -> Answer:
    """Answer a look with these segments."""
    return content(json.dumps({"segments": list(given)}, ensure_ascii=False))


def keep(turn_ids: Sequence[int], summary: str, **more: Any) -> dict[str, Any]:
    """A segment worth keeping."""
    return {"turn_ids": list(turn_ids), "keep": True, "topic": summary[:8], "summary": summary, **more}


def skip(*turn_ids: int) -> dict[str, Any]:
    """A segment that is not."""
    return {"turn_ids": list(turn_ids), "keep": False, "topic": "雑談", "summary": ""}


def decisions(*given: tuple[str, str, str | None]) -> Answer:
    """Answer a comparison with (new label, decision, known label)."""
    items = [{"id": label, "decision": decision, "known": known} for label, decision, known in given]
    return content(json.dumps({"decisions": items}))
