"""Names: which spelling is shown, and which names mean the same thing. Names widen a search; they merge nothing."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from peewee import SQL, fn

from stackmem.answers import ENTITY_LIMIT
from stackmem.exceptions import InvalidInput, NotFound
from stackmem.models import Alias, MemoryEntity, Owner, Turn
from stackmem.prepared import Prepared
from stackmem.text import entity_key, key_letters

WIDENED = 20  # names that one search is widened to at most
ENTITIES = 500  # in one query
_FORMS = Prepared(
    lambda owner, keys: (
        MemoryEntity.select(
            MemoryEntity.key,
            MemoryEntity.name,
            fn.SUM(MemoryEntity.said).alias("said"),
            fn.COUNT(SQL("1")).alias("count"),
        )
        .where(MemoryEntity.owner == owner, MemoryEntity.key.in_(keys))
        .group_by(MemoryEntity.key, MemoryEntity.name)
    ),
    lists=["keys"],
)
_ALIASES = Prepared(lambda owner: Alias.select(Alias.key, Alias.other_key).where(Alias.owner == owner))
_SAYS_NOTHING = re.compile("[ぁ-んァ-ヶーA-Za-z0-9]")  # one such letter stands in every turn


# --- spellings -------------------------------------------------------------------------------------------------------


def spellings(text: str, key: str) -> Counter[str]:
    """Count the spellings under which a name stands in a text: ``RTX-3050Ti`` and ``ＲＴＸ ３０５０`` alike."""
    found: Counter[str] = Counter()
    pieces = list(_pieces(text))
    letters = "".join(letter for letter, _, _ in pieces)
    place = letters.find(key) if key else -1
    while place >= 0:
        end = place + len(key)
        said = text[pieces[place][1] : pieces[end - 1][2]].strip()
        if not _cuts_a_word(letters, place, end, pieces, text):
            found[_with_long_mark(text, pieces[end - 1][2], said)] += 1
        place = letters.find(key, end)
    return found


def _pieces(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield every letter of the text's key with where its character begins and ends in the text."""
    place, before = 0, ""
    while place < len(text):
        end = place + 1
        while end < len(text) and (text[end] in "ﾞﾟ" or unicodedata.combining(text[end])):
            end += 1
        for letter in key_letters(text[place:end], before):
            yield letter, place, end
            before = letter
        place = end


def _cuts_a_word(letters: str, start: int, end: int, pieces: Sequence[tuple[str, int, int]], text: str) -> bool:
    """Tell whether a Latin word or a katakana word goes on beyond the name: ``Ti`` is not said in ``Title``."""
    before = start > 0 and pieces[start - 1][2] == pieces[start][1] and _same_script(letters[start - 1], letters[start])
    after = (
        end < len(letters)
        and pieces[end - 1][2] == pieces[end][1]
        and _same_script(letters[end - 1], letters[end])
        and text[pieces[end][1]] != "ー"
    )
    return before or after


def _same_script(one: str, other: str) -> bool:
    return (one.isascii() and one.isalpha() and other.isascii() and other.isalpha()) or (
        "ァ" <= one <= "ヺ" and "ァ" <= other <= "ヺ"
    )


def _with_long_mark(text: str, end: int, said: str) -> str:
    return said + "ー" if text[end : end + 1] in ("ー", "ｰ") and entity_key(said + "ー") == entity_key(said) else said


