"""Answer a question from what was found: quote the words that fit it, ask which one is meant, or say that nothing is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stackmem.adapters.offline.dates import spoken
from stackmem.adapters.offline.replies import Reply
from stackmem.adapters.offline.words import (
    as_text,
    closeness,
    is_japanese,
    is_question,
    items,
    likeness,
    numbers,
    sentences,
    shared,
    units,
)
from stackmem.adapters.offline.worth import CORRECTION, worth
from stackmem.text import cut_at_sentence, fold

QUOTE_LENGTH = 200  # characters
_FRAME = re.compile(
    r"\A[0-9]{4}年[0-9]{1,2}月[0-9]{1,2}日、|\AOn [0-9-]{10}, |(?:ユーザー|相手|ロボット)：|(?:User|Partner|Robot): "
)
_DENIED = re.compile(r"[^、。，,\s]{1,30}(?:じゃなくて?|ではなくて?|でなくて)、?")
_NUMBER_ASKED = re.compile(
    r"いくら|いくつ|(?:何|なん)(?:円|年|月|日|時|歳|個|匹|人|回|番|センチ|キロ|曜)|いつ|どのくらい|どれくらい|\bhow (?:much|many|old|long|tall|far)\b|\bwhen\b"
)
_ASK_BACK = 0.8  # the second candidate fits at least this much as well as the first
_DIFFERENT = 0.35  # likeness of two candidates below which they are about different things


@dataclass(frozen=True)
class Words:
    """A sentence somebody said: whether the user did, when (ISO 8601), and how well it fits the question."""

    text: str
    by_user: bool
    at: Any
    fit: float
    place: int


@dataclass(frozen=True)
class Candidate:
    """A search result with its sentences in order of time, and how well the best of them fits."""

    topic: str
    words: tuple[Words, ...]
    fit: float
    at: Any


def tell(question: str, results: Sequence[dict[str, Any]]) -> Reply:
    """Return the reply to a question from the results of the tools; it never invents anything."""
    japanese = is_japanese(question) or not question.strip()
    found = [_candidate(item, question) for result in results for item in items(result.get("candidates"))]
    found += [_candidate(item, question) for result in results for item in items(result.get("memories"))]
    found = [candidate for candidate in found if candidate.words]
    if not found:
        return _nothing(japanese)
    best = max(found, key=lambda candidate: candidate.fit)  # the first of equals: the search's own order
    others = [candidate for candidate in found if _rivals(best, candidate)]
    if others:
        return _which(best, others[0], japanese)
    return _quote(best, japanese)


def tell_from_session(question: str, earlier: Sequence[str]) -> Reply | None:
    """Return the reply where the user said it in this very session; None where nobody clearly did."""
    wanted, needs_number = units(question), bool(_NUMBER_ASKED.search(fold(question)))
    weight = sum(wanted.values())
    best: tuple[float, str] = (0.0, "")
    for sentence in (sentence for text in earlier for sentence in sentences(text)):
        common = shared(wanted, units(sentence))
        fits = common >= 2.0 and common >= 0.6 * weight and not is_question(sentence)
        if fits and (numbers(sentence) or not needs_number) and common >= best[0]:
            best = (common, sentence)
    if not best[1]:
        return None
    quoted = _undenied(cut_at_sentence(best[1], QUOTE_LENGTH)).strip("。.")
    said = f"さっき『{quoted}』って言ってたね。" if is_japanese(question) else f'You just said "{quoted}".'
    return Reply(said, "happy", "nod")


def _candidate(item: dict[str, Any], question: str) -> Candidate:
    summary, sources = as_text(item.get("summary")), items(item.get("sources"))
    at = item.get("occurred_at") or item.get("said_at")
    words: list[Words] = []
    for source in sources:
        for by_user, text in ((True, source.get("user")), (False, source.get("robot"))):
            words += [
                Words(sentence, by_user, source.get("at") or at, _fit(question, sentence), place)
                for place, sentence in enumerate(sentences(as_text(text)), len(words))
            ]
    if not any(word.fit > 0 for word in words):
        said = sentences(_FRAME.sub("", summary))
        words += [Words(one, True, at, _fit(question, one), place) for place, one in enumerate(said, len(words))]
    topic = as_text(item.get("topic")) or summary
    about = shared(units(question), units(topic + summary + "\n".join(word.text for word in words)))
    return Candidate(topic, tuple(words), about + max((word.fit for word in words), default=0.0) / 10, at)


def _fit(question: str, sentence: str) -> float:
    """Return how well a sentence answers a question: shared words, a number where one is asked; no question answers."""
    if is_question(sentence):
        return 0.0
    value = 1.5 * (bool(_NUMBER_ASKED.search(fold(question))) and bool(numbers(sentence)))
    return closeness(question, sentence) + value + 0.3 * min(worth(sentence), 4.0) + bool(CORRECTION.search(sentence))


def _rivals(best: Candidate, other: Candidate) -> bool:
    """Tell whether another candidate fits about as well and is about something clearly different."""
    if other is best or best.fit < 1.0 or other.fit < _ASK_BACK * best.fit:
        return False
    return likeness(units(best.topic), units(other.topic)) < _DIFFERENT


def _nothing(japanese: bool) -> Reply:
    if japanese:
        return Reply("ごめん、それは覚えていないみたい。", "sad", "shake")
    return Reply("Sorry, I don't remember anything about that.", "sad", "shake")


def _which(one: Candidate, other: Candidate, japanese: bool) -> Reply:
    first, second = one.topic[:40], other.topic[:40]
    if japanese:
        return Reply(f"どっちの話？「{first}」のこと？それとも「{second}」のこと？", "doubt", "tilt")
    return Reply(f"Which one do you mean: “{first}” or “{second}”?", "doubt", "tilt")


def _undenied(sentence: str) -> str:
    """Return a correction without the value it takes back: 「12万じゃなくて13万円」 gives 「13万円」."""
    return _DENIED.sub("", sentence) or sentence


def _chosen(words: Sequence[Words]) -> list[Words]:
    """Return the best sentences that fit into one quotation, in the order they were said."""
    corrected = max((word.place for word in words if CORRECTION.search(word.text) and word.by_user), default=-1)
    taken: list[Words] = []
    room = QUOTE_LENGTH
    for word in sorted(words, key=lambda word: (-word.fit, word.place)):
        stale = 0 <= word.place < corrected and numbers(word.text)
        if word.fit > 0 and not stale and min(len(word.text), QUOTE_LENGTH) <= room and len(taken) < 4:
            taken.append(word)
            room -= len(word.text)
    return sorted(taken or list(words[:1]), key=lambda word: word.place)


def _quote(candidate: Candidate, japanese: bool) -> Reply:
    chosen = _chosen(candidate.words)
    day = spoken(max(chosen, key=lambda word: word.fit).at, japanese)
    parts = []
    for by_user in (True, False):
        quoted = " ".join(
            _undenied(cut_at_sentence(word.text, QUOTE_LENGTH)) for word in chosen if word.by_user is by_user
        )
        if quoted:
            parts.append(_said(quoted.strip("。. "), by_user, "" if parts else day, japanese))
    return Reply(("" if japanese else " ").join(parts), "happy", "nod")


def _said(quoted: str, by_user: bool, day: str, japanese: bool) -> str:
    if japanese:
        return (f"{day}に" if day else "") + f"『{quoted}』って" + ("言ってたね。" if by_user else "話したよ。")
    who = "you said" if by_user else "I said"
    return (f"On {day} {who}" if day else who[0].upper() + who[1:]) + f' "{quoted}".'
