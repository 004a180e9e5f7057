"""Compare: does a new memory repeat or correct a known one? Conservative: when in doubt it is new."""

import re
from typing import Any

from stackmem.adapters.offline.words import (
    as_text,
    is_japanese,
    is_question,
    items,
    likeness,
    numbers,
    sentences,
    shared,
    unframed,
    units,
)
from stackmem.adapters.offline.worth import CORRECTION
from stackmem.text import entity_key, fold

_IN_BRACKETS = re.compile(r"（[^（）]*[？?]）|（[0-9年月日〜]+）| \([0-9-]{10}(?: to [0-9-]{10})?\)")
_ANOTHER = re.compile(
    r"もう(?:一|1|ひと)|[2二]台目|[2二]つ目|[2二]匹目|も(?:買|飼)|別の|他の|ほかの|また|\b(?:another|second|also|too|again)\b"
)
_DENIED = re.compile(r"([^、。\s]{1,20}?)(?:じゃなくて?|ではなくて?|でなくて)|\bnot (\S{1,20})")
_CHANGES = re.compile(
    r"やめた|やめまし|中止|キャンセル|取りやめ|なくなっ|変更|変え|変わっ|になった|になりまし|やっぱり?.*(?:にする|にした|にしまし|ことに)|\binstead\b|\bchanged\b"
)
_BECAME = re.compile(r"(?<!中止)(?:になった|になりました)")  # a change only where a subject stands: 「歯医者は土曜に」
_LIGHT = frozenset("思出来頑張")
_REPEATS, _SAME_PREDICATE = 0.8, 0.75  # likeness of content units


def decisions(request: dict[str, Any]) -> dict[str, Any]:
    """Return {"decisions": [{"id", "decision", "known", "keep"?}]}, one for each new memory."""
    known = [memory for memory in items(request.get("known")) if "id" in memory]
    return {"decisions": [_decide(memory, known) for memory in items(request.get("new")) if "id" in memory]}


def _decide(new: dict[str, Any], known: list[dict[str, Any]]) -> dict[str, Any]:
    for decision, test in (("repeats", _repeats), ("supersedes", _supersedes)):
        best = max(known, key=lambda memory: test(new, memory), default=None)
        if best is not None and test(new, best) > 0:
            rest = _rest(new, best) if decision == "supersedes" else ""
            return {"id": new["id"], "decision": decision, "known": best["id"], "keep": rest}
    return {"id": new["id"], "decision": "new", "known": None}


def _rest(new: dict[str, Any], known: dict[str, Any]) -> str:
    """Return the sentences of the known memory that the new one does not change, with the dates in brackets."""
    left = []
    for sentence in sentences(unframed(as_text(known.get("summary"))[:2000])):
        bare = _IN_BRACKETS.sub("", sentence)
        stands_alone = sum(_words(bare).values()) >= 2.0 and not CORRECTION.search(fold(bare))
        if stands_alone and not is_question(bare) and not any(_changes(one, bare, new, known) for one in _said(new)):
            left.append(sentence)
    return ("" if is_japanese("".join(left)) else " ").join(left)


def _said(memory: dict[str, Any]) -> list[str]:
    said = sentences(_IN_BRACKETS.sub("", unframed(as_text(memory.get("summary"))[:2000])))
    return [sentence for sentence in said if not is_question(sentence)]


def _words(text: str) -> dict[str, float]:
    """Return the content units without numbers, which are compared by value, and light verbs."""
    return {unit: weight for unit, weight in units(text).items() if not unit[0].isdigit() and unit not in _LIGHT}


def _repeats(new: dict[str, Any], known: dict[str, Any]) -> float:
    """Return the likeness where every sentence of the new memory stands in the known one with the same numbers."""
    pairs = [max((_same(one, other) for other in _said(known)), default=0.0) for one in _said(new)]
    if not pairs or min(pairs) < _REPEATS or any(CORRECTION.search(fold(one)) for one in _said(new)):
        return 0.0
    return min(pairs)


def _same(one: str, other: str) -> float:
    return likeness(_words(one), _words(other)) if numbers(one) == numbers(other) else 0.0


def _supersedes(new: dict[str, Any], known: dict[str, Any]) -> float:
    """Return how surely a sentence of the new memory changes a value of the known one; 0 where none does."""
    said = _said(known)
    return max((_changes(one, other, new, known) for one in _said(new) for other in said), default=0.0)


def _changes(one: str, other: str, new: dict[str, Any], known: dict[str, Any]) -> float:
    folded = fold(one)
    if _ANOTHER.search(folded):
        return 0.0
    likeness_of_words, common = likeness(_words(one), _words(other)), shared(_words(one), _words(other))
    if _BECAME.search(folded) and "は" not in folded:
        return 0.0
    if CORRECTION.search(folded):
        if _denies(folded, fold(other)) and (common or not _holds_denied(folded, one, new)):
            return 2.0 + likeness_of_words
        subject = common + 2.0 * bool(_entities(new) & _entities(known))
        lasting = known.get("memory_type") in ("decision", "preference") and bool(_CHANGES.search(folded))
        return 1.0 + likeness_of_words if common >= 2.0 and (subject >= 3.0 or lasting) else 0.0
    changed = bool(numbers(one)) and bool(numbers(other)) and numbers(one) != numbers(other)
    return likeness_of_words if changed and common >= 3.0 and likeness_of_words >= _SAME_PREDICATE else 0.0


def _denies(new: str, known: str) -> bool:
    """Tell whether the value a correction takes back (the 12万 of 「12万じゃなくて13万円」) stands in the known one."""
    for match in _DENIED.finditer(new):
        denied = match[1] or match[2]
        values = numbers(denied)
        if any(value in numbers(known) for value in values) or (not values and len(denied) > 1 and denied in known):
            return True
    return False


def _holds_denied(folded: str, one: str, new: dict[str, Any]) -> bool:
    """Tell whether the value taken back stands in another sentence of the same memory: then it is corrected there."""
    return any(_denies(folded, fold(other)) for other in _said(new) if other != one)


def _entities(memory: dict[str, Any]) -> set[str]:
    listed = memory.get("entities")
    names = listed if isinstance(listed, list) else []
    return {entity_key(name) for name in names if isinstance(name, str)} - {""}
