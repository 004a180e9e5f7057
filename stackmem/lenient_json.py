"""Finding the JSON value that a chat model meant, in the text that it wrote. Pure, never raises."""

import json
import math
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Self, SupportsIndex

from json_repair import repair_json

_REPAIR_LIMIT = 65_536  # characters
_REPAIR_STEPS = 250_000  # looks at a character, about 0.2 s; a real answer of 16,000 characters takes 35,000
BLOCK_LIMIT = 16  # values, fences or calls looked at in one text
FENCE = re.compile(r"```(?:json\b|[\w-]{0,20}\n)?(.*?)(?:```|\Z)", re.DOTALL)
_OBJECT = re.compile(r"""\{\s*+(?:["'“}]|\w{1,64}\s*+:)|\[\s*+[\[{]""")  # {name} and [1] in prose are not JSON
_FLAT_LIST = re.compile(r'\[\s*+["\d\]-]')


def _finite(number: str) -> float | None:
    """Read NaN, Infinity and 1e999, which no JSON can hold again, as null."""
    value = float(number)
    return value if math.isfinite(value) else None


_DECODER = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)


def find_json(text: str) -> Any | None:
    """Return the value: plain, fenced, inside a JSON string, with text around it, with faults; else None.

    The first object wins over others and over lists. NaN and infinities are read as None.
    """
    value = _load(text)
    if isinstance(value, str):  # JSON inside a JSON string
        inner = _load(value.strip())
        return value if inner is None else inner
    if value is not None:
        return value
    readings: tuple[Callable[[str], Any], ...] = (_fenced, _embedded, _repaired, _flat_list)
    return next((found for read in readings if (found := read(text)) is not None), None)


def _load(text: str) -> Any | None:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


class _TooMuchWork(Exception):
    """A text is not worth more work."""


class _Watched(str):
    """A text that may be looked at so many times: json-repair takes minutes over some garbage of this length."""

    steps: list[int]  # shared with the pieces, since json-repair goes on with texts made of them

    @classmethod
    def over(cls, text: str, steps: list[int]) -> Self:
        watched = cls(text)
        watched.steps = steps
        return watched

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        piece = super().__getitem__(key)
        self.steps[0] += 1 + len(piece) // 64
        if self.steps[0] > _REPAIR_STEPS:
            raise _TooMuchWork
        return _Watched.over(piece, self.steps) if isinstance(key, slice) else piece

    def __add__(self, other: str) -> str:
        return _Watched.over(super().__add__(other), self.steps)


def _fenced(text: str) -> Any | None:
    bodies = (fence[1].strip() for fence in some(FENCE.finditer(text)))
    return next((value for body in bodies if isinstance(value := _load(body), dict | list)), None)


def _embedded(text: str) -> Any | None:
    """Return the first whole object (else list) between other text; None where the first opening is a broken one."""
    found: list[Any] = []
    position = 0
    while len(found) < BLOCK_LIMIT and (opening := _OBJECT.search(text, position)):
        decoded = decode_at(text, opening.start())
        if decoded is None:
            break  # what stands inside a broken value is not the value
        found.append(decoded[0])
        position = decoded[1]
    return max(found, key=lambda value: (bool(value), isinstance(value, dict)), default=None)


def decode_at(text: str, start: int) -> tuple[Any, int] | None:
    """Return the value that begins at ``start`` and the position behind it; None where it is not sound JSON."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def _repaired(text: str) -> Any | None:
    opening = _OBJECT.search(text)
    if opening is None:
        return None
    broken = _Watched.over(text[opening.start() : opening.start() + _REPAIR_LIMIT], [0])
    try:
        value = _load(repair_json(broken, skip_json_loads=True, ensure_ascii=False))  # through text: plain types again
    except (ValueError, RecursionError, _TooMuchWork):
        return None
    return value if isinstance(value, dict | list) else None


def _flat_list(text: str) -> Any | None:
    starts = (opening.start() for opening in some(_FLAT_LIST.finditer(text)))
    return next((decoded[0] for start in starts if (decoded := decode_at(text, start))), None)


def some(matches: Iterator[re.Match[str]]) -> Iterator[re.Match[str]]:
    """Return the first ``BLOCK_LIMIT`` matches: more of anything is garbage."""
    return islice(matches, BLOCK_LIMIT)
