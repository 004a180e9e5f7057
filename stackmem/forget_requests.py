"""What users asked the robot to forget. A request deletes nothing: it waits for a person, who does it or drops it."""

import re
from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

from stackmem.clock import show_time
from stackmem.exceptions import NotFound
from stackmem.models import ForgetRequest, Memory, MemoryEntity, MemorySource, Turn
from stackmem.naming import spellings, widen
from stackmem.text import bigrams, entity_key, fold

_ABOUT = re.compile(
    r"(?:(?:の|って(?:いう)?|という)(?:こと|事|話|件|やつ)|について)(?:は|を|も|全部|ぜんぶ)*\Z|[。、.!?]+\Z"
)
_THAT = re.compile(r"[そこあ](?:れ|の)|さっき|今|いま|いまの|今の|全部|ぜんぶ|that|this|it|everything")
TURNS_BEFORE = 3  # 「それ忘れて」 is about one of these
COVERED = 0.6  # share of the request's words that a memory's must hold to be meant by name
LOOKED_AT = 2000  # newest memories that are looked at by words
SHOWN = 10  # memories of one request at most


def open_requests(owner: str) -> list[tuple[ForgetRequest, list[Memory]]]:
    """Return the requests that wait, oldest first, each with the active memories it would concern."""
    rows = list(
        ForgetRequest.select().where(ForgetRequest.owner == owner, ForgetRequest.is_open).order_by(ForgetRequest.id)
    )
    known = Known(owner) if rows else None
    return [(row, _concerned(row, known)) for row in rows if known]


def concerned(request: ForgetRequest) -> list[Memory]:
    """Return the active memories a request would concern: those it names, else those of what was just talked about."""
    return _concerned(request, Known(request.owner))


def _concerned(request: ForgetRequest, known: "Known") -> list[Memory]:
    return (known.named(request.what) or _just_told(request))[:SHOWN]


class Known:
    """The newest active memories of an owner, with their words made ready: many requests are set against them."""

    def __init__(self, owner: str):
        self._owner = owner
        rows = Memory.select().where(Memory.owner == owner, Memory.status == "active")
        self._rows = list(rows.order_by(Memory.said_at.desc(), Memory.id).limit(LOOKED_AT))
        self._words = {row.id: fold(f"{row.topic}\n{row.summary}") for row in self._rows}
        self._pairs = {identity: frozenset(bigrams(words)) for identity, words in self._words.items()}
        keys = MemoryEntity.select(MemoryEntity.key).where(MemoryEntity.owner == owner).distinct()
        self._keys = [row.key for row in keys]

    def named(self, what: str) -> list[Memory]:
        """Return the memories whose names, or most of whose words, stand in what is to be forgotten."""
        letters = entity_key(what)
        said = [key for key in self._keys if key in letters and spellings(what, key)]
        said += list(widen(self._owner, said))
        by_name = [row for row in self._rows if said and set(said) & set(row.entity_keys)]
        thing, wanted = _ABOUT.sub("", fold(what).strip()), frozenset(bigrams(what))
        fits = {row.id: self._fit(row.id, thing, wanted) for row in by_name or self._rows}
        by_words = [row for row in (by_name or self._rows) if fits[row.id] >= COVERED]
        return sorted(by_words or by_name, key=lambda row: (-fits[row.id], row.id))

    def _fit(self, memory_id: str, thing: str, wanted: frozenset[str]) -> float:
        """Return how much of a request's words stand in a memory's, from 0 to 1: 「猫のこと」 is about 猫."""
        if thing and not _THAT.fullmatch(thing) and thing in self._words[memory_id]:
            return 1.0
        return len(wanted & self._pairs[memory_id]) / len(wanted) if wanted else 0.0


def _just_told(request: ForgetRequest) -> list[Memory]:
    """Return what was made of the turns just before, and what the robot had just recalled."""
    turn = Turn.get_or_none(Turn.id == request.turn)
    if turn is None:
        return []
    before = list(
        Turn.select()
        .where(Turn.session == turn.session, Turn.ordinal <= turn.ordinal, Turn.ordinal >= turn.ordinal - TURNS_BEFORE)
        .order_by(Turn.ordinal.desc())
    )
    for said in before:  # the nearest turn that has something to forget
        told = MemorySource.select(MemorySource.memory).where(MemorySource.turn == said.id)
        ids = [*{row.memory_id for row in told}, *said.memory_ids]
        rows = Memory.select().where(Memory.id.in_(ids), Memory.owner == request.owner, Memory.status == "active")
        if found := list(rows.order_by(Memory.id)):
            return found
    return []


def one(owner: str, request_id: int) -> ForgetRequest:
    """Return an open request of this owner. Raises NotFound."""
    row = ForgetRequest.get_or_none(ForgetRequest.id == request_id, ForgetRequest.owner == owner, ForgetRequest.is_open)
    if row is None:
        raise NotFound(f"There is no open forget request {request_id}.")
    return row


def close(requests: Sequence[ForgetRequest]) -> None:
    """Close requests that are done, or that a person does not want."""
    ids = [row.id for row in requests]
    ForgetRequest.update(is_open=False, what="").where(ForgetRequest.id.in_(ids)).execute()


def request_lines(owner: str, zone: tzinfo) -> list[dict[str, Any]]:
    """Return the open requests as they are shown."""
    return [_line(row, memories, zone) for row, memories in open_requests(owner)]


def _line(row: ForgetRequest, memories: Sequence[Memory], zone: tzinfo) -> dict[str, Any]:
    turn = Turn.get_or_none(Turn.id == row.turn)
    return {
        "request_id": row.id,
        "turn_id": row.turn,
        "at": show_time(turn.at, zone) if turn else None,
        "text": turn.user if turn else "",
        "what": row.what,
        "memories": [{"memory_id": memory.id, "topic": memory.topic, "summary": memory.summary} for memory in memories],
    }
