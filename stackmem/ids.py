"""Ids that come from the rows, so that repeating a task gives the same ones."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime

from ulid import ULID

HASH_AT = 15  # place in a memory's id where its hash begins: the first so many in its order are a random sample


def _hash(*parts: object) -> bytes:
    # Length before each part: ("ab", "c") and ("a", "bc") must differ.
    joined = "".join(f"{len(str(part))}:{part}" for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).digest()


def turn_uid(owner: str, session: str, seq: int | str, ordinal: int, words: str) -> str:
    """Return the immutable uid of a turn: 32 hex digits."""
    return _hash(owner, session, seq, ordinal, words).hex()[:32]


def memory_id(said: datetime, owner: str, source_uids: Sequence[str], revision: int = 0, ordinal: int = 0) -> str:
    """Return ``mem_`` + ULID: the time of the first source turn, then a hash of what the memory rests on."""
    milliseconds = max(0, int(said.timestamp() * 1000)) & ((1 << 48) - 1)
    digest = _hash(owner, *sorted(source_uids), revision, ordinal)[:10]
    return f"mem_{ULID(milliseconds.to_bytes(6, 'big') + digest)}"


def session_name() -> str:
    """Return a name for a session whose client gave none."""
    return f"s-{secrets.token_hex(6)}"
