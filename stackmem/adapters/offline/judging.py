"""The offline judge, by rules: whether a turn needed a memory, and which. Crude; measured like any other judge."""

from typing import Any

from stackmem.adapters.offline.asking import asks_for_the_past, query_of
from stackmem.adapters.offline.words import as_text, closeness, is_japanese, items
from stackmem.lexical import coverage

SAID_HERE = 0.6  # share of the question's bigrams in one thing the user said in this session: the answer is there
RIGHT = 1.0  # closeness from which a memory may hold the answer: one kanji, or half a word


def verdict(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a judge's question about one turn; of anything else, that no memory was needed."""
    user = as_text(asked.get("user"))
    query = query_of(user)
    if not asks_for_the_past(user):
        return _said(user, "聞いていない。", "Asks for nothing of an earlier conversation.", needed=False)
    if any(coverage(query, as_text(pair.get("user"))) >= SAID_HERE for pair in items(asked.get("context"))):
        return _said(user, "この会話に答えがある。", "This conversation holds the answer.", needed=False)
    right = _right(query, items(asked.get("memories")))
    return _said(user, "前の会話のことを聞いている。", "Asks for an earlier conversation.", needed=True) | {
        "right": right
    }


def _right(query: str, memories: list[dict[str, Any]]) -> list[Any]:
    """Return the number of the memory that fits the question best; of several that fit alike, the nearest."""
    fits = [(closeness(query, as_text(memory.get("summary"))), -place) for place, memory in enumerate(memories)]
    best, place = max(fits, default=(0.0, 0))
    return [memories[-place].get("number")] if best >= RIGHT else []


def _said(user: str, japanese: str, english: str, *, needed: bool) -> dict[str, Any]:
    return {"reason": japanese if is_japanese(user) else english, "needed": needed, "right": None}
