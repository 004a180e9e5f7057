"""Fill a store with many memories of made-up talk, quickly: rows and the embedder's vectors, no model."""

import time
from datetime import datetime, timedelta
from pathlib import Path

from stackmem.bootstrap import build
from stackmem.config import load_settings
from stackmem.database import transaction
from stackmem.ids import memory_id, turn_uid
from stackmem.models import Memory, MemoryEntity, MemorySource, Owner, Session, Turn
from stackmem.reindexing import reindex
from stackmem.text import entity_key

BATCH = 1000
THINGS = ("自転車", "ギター", "冬の服", "キャンプの道具", "古い本", "工具箱", "写真", "ミシン", "スキー板", "釣り竿")
PLACES = ("京都", "大阪", "札幌", "福岡", "仙台", "広島", "金沢", "那覇", "長野", "高松")


def fill(home: Path, count: int, start: datetime, owner: str = "home") -> float:
    """Insert ``count`` memories with a turn each, build the index; return the seconds it took."""
    started = time.perf_counter()
    runtime = build(load_settings(home=home, database_url="", index_url="edge:"), owns_index=True)
    try:
        with runtime.database.connection_context():
            for first in range(0, count, BATCH):
                _insert(owner, range(first, min(count, first + BATCH)), start)
            reindex(runtime.index)
    finally:
        runtime.close()
    return time.perf_counter() - started


def _insert(owner: str, numbers: range, start: datetime) -> None:
    with transaction():
        Owner.insert(name=owner).on_conflict_ignore().execute()
        session = Session.create(
            owner=owner, name=f"filled-{numbers.start}", seq=1, named=True, started_at=start, received_at=start,
            ended_at=start,
        )  # fmt: skip
        for number in numbers:
            _one(owner, session, number, start + timedelta(minutes=number % 40_000))


def _one(owner: str, session: Session, number: int, at: datetime) -> None:
    thing, place = THINGS[number % 10], PLACES[number // 10 % 10]
    words = f"{number}番の倉庫には{place}で買った{thing}をしまったよ"
    uid = turn_uid(owner, session.name, 1, number, words)
    turn = Turn.create(
        uid=uid, session=session, ordinal=number, owner=owner, at=at, received_at=at, user=words,
        reply="そうなんだね。", state="kept",
    )  # fmt: skip
    identity, names = memory_id(at, owner, [uid]), [f"{number}番の倉庫", place]
    Memory.create(
        id=identity, owner=owner, topic=f"{number}番の倉庫",
        summary=f"ユーザーは{number}番の倉庫に{place}で買った{thing}をしまった。",
        entities=names, entity_keys=[entity_key(name) for name in names], memory_type="episode", occurred_at=at,
        occurred_from=at, occurred_to=at, said_at=at, created_at=at, outdated=False,
    )  # fmt: skip
    MemorySource.create(memory=identity, turn=turn.id)
    for name in names:
        MemoryEntity.create(memory=identity, owner=owner, key=entity_key(name), name=name, said=1)
