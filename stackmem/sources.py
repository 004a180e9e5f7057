"""The words a memory came from: source turns re-read from the database, cut to what a prompt can hold."""

from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from typing import Any

from stackmem.clock import show_time
from stackmem.exceptions import InvalidInput
from stackmem.lexical import coverage
from stackmem.models import Memory, MemorySource, Turn
from stackmem.ports import IndexFilter
from stackmem.prepared import Prepared
from stackmem.settling import forgotten_turns
from stackmem.text import estimate_tokens

TOKENS = 1200  # of source words in one tool result, all candidates together
TURN_CHARACTERS = 600  # of one side's words of a turn in a tool result
TURN_TOKENS = 36  # of a turn besides its words: id, time, names, marks of what was left out
WAITING = 200  # newest turns not yet memories that are looked at by words
WAITING_COVERAGE = 0.3  # share of the query's bigrams a waiting turn must hold
WAITING_SHOWN = 3
IDS_LIMIT = 10
READ = 500  # memories in one query

_TURN_IDS = Prepared(
    lambda ids: (
        MemorySource.select(MemorySource.memory, MemorySource.turn)
        .where(MemorySource.memory.in_(ids))
        .order_by(MemorySource.turn)
    ),
    lists=["ids"],
)
_WORDS, _SPOKEN = (
    Prepared(
        lambda ids, columns=columns: (
            MemorySource.select(MemorySource.memory, *columns)
            .join(Turn)
            .where(MemorySource.memory.in_(ids))
            .order_by(Turn.id)
        ),
        lists=["ids"],
    )
    for columns in ((Turn.user, Turn.reply), (Turn.id, Turn.at, Turn.user, Turn.reply))
)


def _not_remembered(owner: Any) -> Any:
    return (
        Turn.select(Turn.id, Turn.at, Turn.user, Turn.reply)
        .where(Turn.owner == owner, Turn.state.in_(["pending", "failed"]))
        .order_by(Turn.id.desc())
        .limit(WAITING)
    )


_WAITING = Prepared(lambda owner: _not_remembered(owner))
_WAITING_ELSEWHERE = Prepared(lambda owner, session: _not_remembered(owner).where(Turn.session != session))


def shown_time(moment: datetime, zone: tzinfo) -> str:
    """Return a time as the model sees it."""
    return show_time(moment, zone) or ""


def shown_period(memory: Memory, zone: tzinfo) -> str:
    """Return when it happened: a moment, or from/to."""
    if memory.occurred_from == memory.occurred_to:
        return shown_time(memory.occurred_at, zone)
    return f"{shown_time(memory.occurred_from, zone)}/{shown_time(memory.occurred_to, zone)}"


def source_turn_ids(memory_ids: Sequence[str]) -> dict[str, list[int]]:
    """Return the ids of the source turns of each memory, oldest first."""
    found: dict[str, list[int]] = {memory_id: [] for memory_id in memory_ids}
    for start in range(0, len(memory_ids), READ):
        for row in _TURN_IDS.rows(ids=memory_ids[start : start + READ]):
            found[row.memory_id].append(row.turn_id)
    return found


def source_turns(memory_ids: Sequence[str]) -> dict[str, list[Turn]]:
    """Return the source turns of each memory, oldest first."""
    found: dict[str, list[Turn]] = {memory_id: [] for memory_id in memory_ids}
    rows = (
        MemorySource.select(MemorySource, Turn)
        .join(Turn)
        .where(MemorySource.memory.in_(list(memory_ids)))
        .order_by(Turn.id)
    )
    for row in rows:
        found[row.memory_id].append(row.turn)
    return found


def words_of(memory_ids: Sequence[str]) -> dict[str, str]:
    """Return the source words of each memory as one text."""
    found: dict[str, list[str]] = {memory_id: [] for memory_id in memory_ids}
    for memory_id, user, reply in _WORDS.rows(ids=memory_ids):
        found[memory_id] += user, reply
    return {memory_id: "\n".join(texts) for memory_id, texts in found.items()}


def _spoken(memory_ids: Sequence[str]) -> dict[str, list[Any]]:
    """Return of the source turns of each memory, oldest first, what was said and when."""
    found: dict[str, list[Any]] = {memory_id: [] for memory_id in memory_ids}
    for row in _SPOKEN.rows(ids=memory_ids):
        found[row.memory_id].append(row)
    return found


def _shown_turn(turn: Turn, zone: tzinfo, limit: int = TURN_CHARACTERS, query: str = "") -> dict[str, Any]:
    return {
        "turn_id": turn.id,
        "at": shown_time(turn.at, zone),
        "user": _excerpt(turn.user, limit, query),
        "robot": _excerpt(turn.reply, limit, query),
    }


