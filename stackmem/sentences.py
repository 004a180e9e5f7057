"""Where sentences end, Japanese and English, also in a text that is still growing. Pure."""

import re
from collections.abc import Iterator

_MARK = re.compile(r"""[.!?。！？]++["'”’」』）)\]]*+|\n""")
_ABBREVIATION = re.compile(r"\b(?:[A-Za-z]|Mr|Mrs|Ms|Dr|St|No|vs)\Z")


def end_of_sentence(text: str, start: int = 0) -> int | None:
    """Return the position behind the first whole sentence after ``start``; None where the last one may go on.

    A sentence ends with 。！？ or their like, closing quotes included, or before a new line. The character behind it
    must be there: nothing that is added to the text later moves an end. What belongs to no end ("3.5", "Dr. Ito",
    "1. ") ends nothing.
    """
    for mark in _MARK.finditer(text, start):
        before = text[start : mark.start()]
        if mark[0] == "\n":
            if before.strip():
                return start + len(before.rstrip())
        elif mark.end() < len(text) and _ends(before, mark[0], text[mark.end()]):
            return mark.end()
    return None


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences, with the white space before them: joined they are the text. The last may have no end."""
    start = 0
    while (end := end_of_sentence(text, start)) is not None:
        yield text[start:end]
        start = end
    if text[start:].strip():
        yield text[start:]


def _ends(before: str, mark: str, following: str) -> bool:
    if any(wide in mark for wide in "。！？"):
        return True
    if not following.isspace():
        return "." not in mark and not following.isascii()  # いいね!でも
    return not (mark == "." and (before.strip().isdigit() or _ABBREVIATION.search(before[-8:])))
