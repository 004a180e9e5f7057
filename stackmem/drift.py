"""Where the index and the rows differ although they should not, and how that is mended: the rows are right."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from stackmem.exceptions import TransientError
from stackmem.index_handle import IndexHandle
from stackmem.indexing import Progress
from stackmem.making import changed
from stackmem.models import Memory, PointDeletion
from stackmem.ports import VectorIndex
from stackmem.stored_points import StoredRow, payload_of, rows_after, rows_of

Item = TypeVar("Item")
ROWS = 500  # read, compared and changed at a time


@dataclass
class Drift:
    """Ids of memories by what is wrong with their points. What waits to be indexed anyway is not counted.

    ``missing``: no point; ``extra``: a point without a memory; ``stale``: of an earlier version of the memory;
    ``wrong``: of its version, but its payload says otherwise.
    """

    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    points: int = 0

    def counts(self) -> dict[str, int]:
        """Return how many there are of each, and of all points."""
        return {name: len(getattr(self, name)) for name in KINDS} | {"points": self.points}


KINDS = ("missing", "extra", "stale", "wrong")


def drift_of(handle: IndexHandle, progress: Progress | None = None) -> Drift:
    """Compare every point with its row, and every row with the points.

    Nothing is indexed meanwhile by this process; what another one does is looked at twice. Raises TransientError where
    there is no index to compare.
    """
    with handle.lock:
        if handle.current is None:
            raise TransientError("There is no index to compare with the database: it is being rebuilt.")
        found, seen = Drift(), set[str]()
        total = Memory.select().where(Memory.status != "forgotten").count()
        for page in _batches(handle.current.scan()):
            _compare(dict(page), found)
            seen.update(memory_id for memory_id, _ in page)
            if progress:
                progress(len(seen), max(total, len(seen)))
        found.points = len(seen)
        found.missing = _again(_missing(seen))
        return found


def mend(handle: IndexHandle, drift: Drift) -> list[str]:
    """Remove the points that should not be there, and have the others written again; return whose they are."""
    owners = set[str]()
    with handle.lock:
        _remove(handle.current, drift.extra)
        for ids in _batches([*drift.missing, *drift.stale, *drift.wrong]):
            # A raised version also undoes the mark of a process that wrote into an index that is no more.
            Memory.update(**changed()).where(Memory.id.in_(ids)).execute()
            owners.update(row.owner for row in Memory.select(Memory.owner).where(Memory.id.in_(ids)).distinct())
    return sorted(owners)


def _compare(page: dict[str, dict[str, Any]], found: Drift) -> None:
    """Note what is wrong with the points of a page."""
    rows = {row.id: row for row in rows_of(list(page))}
    waiting = set[str]()
    if len(rows) < len(page):
        deleted = PointDeletion.select(PointDeletion.memory_id).where(PointDeletion.memory_id.in_(list(page)))
        waiting = {row.memory_id for row in deleted}
    for memory_id, payload in page.items():
        row = rows.get(memory_id)
        if row is None:
            if memory_id not in waiting:
                found.extra.append(memory_id)
        elif not row.outdated and payload != payload_of(row):
            (found.wrong if payload.get("version") == row.version else found.stale).append(memory_id)


def _missing(seen: set[str]) -> Iterator[str]:
    for row in _all_rows():
        if not row.outdated and row.id not in seen:
            yield row.id


def _all_rows() -> Iterator[StoredRow]:
    rows = rows_after("", ROWS)
    while rows:
        yield from rows
        rows = rows_after(rows[-1].id, ROWS)


def _again(memory_ids: Iterable[str]) -> list[str]:
    """Leave out what is waiting by now."""
    return [row.id for ids in _batches(memory_ids) for row in rows_of(ids) if not row.outdated]


def _remove(index: VectorIndex | None, memory_ids: Sequence[str]) -> None:
    """Remove points, unless they have a memory by now."""
    for ids in _batches(memory_ids):
        there = {row.id for row in rows_of(ids)}
        if index is not None:
            index.delete([memory_id for memory_id in ids if memory_id not in there])


def differs(counts: dict[str, int]) -> bool:
    """Tell whether these counts hold any difference."""
    return any(counts[name] for name in KINDS)


def sentence(counts: dict[str, int], *, mended: bool) -> str:
    """Return what was found as one sentence."""
    if not differs(counts):
        return f"Database and index agree: {counts['points']} points."
    told = ", ".join(f"{counts[name]} {name}" for name in KINDS if counts[name])
    remedy = "mended" if mended else "mend it with `stackmem doctor --deep --mend`"
    return f"The index differs from the database in {counts['points']} points: {told}; {remedy}."


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while batch := list(islice(rest, ROWS)):
        yield batch
