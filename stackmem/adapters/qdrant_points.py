"""What every Qdrant adapter shares: ids, vectors, filters in neutral form, hits and the names of generations."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from ulid import ULID

from stackmem.exceptions import OtherVectors, PermanentError
from stackmem.ports import CommonPart, Fingerprint, IndexFilter, IndexHit, IndexPoint, Vector

SUMMARY, SOURCES = "summary", "sources"  # the named vectors; MaxSim over the second
_NONE: Mapping[str, float] = {}
KEYWORD_FIELDS = ("owner", "status", "memory_type", "entity_keys")
DATETIME_FIELDS = ("occurred_from", "occurred_to", "said_at")
PAGE = 1000  # points a scroll

_PREFIX = "mem_"
_MEMORY_ID = re.compile(_PREFIX + "[0-7][0-9A-HJKMNP-TV-Z]{25}")  # https://github.com/ulid/spec: 128 bits in base 32
_GENERATION = re.compile(r"(\d+)-.+", re.DOTALL)


@lru_cache(maxsize=2**16)
def point_id(memory_id: str) -> UUID:
    """Return the same 128 bits as a UUID, so that ids sort alike. Raises PermanentError on anything but mem_ULID."""
    if not _MEMORY_ID.fullmatch(memory_id):  # in lower case, say, it would come back spelled differently
        raise PermanentError(f"Not a memory id: {memory_id!r}.")
    return ULID.from_str(memory_id.removeprefix(_PREFIX)).to_uuid()


def memory_id_of(point: UUID | str | int) -> str:
    """Return the memory id of a point id, as the engines hand it back."""
    return _memory_id((point if isinstance(point, UUID) else UUID(str(point))).int)


@lru_cache(maxsize=2**16)  # one search asks for hundreds of the same few thousand; a UUID itself is slow to hash
def _memory_id(number: int) -> str:
    return f"{_PREFIX}{ULID.from_int(number)}"


def known_point_ids(memory_ids: Sequence[str]) -> list[UUID]:
    """Return the point ids of those that can be ids at all; no point lies under any other."""
    found = []
    for memory_id in memory_ids:
        try:
            found.append(point_id(memory_id))
        except PermanentError:
            continue
    return found


# --- vectors ---------------------------------------------------------------------------------------------------------


def checked_query(query: Vector, dim: int) -> Vector:
    """Return the query as float32 of shape (dim,). Raises PermanentError on another shape, NaN or infinity."""
    return _checked(query, (dim,), "The query")


def checked_point(point: IndexPoint, dim: int) -> tuple[Vector, Vector]:
    """Return (summary, sources) as float32, shapes (dim,) and (n, dim).

    Raises PermanentError on another shape, NaN or infinity: Edge takes NaN silently and ranks it anywhere.
    """
    count = len(point.sources)
    sources = np.empty((0, dim), np.float32)
    if count:
        sources = _checked(point.sources, (count, dim), f"The sources of {point.memory_id}")
    return _checked(point.summary, (dim,), f"The summary of {point.memory_id}"), sources


def _checked(vector: Vector, shape: tuple[int, ...], what: str) -> Vector:
    array = np.asarray(vector, dtype=np.float32)
    if array.shape != shape:
        raise PermanentError(f"{what} has shape {array.shape}, this index takes {shape}.")
    if not np.isfinite(array).all():
        raise PermanentError(f"{what} holds NaN or infinity.")
    return array


def max_sim(query: Vector, vectors: NDArray[np.floating]) -> float:
    """Return the largest cosine similarity between ``query``, shape (dim,), and the rows of ``vectors``."""
    rows = np.atleast_2d(vectors)
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    return float(np.max(rows @ query / np.where(norms == 0, 1, norms)))


# --- filters ---------------------------------------------------------------------------------------------------------


def matches(where: IndexFilter) -> list[tuple[str, list[str]]]:
    """Return (field, values) pairs; a point counts when each of these fields has any of its values."""
    wanted = [("owner", [where.owner])]
    if where.status is not None:
        wanted.append(("status", [where.status]))
    if where.memory_type is not None:
        wanted.append(("memory_type", [where.memory_type]))
    if where.entity_keys:
        wanted.append(("entity_keys", list(where.entity_keys)))
    return wanted


def times(where: IndexFilter) -> list[list[tuple[str, str, str]]]:
    """Return alternatives, each a list of (field, "gte" or "lte", ISO time) that must all hold; [] is any time."""
    about, said = [], []
    if where.since is not None:
        since = iso(where.since)
        about.append(("occurred_to", "gte", since))
        said.append(("said_at", "gte", since))
    if where.until is not None:
        until = iso(where.until)
        about.append(("occurred_from", "lte", until))
        said.append(("said_at", "lte", until))
    return [about, said] if about else []


def iso(when: datetime) -> str:
    """Return ISO 8601 in UTC. Raises PermanentError on a naive time: only the caller knows its zone."""
    if when.tzinfo is None:
        raise PermanentError(f"A time without a zone cannot be searched for: {when}.")
    return when.astimezone(UTC).isoformat()


# --- hits ------------------------------------------------------------------------------------------------------------


def asked_for(query: Vector, common: CommonPart | None) -> dict[str, Vector]:
    """Return what the points nearest to are looked for, by named vector: the query less the common part."""
    if common is None:
        return {SUMMARY: query, SOURCES: query}
    return {SUMMARY: query - common.summary, SOURCES: query - common.sources}


def hits(
    summaries: Mapping[str, float],
    sources: Mapping[str, float],
    summaries_apart: Mapping[str, float] = _NONE,
    sources_apart: Mapping[str, float] = _NONE,
) -> list[IndexHit]:
    """Return one hit a memory; one without a summary score was deleted between two queries and is left out."""
    return [
        IndexHit(one, score, sources.get(one), summaries_apart.get(one), sources_apart.get(one))
        for one, score in summaries.items()
    ]


# --- generations -----------------------------------------------------------------------------------------------------


def generation_name(number: int, fingerprint: Fingerprint) -> str:
    """Return ``<number>-<fingerprint>`` as a folder's or collection's name; model ids may hold ``/`` or ``:``."""
    return f"{number}-{re.sub(r'[^A-Za-z0-9._-]', '_', str(fingerprint))[:100]}"


def generation_number(name: str) -> int | None:
    """Return the number in a generation's name, or None where the name is none of ours."""
    found = _GENERATION.fullmatch(name)
    return int(found[1]) if found else None


def next_number(names: Iterable[str]) -> int:
    """Return one more than the highest number among these names."""
    return 1 + max((number for name in names if (number := generation_number(name)) is not None), default=0)


def check_label(name: str, written: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Raise OtherVectors where another embedder wrote this generation, PermanentError where another engine did."""
    if written != wanted:
        only_vectors = {**written, "fingerprint": ""} == {**wanted, "fingerprint": ""}
        kind = OtherVectors if only_vectors else PermanentError
        raise kind(f"{name} was written as {dict(written)}, wanted is {dict(wanted)}")


def sync(path: Path) -> None:
    """Have a file or a folder's entries on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
