"""What the rules see of a text: its language, sentences, content units, numbers, and whether a sentence asks."""

import json
import re
from typing import Any

from stackmem.text import bigrams, clean, clean_json, fold

LOOKED_AT = 4000  # characters of one text the rules look at; a longer one is not talk, and time must stay linear

_JAPANESE = re.compile(r"[ぁ-ヿ㐀-鿿々]")
_SENTENCE_END = re.compile(r"([。！？!?]+|\.(?=\s))")
_UNIT = re.compile(r"[ァ-ヺ][ァ-ヺー]+|[㐀-鿿々]|[a-z0-9]+(?:['.,][a-z0-9]+)*")
_FRAME = re.compile(
    r"\A[0-9]{4}年[0-9]{1,2}月[0-9]{1,2}日、|\AOn [0-9-]{10}, |(?:ユーザー|相手|ロボット)：|(?:User|Partner|Robot): "
)
_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*万?|[一二三四五六七八九十百千]+万")
_STOP_KANJI = frozenset("何私僕俺君言話覚教知分前今回時日月年誰方的々")
_STOP_WORDS_TEXT = """
a about am an and any are as at be been but by can could did do does don't for from get go had has have
he her his how i i'm i've if in is it it's its just like many me mine much my of on or our please remember said say
she so some tell that that's the their them then there they this to told us was we were what what's when
where which who whose why will with would you your
"""
_STOP_WORDS = frozenset(_STOP_WORDS_TEXT.split())
_QUESTION_END = re.compile(
    r"(?:[?]|(?:です|ます|ません|でしょう|のです|んです|のだ|だ)か|(?:ました|でした|った|たん)か[ねな]?"
    r"|かな[あぁー]?|かしら|っけ(?:[かなねー]|、?(?:わたし|私|僕|ぼく|俺|おれ))?|(?:覚えて|おぼえて|知って|しって)(?:い?る|い?ます)か?"
    r"|わかる|分かる|言える|思い出せる|んだった|(?<!んだ)よね"
    r"|(?<=[はがて、 ])なん(?:だ|です)|なんだろう?|(?:ない|たい|る|た)の"
    r"|(?<!に)(?<!こんにち)(?<!こんばん)は|(?:何|なに|どこ|いつ|誰|だれ|いくら|どれ|どっち)(?:だ|です)?)[\s。、!~…]*\Z"
)
_ENGLISH_QUESTION = re.compile(
    r"\A\W*(?:hey|so|and|but|ok|okay|um|uh|well)?\W*(?:(?:what|where|when|who|whose|which|why|how)(?:'s)?\b"
    r"|(?:do|did|does|have|has|is|are|was|were|can|could|will|would|should) (?:i|you|we|my|it|he|she|they|the|there)\b)"
)


def is_japanese(text: str) -> bool:
    """Tell whether any kana or kanji stands in the text."""
    return bool(_JAPANESE.search(text[:LOOKED_AT]))


def sentences(text: str) -> list[str]:
    """Return the sentences in order, each with its closing marks, without surrounding white space."""
    parts = _SENTENCE_END.sub(r"\1\n", text[:LOOKED_AT]).splitlines()
    return [part.strip() for part in parts if part.strip()]


def is_question(sentence: str) -> bool:
    """Tell whether a sentence asks, by its end in Japanese (with or without a mark), by mark or order in English."""
    folded = fold(sentence[:LOOKED_AT]).strip()
    if _QUESTION_END.search(folded[-40:]):
        return True
    return not is_japanese(folded) and bool(_ENGLISH_QUESTION.match(folded[:200]))


def units(text: str) -> dict[str, float]:
    """Return the content units with their weights: 1 a kanji, 2 a katakana or Latin word or a number."""
    found = _UNIT.findall(fold(text[:LOOKED_AT]))
    kept = (unit for unit in found if unit not in _STOP_WORDS and unit not in _STOP_KANJI)
    return {unit: 1.0 if _is_kanji(unit) else 2.0 for unit in kept}


def _is_kanji(unit: str) -> bool:
    return len(unit) == 1 and not unit.isascii()


def shared(left: dict[str, float], right: dict[str, float]) -> float:
    """Return the weight of the units that stand in both."""
    return sum(weight for unit, weight in left.items() if unit in right)


def likeness(left: dict[str, float], right: dict[str, float]) -> float:
    """Return the weighted Jaccard index of two sets of units, 0 to 1; 0 where both are empty."""
    both = shared(left, right)
    total = sum(left.values()) + sum(right.values()) - both
    return both / total if total else 0.0


def closeness(question: str, sentence: str) -> float:
    """Return how well a sentence fits a question: shared units, and a little for shared character bigrams."""
    common = set(bigrams(question[:LOOKED_AT])) & set(bigrams(sentence[:LOOKED_AT]))
    return shared(units(question), units(sentence)) + 0.2 * len(common)


def numbers(text: str) -> list[str]:
    """Return the numbers in order, folded; 12万 counts as one, thousands separators are dropped."""
    return [number.replace(",", "") for number in _NUMBER.findall(fold(text[:LOOKED_AT]))]


def unframed(summary: str) -> str:
    """Return a summary of ours without the date it begins with and without who said what."""
    return _FRAME.sub("", summary)


def as_text(value: Any) -> str:
    """Return a string as it is (cleaned), a list of OpenAI text parts joined, anything else as ""."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return "\n".join(as_text(part.get("text")) for part in value if isinstance(part, dict))
    return ""


def read_object(content: Any) -> dict[str, Any]:
    """Return the JSON object in a message's content; {} where there is none."""
    try:
        value = clean_json(json.loads(as_text(content)))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON list; [] where it is none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