def _excerpt(words: str, limit: int, query: str) -> str:
    """Return at most ``limit`` characters, and a mark where some were left out: those nearest to the query."""
    if len(words) <= limit:
        return words
    starts = range(0, len(words) - limit // 2, limit // 2)
    start = max(starts, key=lambda start: coverage(query, words[start : start + limit]))
    return ("…" if start else "") + words[start : start + limit] + ("…" if start + limit < len(words) else "")


def _limit(budget: int) -> int:
    """Return how many characters of each side's words are shown, so that one turn always fits into the budget."""
    return min(TURN_CHARACTERS, int((budget - TURN_TOKENS) / 2.2))


def _cost(turn: Turn, limit: int) -> int:
    return estimate_tokens(turn.user[:limit]) + estimate_tokens(turn.reply[:limit]) + TURN_TOKENS - 2


def _around_best(turns: Sequence[Turn], query: str, budget: int) -> list[Turn]:
    """Return consecutive turns around the one nearest to the query by words, at least that one, within the budget."""
    limit = _limit(budget)
    best = max(range(len(turns)), key=lambda i: coverage(query, turns[i].user + turns[i].reply))
    low, high, left = best, best + 1, budget - _cost(turns[best], limit)
    while left > 0 and (low > 0 or high < len(turns)):
        step = high if high < len(turns) and (high - best <= best - low or low == 0) else low - 1
        left -= _cost(turns[step], limit)
        if left < 0:
            break
        low, high = min(low, step), max(high, step + 1)
    return list(turns[low:high])


def cut_sources(memories: Sequence[Memory], query: str, zone: tzinfo) -> dict[str, list[dict[str, Any]]]:
    """Return the re-read source turns of each memory, cut around the best match, within one budget for all."""
    read = _spoken([memory.id for memory in memories])
    share = TOKENS // max(1, len(memories))
    return {
        memory.id: [
            _shown_turn(turn, zone, _limit(share), query) for turn in _around_best(read[memory.id], query, share)
        ]
        for memory in memories
        if read[memory.id]
    }


def not_yet_memories(
    owner: str, session_id: int | None, query: str, where: IndexFilter, zone: tzinfo
) -> list[dict[str, Any]]:
    """Return turns of other sessions that are no memory yet and share words with the query, the best first."""
    if session_id is None:
        rows = _WAITING.rows(owner=owner)
    else:
        rows = _WAITING_ELSEWHERE.rows(owner=owner, session=session_id)
    in_time = [turn for turn in rows if _in_time(turn.at, where)]
    scored = [(coverage(query, f"{turn.user}\n{turn.reply}"), turn.id, turn) for turn in in_time]
    best = sorted((row for row in scored if row[0] >= WAITING_COVERAGE), reverse=True, key=lambda row: row[:2])
    return [
        {
            "memory_id": None,
            "not_yet_a_memory": True,
            "said_at": shown_time(turn.at, zone),
            "source_checked": True,
            "sources": [_shown_turn(turn, zone, query=query)],
        }
        for _, _, turn in best[:WAITING_SHOWN]
    ]


def _in_time(at: datetime, where: IndexFilter) -> bool:
    return (where.since is None or at >= where.since) and (where.until is None or at <= where.until)


def read_sources(owner: str, given: dict[str, Any], zone: tzinfo) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Do ``read_memory_source``: return its result and the trace's hits. Raises InvalidInput with a sentence."""
    ids, around = _read_ids(given)
    memories = {
        row.id: row
        for row in Memory.select().where(Memory.id.in_(ids), Memory.owner == owner, Memory.status != "forgotten")
    }
    turns = source_turns(list(memories))
    shown: list[dict[str, Any]] = []
    hits: list[dict[str, Any]] = []
    for memory_id in ids:
        if memory_id not in memories:
            shown.append({"memory_id": memory_id, "error": "There is no memory under this id."})
            continue
        wide = _with_neighbours(turns[memory_id], around)
        shown.append({"memory_id": memory_id, "sources": _within_budget(wide, TOKENS // len(ids), zone)})
        source_ids = [turn.id for turn in turns[memory_id]]
        hits.append(
            {"memory_id": memory_id, "retrieval_score": None, "source_checked": True, "source_turn_ids": source_ids}
        )
    return {"memories": shown, "count": len(hits)}, hits


def _read_ids(given: dict[str, Any]) -> tuple[list[str], int]:
    ids = given.get("memory_ids")
    ids = [ids] if isinstance(ids, str) else ids
    if not isinstance(ids, list) or not ids or not all(isinstance(item, str) for item in ids):
        raise InvalidInput("memory_ids is a list of ids that search_memory returned.")
    around = given.get("around") or 0
    if not isinstance(around, int) or not 0 <= around <= 20:
        raise InvalidInput("around is a whole number from 0 to 5.")
    return list(dict.fromkeys(ids))[:IDS_LIMIT], min(around, 5)


def _with_neighbours(turns: Sequence[Turn], around: int) -> list[Turn]:
    """Return the source turns, then their neighbours on each side, the nearest first."""
    if not around or not turns:
        return list(turns)
    distance: dict[tuple[int, int], int] = {}
    for steps in range(around + 1):
        for turn in turns:
            distance.setdefault((turn.session_id, turn.ordinal - steps), steps)
            distance.setdefault((turn.session_id, turn.ordinal + steps), steps)
    sessions = {session_id for session_id, _ in distance}
    rows: Iterable[Turn] = Turn.select().where(Turn.session.in_(list(sessions))).order_by(Turn.id)
    near = [row for row in rows if (row.session_id, row.ordinal) in distance]
    gone = forgotten_turns([row.id for row in near if row.settled])
    near = [row for row in near if row.id not in gone]
    return sorted(near, key=lambda row: distance[row.session_id, row.ordinal])


def _within_budget(turns: Sequence[Turn], budget: int, zone: tzinfo) -> list[dict[str, Any]]:
    """Return the first turns as far as the budget goes, in the order they were said."""
    limit, taken = _limit(budget), list[Turn]()
    for turn in turns:
        budget -= _cost(turn, limit)
        if budget < 0:
            break
        taken.append(turn)
    return [_shown_turn(turn, zone, limit) for turn in sorted(taken, key=lambda turn: turn.id)]