def entity_rows(owner: str, names: Sequence[str], turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Return the entity columns of one memory: each key once, the spelling said most often in these turns, how often.

    Where no turn says it, the given name stands, said 0 times.
    """
    rows: dict[str, dict[str, Any]] = {}
    words = [f"{turn.user}\n{turn.reply}" for turn in turns]
    for name in names:
        key = entity_key(name)
        if key and key not in rows:
            said = sum((spellings(text, key) for text in words), Counter[str]())
            best = min(said, key=lambda form: (-said[form], form), default=name)
            rows[key] = {"owner": owner, "key": key, "name": best, "said": said.total()}
    return list(rows.values())


def display_forms(owner: str, keys: Iterable[str]) -> dict[str, str]:
    """Return the spelling of each key that this owner says most often, over all memories that are not purged."""
    wanted, forms = sorted(set(keys)), dict[str, Counter[str]]()
    for start in range(0, len(wanted), ENTITIES):
        for key, name, said, count in _FORMS.rows(owner=owner, keys=wanted[start : start + ENTITIES]):
            # What was said counts; among names nobody said as they stand, the one most memories have.
            forms.setdefault(key, Counter())[name] += 1000 * said + count
    return {key: min(count, key=lambda form: (-count[form], form)) for key, count in forms.items()}


# --- aliases ---------------------------------------------------------------------------------------------------------


def note_aliases(owner: str, pairs: Iterable[tuple[str, str]], turns: Sequence[Turn], now: datetime) -> None:
    """Keep the pairs that one of these turns states: it must say both names. What only a model knows is no alias."""
    for name, other in pairs:
        if _SAYS_NOTHING.fullmatch(name.strip()) or _SAYS_NOTHING.fullmatch(other.strip()):
            continue
        for turn in turns:
            words = f"{turn.user}\n{turn.reply}"
            if spellings(words, entity_key(name)) and spellings(words, entity_key(other)):
                _insert(owner, name, other, turn.id, now)
                break


def add_alias(owner: str, name: str, other: str, now: datetime) -> Alias:
    """Add that two names mean the same thing, as a person says. Raises InvalidInput."""
    Owner.insert(name=owner).on_conflict_ignore().execute()
    return _insert(owner, name, other, None, now, by_person=True)


def _insert(owner: str, name: str, other: str, turn: int | None, now: datetime, *, by_person: bool = False) -> Alias:
    name, other = name.strip(), other.strip()
    keys = {entity_key(name): name, entity_key(other): other}
    if "" in keys or max(len(name), len(other)) > ENTITY_LIMIT:
        if by_person:
            raise InvalidInput(f"A name has 1 to {ENTITY_LIMIT} characters, one of them a letter or a digit.")
        return Alias()
    if len(keys) < 2:
        if by_person:
            raise InvalidInput(f"{name} and {other} are one name already: spelling does not count.")
        return Alias()
    (key, first), (other_key, second) = sorted(keys.items())
    Alias.insert(
        owner=owner, key=key, other_key=other_key, name=first, other_name=second, turn=turn, created_at=now
    ).on_conflict_ignore().execute()
    if by_person:
        # A person's word outlives the turn that stated it.
        Alias.update(turn=None).where(_is(owner, key, other_key)).execute()
    return Alias.get(_is(owner, key, other_key))


def remove_alias(owner: str, name: str, other: str) -> None:
    """Take an alias back. Raises NotFound."""
    key, other_key = sorted((entity_key(name), entity_key(other)))
    if not Alias.delete().where(_is(owner, key, other_key)).execute():
        raise NotFound(f"{name[:40]} and {other[:40]} are not known as two names of one thing.")


def _is(owner: str, key: str, other_key: str) -> Any:
    return (Alias.owner == owner) & (Alias.key == key) & (Alias.other_key == other_key)


def aliases(owner: str) -> list[Alias]:
    """Return an owner's aliases, in order of name."""
    return list(Alias.select().where(Alias.owner == owner).order_by(Alias.name, Alias.other_name))


def widen(owner: str, keys: Sequence[str]) -> dict[str, str]:
    """Return the keys that mean the same as these, with their names, over any number of steps; these are left out."""
    known = dict.fromkeys(keys, "")
    newly = list(keys)
    while newly and len(known) < len(keys) + WIDENED:
        found: dict[str, str] = {}
        for row in Alias.select().where(Alias.owner == owner, Alias.key.in_(newly) | Alias.other_key.in_(newly)):
            found |= {row.key: row.name, row.other_key: row.other_name}
        newly = [key for key in found if key not in known]
        known |= {key: found[key] for key in newly}
    return {key: name for key, name in known.items() if key not in keys}


def widened_query(owner: str, query: str) -> str:
    """Return a query followed by the other names of what it names."""
    named = [key for row in _ALIASES.rows(owner=owner) for key in (row.key, row.other_key) if spellings(query, key)]
    others = list(widen(owner, list(dict.fromkeys(named))).values()) if named else []
    said = [name for name in others if not spellings(query, entity_key(name))]
    return f"{query} {' '.join(said)}" if said else query
