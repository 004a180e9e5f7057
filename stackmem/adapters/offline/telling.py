"""Answer from what was found: quote the words that fit, ask which one is meant, or say that nothing is known."""

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
    unframed,
    units,
)
from stackmem.adapters.offline.worth import CORRECTION, is_chatter, robot_worth, worth
from stackmem.text import cut_at_sentence, fold

QUOTE_LENGTH = 200  # characters
_DENIED = re.compile(r"[^、。，,\sはがも]{1,30}(?:じゃなくて?|ではなくて?|でなくて)、?")
_NUMBER_ASKED = re.compile(
    r"いくら|いくつ|(?:何|なん)(?:円|年|月|日|時|歳|個|匹|人|回|番|センチ|キロ|曜)|いつ|どのくらい|どれくらい"
    r"|\bhow (?:much|many|old|long|tall|far)\b|\bwhen\b"
)
_EXCUSE = re.compile(
    r"ごめん|すみません|言語モデルがまだ|[Ss]orry|I (?:don't|can't|do not) "
)  # what a robot says for want of words
_VAGUE = re.compile(r"あの|その|例の|どれ|どっち|どちら|\bwhich\b|\bthat\b")
_IN_SESSION = 0.8  # share of the question that words of this session must hold to answer it
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
    """A search result: its sentences in order of time, the question's words in it, and the fit of its best sentence."""

    topic: str
    words: tuple[Words, ...]
    about: float
    fit: float


def tell(question: str, results: Sequence[dict[str, Any]]) -> Reply:
    """Return the reply to a question from the results of the tools; it never invents anything."""
    japanese = is_japanese(question) or not question.strip()
    found = [_candidate(item, question) for result in results for item in items(result.get("candidates"))]
    found += [_candidate(item, question) for result in results for item in items(result.get("memories"))]
    found = [candidate for candidate in found if candidate.fit > 0]
    if not found:
        return _nothing(japanese)
    best = found[max(range(len(found)), key=lambda place: _grade(found[place], place))]
    others = [candidate for candidate in found if _rivals(best, candidate, question)]
    if others:
        return _which(best, others[0], japanese)
    return _quote(best, japanese)


def tell_from_session(question: str, earlier: Sequence[str]) -> Reply | None:
    """Return the reply where the user said it in this very session; None where nobody clearly did."""
    wanted, needs_number = units(question), bool(_NUMBER_ASKED.search(fold(question)))
    clear = max(2.0, _IN_SESSION * sum(wanted.values()))
    found = ""
    for sentence in (sentence for text in earlier for sentence in sentences(text)):
        if is_question(sentence):
            continue
        fits = shared(wanted, units(sentence)) >= clear and (bool(numbers(sentence)) or not needs_number)
        if fits or (found and _corrects(sentence, found)):
            found = sentence
    if not found:
        return None
    quoted = _undenied(cut_at_sentence(found, QUOTE_LENGTH)).strip("。.")
    said = f"さっき『{quoted}』って言ってたね。" if is_japanese(question) else f'You just said "{quoted}".'
    return Reply(said, "happy", "nod")


def _corrects(later: str, earlier: str) -> bool:
    both_count = bool(numbers(later)) and bool(numbers(earlier))
    return bool(CORRECTION.search(fold(later))) and (both_count or shared(units(later), units(earlier)) >= 2.0)


def _candidate(item: dict[str, Any], question: str) -> Candidate:
    summary, at = as_text(item.get("summary")), item.get("said_at") or item.get("occurred_at")
    words = _words_of(items(item.get("sources")), question, at)
    if not any(word.fit > 0 for word in words):
        said = sentences(unframed(summary))
        words += [
            Words(one, True, at, max(_fit(question, one), 0.1), place) for place, one in enumerate(said, len(words))
        ]
    best = max(words, key=lambda word: word.fit, default=None)
    topic = as_text(item.get("topic")) or (best.text if best else "")
    about = shared(units(question), units(topic + summary + "\n".join(word.text for word in words)))
    return Candidate(topic, tuple(words), about, best.fit if best else 0.0)


def _words_of(sources: Sequence[dict[str, Any]], question: str, at: Any) -> list[Words]:
    """Return the sentences of the sources; an answer fits as well as the question before it, a mere echo not at all."""
    words: list[Words] = []
    asked = 0.0  # how well the question that stands open fits
    for source, by_user in ((source, by_user) for source in sources for by_user in (True, False)):
        before = units("\n".join(word.text for word in words[-4:]))
        for text in sentences(as_text(source.get("user" if by_user else "robot"))):
            fit = _fit(question, text)
            if is_question(text):
                asked = 0.8 * closeness(question, text)
            elif not by_user and _EXCUSE.match(text):
                fit = 0.0
            elif not is_chatter(text):
                idle = not by_user and not asked and _is_echo(text, before)
                fit, asked = (0.0 if idle else fit + asked), 0.0
            words.append(Words(text, by_user, source.get("at") or at, fit, len(words)))
    return words


def _is_echo(text: str, before: dict[str, float]) -> bool:
    """Tell whether the robot's sentence states nothing of its own."""
    return max(worth(text), robot_worth(text)) < 1.0 or shared(units(text), before) == sum(units(text).values())


def _fit(question: str, sentence: str) -> float:
    """Return how well a sentence answers a question: shared words, a number where one is asked; no question answers."""
    common, value = shared(units(question), units(sentence)), worth(sentence)
    if is_question(sentence) or (not common and value < 1.0):
        return 0.0
    number = 1.5 * (bool(_NUMBER_ASKED.search(fold(question))) and bool(numbers(sentence)))
    return closeness(question, sentence) + number + 0.3 * min(value, 4.0) + bool(CORRECTION.search(fold(sentence)))


def _grade(candidate: Candidate, place: int) -> float:
    """Return the grade by which one candidate is chosen; the search's own order counts most (measured)."""
    return 0.5 * candidate.about + 0.5 * candidate.fit - 1.5 * place


def _rivals(best: Candidate, other: Candidate, question: str) -> bool:
    """Tell whether another candidate fits about as well, clearly enough, and is about something clearly different."""
    covered, as_well = (0.5, 0.8) if _VAGUE.search(fold(question)) else (0.7, 0.9)
    clear = max(2.0, covered * sum(units(question).values()))
    if other is best or best.about < clear or other.about < max(clear, as_well * best.about):
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
    parts: list[str] = []
    for by_user in (True, False):
        quoted = " ".join(
            _undenied(cut_at_sentence(word.text, QUOTE_LENGTH)) for word in chosen if word.by_user is by_user
        )
        if quoted:
            parts.append(_said(quoted.strip("。. "), by_user, "" if parts else day, japanese))
    said = ("" if japanese else " ").join(parts)
    if candidate.about > 0:
        return Reply(said, "happy", "nod")
    return Reply(
        ("はっきりとは覚えていないけど、" if japanese else "I'm not sure, but maybe this: ") + said, "doubt", "tilt"
    )


def _said(quoted: str, by_user: bool, day: str, japanese: bool) -> str:
    if japanese:
        return (f"{day}に" if day else "") + f"『{quoted}』って" + ("言ってたね。" if by_user else "話したよ。")
    who = "you said" if by_user else "I said"
    return (f"On {day} {who}" if day else who[0].upper() + who[1:]) + f' "{quoted}".'
