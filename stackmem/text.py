"""Text at every entry, and the keys by which words and names are compared."""

import re
import unicodedata
from functools import lru_cache
from typing import Any

_LONE_OR_NUL = re.compile("[\x00\ud800-\udfff]")
_MOVES = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")  # control characters but tab and new line
_DASHES = "-֊־᐀᠆‐‑‒–—―⸗⸚⸺⸻⹀⹝〜〰゠︱︲﹘﹣－𐺭−⁃\u00ad~～∼∽⁓"  # Unicode's class Pd, and what looks alike
_SEPARATORS = re.compile(rf"[\s{re.escape(_DASHES)}_・･.,，、。'’\"”“]+")
_NO_LETTERS = re.compile(r"[\W_]+")
_WIDE_PUNCTUATION = re.compile("[\u3000‥…！-／：-＠［-｀｛-･]+")
_LONG_MARK_AS_DASH = re.compile(r"(?<![ぁ-ゖァ-ヺー])ー+")  # RTXー3050: the key beside 0 on a Japanese keyboard
_KANJI = re.compile(r"[㐀-鿿々]{2,}")
_PIECE = re.compile(r"[a-z]{3,}|[0-9]{2,}|[ァ-ヺ][ァ-ヺー]+|[^\W\d_a-zぁ-ヿ㐀-鿿々]{2,}")
_TOKENS = (  # a kind of character and how many tokens one of it is
    (re.compile("[ぁ-ゖ]"), 0.38),
    (re.compile("[ァ-ヺー]"), 0.76),
    (re.compile("[㐀-鿿]"), 0.98),
    (re.compile("[A-Za-z]"), 0.27),
    (re.compile("[0-9]"), 1.2),
    (re.compile("[!-/:-@\\[-`{-~]"), 0.63),
    (re.compile("\n"), 0.8),
)
_JAPANESE_KINDS = 3
_WIDE_TOKENS = 1.36  # 、。！…, other scripts, emoji
_KATAKANA_WORD = re.compile(r"[ァ-ヺ][ァ-ヺー]{2,}ー\Z")


def clean(text: str) -> str:
    """Replace NUL and lone surrogates by U+FFFD, so that any database and any JSON reader takes the text."""
    return _LONE_OR_NUL.sub("\ufffd", text)


def for_terminal(text: str) -> str:
    """Replace what would move a terminal's cursor or colour it, such as escape sequences in a model's reply."""
    return _MOVES.sub("\ufffd", text)


def clean_json(value: Any) -> Any:
    """Clean every string inside a JSON value, keys too."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(inner) for inner in value]
    return value


def depth_within(value: Any, limit: int) -> bool:
    """Tell whether a JSON value has at most so many levels: a deeper one would end whoever walks it."""
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return True
    return False


def fold(text: str) -> str:
    """Return the text as compared by words: NFKC, case-folded."""
    return unicodedata.normalize("NFKC", text).casefold()


def entity_key(name: str) -> str:
    """Return the key under which spellings of one name meet; "" when nothing is left.

    NFKC, case, white space, dashes and kana width do not count
    (``rtx3050ti`` = ``ＲＴＸ ３０５０ Ｔｉ`` = ``RTX-3050Ti``);
    only a final ー of a katakana word of four characters or more is dropped
    (サーバー = サーバ, but ビール is not ビル).
    """
    key = _LONG_MARK_AS_DASH.sub("", _SEPARATORS.sub("", fold(name)))
    return key[:-1] if _KATAKANA_WORD.match(key) else key


def key_letters(character: str, before: str) -> str:
    """Return what one character brings to the key of a text whose key ends with ``before`` so far."""
    letters = _SEPARATORS.sub("", fold(character))
    return _LONG_MARK_AS_DASH.sub("", before + letters)[len(before) :] if letters == "ー" else letters


@lru_cache(maxsize=8192)  # a search reads the same few thousand memories and turns again and again
def letters(text: str) -> str:
    """Return the folded text without white space and punctuation."""
    # NFKC is slow where there is something for it to do: wide punctuation goes before.
    return _NO_LETTERS.sub("", fold(_WIDE_PUNCTUATION.sub("\n", text)))


def bigrams(text: str) -> list[str]:
    """Return the character bigrams of a text's letters, in order; a one-character text gives that character."""
    word = letters(text)
    return [word[i : i + 2] for i in range(len(word) - 1)] or ([word] if word else [])


def content_pieces(text: str) -> frozenset[str]:
    """Return what carries the content of a text: words and numbers of two characters or more, pairs of kanji."""
    pieces = _PIECE.findall(fold(text))
    pairs = (run[i : i + 2] for run in _KANJI.findall(text) for i in range(len(run) - 1))
    return frozenset([*pieces, *pairs])


@lru_cache(maxsize=4096)  # the same turns and prompts are counted again and again
def estimate_tokens(text: str) -> int:
    """Return the number of Qwen tokens, estimated from the kinds of characters (docs/decisions/0014)."""
    ascii_count = len(text.encode("ascii", "ignore"))
    counted = [(len(kind.findall(text)), weight) for kind, weight in _TOKENS]
    wide = len(text) - ascii_count - sum(count for count, _ in counted[:_JAPANESE_KINDS])
    return int(sum(count * weight for count, weight in counted) + wide * _WIDE_TOKENS) + 1


def cut_at_sentence(text: str, limit: int) -> str:
    """Return at most ``limit`` characters, ending with a sentence where one ends in the second half."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    end = max(head.rfind(mark) for mark in "。！？!?．.\n")
    return head[: end + 1] if end >= limit // 2 else head
