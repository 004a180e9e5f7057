"""Does a reply ask which one is meant? By rules: a question that names both, or that asks 「どっち」 or "which"."""

import re
from collections.abc import Sequence

from stackmem.text import content_pieces, fold

# ? and ？ are one after folding. Spoken questions end with か, the or かな before the full stop, or with nothing.
_QUESTION = re.compile(r"\?|(?:か|かな|かしら|っけ|の話|のこと)(?:[。!.…〜~]|$)")
_WHICH = re.compile(
    r"どっち|どちら|どの|どれ|どなた|何の話|なんの話|誰のこと|だれのこと|どこの|いつの(?!間|まに)"
    r"|\bwhich\b|\bwho do you mean\b|\bdo you mean\b"
)
_SENTENCE = re.compile(r"[^。!?\n]*[。!?\n]?")


def asks_back(reply: str, candidates: Sequence[str]) -> bool:
    """Tell whether the reply asks which of the candidates is meant.

    ``candidates`` are their words, one text each. A question counts when it holds a word such as 「どっち」, or names
    at least two of the candidates by a piece that the others have not.
    """
    return any(_asks_which(part, candidates) for part in _questions(fold(reply)))


def _questions(reply: str) -> list[str]:
    """Return the sentences that ask, each with the one before it: 「AとBがあるね。どっち？」."""
    parts = [part for part in _SENTENCE.findall(reply) if part.strip()]
    return ["".join(parts[max(0, i - 1) : i + 1]) for i, part in enumerate(parts) if _QUESTION.search(part.strip())]


def _asks_which(question: str, candidates: Sequence[str]) -> bool:
    return bool(_WHICH.search(question)) or _named(question, candidates) > 1


def _named(question: str, candidates: Sequence[str]) -> int:
    """Return how many of the candidates a question names by what only they have."""
    pieces = [content_pieces(text) for text in candidates]
    own = [
        piece.difference(*(other for place, other in enumerate(pieces) if place != number))
        for number, piece in enumerate(pieces)
    ]
    return sum(any(word in question for word in words) for words in own)
