"""Remember: cut a session into topics, keep or drop them, summarise the kept ones in the speakers' own words."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stackmem.adapters.offline.aliases import aliases, once
from stackmem.adapters.offline.dates import occurred, parse, prefix, resolve
from stackmem.adapters.offline.forgetting import asks_to_forget
from stackmem.adapters.offline.names import MOST, names
from stackmem.adapters.offline.relative import Span
from stackmem.adapters.offline.words import (
    LOOKED_AT,
    as_text,
    is_japanese,
    is_question,
    items,
    likeness,
    sentences,
    shared,
    units,
)
from stackmem.adapters.offline.worth import CORRECTION, is_chatter, is_command, memory_type, robot_worth, worth
from stackmem.text import cut_at_sentence, fold

SUMMARY_LENGTH = 300  # characters
_FACT = 2.0  # worth from which a sentence makes its topic a memory
_TOGETHER = 4.0  # or the worth of all its turns
_WORDS_TOO = 1.0  # worth from which a sentence may stand in the summary
_ANSWER = 1.5  # what an answer to a question is worth more
_SHORT = 20  # characters up to which an answer needs its question beside it
_IDEAL, _LONGEST = 4, 8  # turns of a topic
_NEW_TOPIC = re.compile(
    r"\A\W*(?:ところで|そういえば|話(?:は|が)?変わ|突然です|ちなみに|あと、|それと"
    r"|by the way|anyway|oh,? (?:and|also)|speaking of|on another)"
)
_CONTINUES = re.compile(
    r"\A\W*(?:それ|その|そこ|そし|あれ|あの|これ|この|でも|けど|だから|で、|しかも|だって|めっちゃ|すごく|とっても|とても|うん|はい|ええ|そう|いや)|\b(?:it|its|it's|he|he's|him|his|she|she's|her|they|they're|them|their|that|that's|this|these|those|there|too|also)\b"
)


@dataclass(frozen=True)
class Line:
    """One sentence of a turn, who said it, and what it is worth."""

    by_user: bool
    text: str
    worth: float
    question: str = ""  # what it answers, where it is too short to stand alone


@dataclass(frozen=True)
class Turn:
    """One turn as the rules see it."""

    id: Any
    at: datetime | None
    recalled: bool
    lines: tuple[Line, ...]
    units: dict[str, float]
    opens_topic: bool
    answers: bool
    corrects: bool
    english: bool
    continues: bool  # by a word that points back: it, she, それ, でも
    to_robot: bool
    forget: str  # what the user asks to forget, "" where they do not
    aliases: tuple[list[str], ...]

    @property
    def worth(self) -> float:
        """The worth of its best sentence; 0 where it only repeats what was recalled."""
        return 0.0 if self.recalled else max((line.worth for line in self.lines), default=0.0)


def segments(window: dict[str, Any]) -> dict[str, Any]:
    """Return {"segments": [...]}: every turn in exactly one segment, in order."""
    both = window.get("both_speakers") is True
    turns = _read_all([turn for turn in items(window.get("turns")) if "turn_id" in turn], both)
    found: list[dict[str, Any]] = []
    for group in _split_by_memory(turns):
        found.extend(_segments_of(group, both))
    return {"segments": found}


def _read_all(turns: list[dict[str, Any]], both: bool) -> list[Turn]:
    read: list[Turn] = []
    asked = ""  # the question said last, "" where the last thing said was none
    for turn in turns:
        read.append(_read(turn, both, asked))
        said = sentences(as_text(turn.get("robot"))) or sentences(as_text(turn.get("user")))
        asked = said[-1] if said and is_question(said[-1]) else ""
    return read


def _read(turn: dict[str, Any], both: bool, asked: str) -> Turn:
    user, robot = as_text(turn.get("user")), as_text(turn.get("robot"))
    said = sentences(user)
    lines = _lines(said, True, asked, worth)
    if robot:
        asked_back = (said[-1] if is_question(said[-1]) else "") if said else asked
        lines += _lines(sentences(robot), False, asked_back if both else "", worth if both else robot_worth)
    english = bool(user) and not is_japanese(user)
    return Turn(
        id=turn["turn_id"],
        at=parse(turn.get("at")),
        recalled=turn.get("recalled") is True,
        lines=tuple(lines),
        units=units(user + "\n" + (_of_content(robot) if english and not both else robot)),
        opens_topic=any(_NEW_TOPIC.match(fold(text[:40])) for text in (user, robot if both else "")),
        answers=bool(asked),
        corrects=bool(CORRECTION.search(fold(user[:LOOKED_AT]))),
        english=english,
        continues=bool(_CONTINUES.search(fold(user[:LOOKED_AT]))),
        to_robot=not both,
        forget="" if both else asks_to_forget(user),
        aliases=tuple(aliases(user)),
    )


def _of_content(robot: str) -> str:
    """Return what the robot asked or advised: two "I see." are no topic that turns have in common."""
    return "\n".join(text for text in sentences(robot) if is_question(text) or robot_worth(text))


def _lines(said: list[str], by_user: bool, asked: str, value: Callable[[str], float]) -> list[Line]:
    """Return the lines of one speaker; the first statement after a question is its answer, and worth more."""
    lines = []
    for text in said:
        if asked and not _says_nothing(text):
            question = asked if len(text) <= _SHORT and len(asked) <= 2 * _SHORT else ""
            lines.append(Line(by_user, text, value(text) + _ANSWER, question))
            asked = ""
        else:
            lines.append(Line(by_user, text, value(text)))
    return lines


def _says_nothing(text: str) -> bool:
    return is_question(text) or is_chatter(text) or is_command(text)


def _split_by_memory(turns: list[Turn]) -> list[list[Turn]]:
    """Cut around turns that repeat a memory, so that none comes into a kept segment, and around requests to forget."""
    groups: list[list[Turn]] = []
    for turn in turns:
        last = groups[-1][-1] if groups else None
        if last is None or last.recalled != turn.recalled or last.forget or turn.forget:
            groups.append([])
        groups[-1].append(turn)
    return groups


def _segments_of(turns: list[Turn], both: bool) -> list[dict[str, Any]]:
    if turns[0].forget:
        what = turns[0].forget
        return [{**_dropped(turns[:1]), "topic": what[: 30 if is_japanese(what) else 60], "forget": what}]
    found: list[dict[str, Any]] = []
    for topic in _topics(turns):
        worthy = [index for index, turn in enumerate(topic) if turn.worth >= _WORDS_TOO]
        worths = [turn.worth for turn in topic]
        if not worthy or (max(worths) < _FACT and sum(worths) < _TOGETHER):
            found.append(_dropped(topic))
            continue
        first, last = worthy[0], worthy[-1] + 1
        found += [_dropped(topic[:first])] if first else []
        found.append(_kept(topic[first:last], both))
        found += [_dropped(topic[last:])] if topic[last:] else []
    return found


def _topics(turns: list[Turn]) -> list[list[Turn]]:
    """Cut into topics at the least total cost: a cut through shared words costs, and so does an odd length."""
    best: list[tuple[float, int]] = [(0.0, 0)]
    cuts = [_cost_of_cut(turns, gap) for gap in range(len(turns))]
    for end in range(1, len(turns) + 1):
        starts = range(max(0, end - _LONGEST), end)
        best.append(min((best[start][0] + cuts[start] + _cost_of_length(end - start), start) for start in starts))
    topics: list[list[Turn]] = []
    end = len(turns)
    while end:
        topics.append(turns[best[end][1] : end])
        end = best[end][1]
    return topics[::-1]


def _cost_of_length(length: int) -> float:
    return 0.02 * (length - _IDEAL) ** 2


def _cost_of_cut(turns: list[Turn], gap: int) -> float:
    """Return the likeness of the two turns before and after a gap; a cue such as ところで makes a cut welcome."""
    if gap == 0:
        return 0.0
    turn = turns[gap]
    before = {unit: weight for earlier in turns[max(0, gap - 2) : gap] for unit, weight in earlier.units.items()}
    after = {unit: weight for later in turns[gap : gap + 2] for unit, weight in later.units.items()}
    cost = likeness(before, after) - (0.5 if turn.opens_topic else 0.0) + (0.5 if turn.corrects else 0.0)
    if (turn.english or turn.to_robot) and not (turn.opens_topic or turn.corrects or turn.answers):
        return _cost_of_bare_cut(turn, before, cost)
    apart = not cost and not turn.answers and min(turns[gap - 1].worth, turn.worth) >= _FACT
    return cost - (0.3 if apart else 0.0)


def _cost_of_bare_cut(turn: Turn, before: dict[str, float], cost: float) -> float:
    """Return the cost before a turn without a cue: a word that points back holds it, and so does a shared one.

    For English, and for what people tell a robot: there most statements stand alone.
    """
    if turn.continues:
        return cost + 0.3
    return -0.3 if turn.worth >= _WORDS_TOO and not shared(before, turn.units) else cost


def _dropped(turns: list[Turn]) -> dict[str, Any]:
    nothing = {"topic": "", "summary": "", "entities": [], "memory_type": "episode"}
    return {
        "turn_ids": [turn.id for turn in turns],
        "keep": False,
        **nothing,
        **occurred(None, None),
        **_names_of(turns),
    }


def _kept(turns: list[Turn], both: bool) -> dict[str, Any]:
    chosen = _chosen(turns)
    texts = [line.text for _, line in chosen]
    japanese = is_japanese("".join(texts))
    entities = names("\n".join(texts))[:MOST]
    summary, span, at = _summary(chosen, turns[0].at, japanese, both)
    return {
        "turn_ids": [turn.id for turn in turns],
        "keep": True,
        "topic": _topic(entities, chosen, japanese),
        "summary": summary,
        "entities": entities,
        "memory_type": memory_type(texts),
        **occurred(span, at),
        **_names_of(turns),
    }


def _names_of(turns: list[Turn]) -> dict[str, Any]:
    pairs = [pair for turn in turns for pair in turn.aliases]
    return {"aliases": once(pairs)} if pairs else {}


def _chosen(turns: list[Turn]) -> list[tuple[Turn, Line]]:
    """Return the sentences for the summary, in order: the worthiest first until the summary is full."""
    lines = [(turn, line) for turn in turns for line in turn.lines if line.worth >= _WORDS_TOO]
    by_worth = sorted(range(len(lines)), key=lambda index: (-lines[index][1].worth, index))
    room, taken = SUMMARY_LENGTH - 40, []
    for index in by_worth:
        length = min(len(lines[index][1].text), 120) + len(lines[index][1].question) + 5
        if length <= room:
            room -= length
            taken.append(index)
    return [lines[index] for index in sorted(taken)]


def _topic(entities: list[str], chosen: list[tuple[Turn, Line]], japanese: bool) -> str:
    if entities:
        return ("、" if japanese else ", ").join(entities[:3])
    best = max((line for _, line in chosen), key=lambda line: line.worth)
    return (best.question + best.text)[: 30 if japanese else 60].strip("。、.,!！ ")


def _summary(
    chosen: list[tuple[Turn, Line]], began: datetime | None, japanese: bool, both: bool
) -> tuple[str, Span | None, datetime | None]:
    """Return the summary, the first date its sentences speak of, and when that sentence was said."""
    parts, found, found_at, speaker = [], None, None, None
    for turn, line in chosen:
        text, span = resolve(cut_at_sentence(line.text, 120), turn.at, japanese)
        if span is not None and found is None:
            found, found_at = span, turn.at
        if line.question:
            text = f"（{line.question}）{text}" if japanese else f"({line.question}) {text}"
        end = "" if text[-1] in "。！？!?." else "。" if japanese else "."
        parts.append(("" if line.by_user == speaker else _speaker(line.by_user, japanese, both)) + text + end)
        speaker = line.by_user
    text = prefix(began, japanese) + ("" if japanese else " ").join(parts)
    return cut_at_sentence(text, SUMMARY_LENGTH), found, found_at


def _speaker(by_user: bool, japanese: bool, both: bool) -> str:
    if by_user:
        return "ユーザー：" if japanese else "User: "
    if both:
        return "相手：" if japanese else "Partner: "
    return "ロボット：" if japanese else "Robot: "
