"""Rebuild the index from the rows: a new generation is filled beside the old one, then takes its place."""

from collections.abc import Callable, Sequence

from peewee import fn

from stackmem.drift import drift_of, mend
from stackmem.embedder_change import lacking_vectors, made_by
from stackmem.exceptions import PermanentError, TransientError
from stackmem.ids import HASH_AT
from stackmem.index_handle import IndexHandle
from stackmem.indexing import BATCH, Progress, index_owner, points_of, stored_is_current
from stackmem.models import Memory
from stackmem.ports import Embedder, IndexPoint, IndexStore
from stackmem.stored_points import StoredRow, rows_after, stored_points

ROWS = 256  # memories a time: Edge holds Python's lock while it takes them in, and a live turn waits for that long
SAMPLE = 64  # memories by whose texts it is told whether stored vectors are of the texts that are made today


def reindex(handle: IndexHandle, progress: Progress | None = None, *, embedder: Embedder | None = None) -> int:
    """Fill a new generation beside the old one from the stored vectors, then swap; return the number of points.

    Search goes on with the old generation meanwhile. Where another embedder (the one that is set, unless given) made
    it, what is new goes into it while the vectors are made again, which may take hours; made vectors stay, so it goes
    on where it was killed. Then nothing is indexed until the swap: what changes stays outdated, and follows.

    Raises TransientError where another process is at it, or the embedder or a server is away.
    """
    store = handle.store
    if store is None:
        raise PermanentError("Only the process that owns the index can rebuild it.")
    with handle.alone("reindex") as is_alone:
        if not is_alone:
            raise TransientError("Another process is rebuilding the index.")
        return _reindex(handle, store, embedder or handle.embedder, progress)


def _reindex(handle: IndexHandle, store: IndexStore, embedder: Embedder, progress: Progress | None) -> int:
    lacking = [row.id for row in lacking_vectors(embedder.fingerprint)] if handle.change else []
    step = _steps(len(lacking) + Memory.select().where(Memory.status != "forgotten").count(), progress)
    for first in range(0, len(lacking), BATCH):
        batch = list(Memory.select().where(Memory.id.in_(lacking[first : first + BATCH])))
        points_of(batch, embedder)
        step(len(batch))
        for row in list(Memory.select(Memory.owner).where(Memory.outdated).distinct()):
            index_owner(handle, row.owner)
    done = 0
    with handle.lock:
        new, trusted = store.begin(embedder.fingerprint), _is_trusted(handle, embedder)
        rows = rows_after("", ROWS)
        while rows:
            new.upsert(_points(rows, embedder, trusted))
            done += len(rows)
            step(len(rows))
            rows = rows_after(rows[-1].id, ROWS)
        handle.exchange(store, embedder)
    if handle.kind == "server":  # other processes wrote into the old generation until it was gone
        mend(handle, drift_of(handle))
    return done


def _steps(total: int, progress: Progress | None) -> Callable[[int], None]:
    """Return what is told how much more was done, and tells ``progress`` how much that is in all."""
    done = 0

    def step(more: int) -> None:
        nonlocal done
        done += more
        if progress:
            progress(done, max(total, done))

    return step


def _is_trusted(handle: IndexHandle, embedder: Embedder) -> bool:
    """Tell whether the stored vectors of a memory that is not outdated are those of its words."""
    kept_up = handle.current is not None and handle.searching.fingerprint == embedder.fingerprint
    # While the index was another embedder's, nobody kept these vectors up.
    return (kept_up or made_by() == [str(embedder.fingerprint)]) and _texts_are_as_ever(embedder)


def _texts_are_as_ever(embedder: Embedder) -> bool:
    """Tell whether this stackmem makes the same texts of memories as the one that stored their vectors."""
    rows = Memory.select(Memory.id).where(~Memory.outdated, Memory.status != "forgotten")
    sample = [row.id for row in rows.order_by(fn.SUBSTR(Memory.id, HASH_AT)).limit(SAMPLE)]
    return stored_is_current(sample, embedder.fingerprint)


def _points(rows: Sequence[StoredRow], embedder: Embedder, trusted: bool) -> list[IndexPoint]:
    """Return the points of these rows; texts without a current vector are embedded."""
    points = stored_points(rows, embedder.fingerprint) if trusted else {}
    rest = [row.id for row in rows if row.outdated or row.id not in points]
    for first in range(0, len(rest), BATCH):
        memories = Memory.select().where(Memory.id.in_(rest[first : first + BATCH])).order_by(Memory.id)
        points |= {point.memory_id: point for point in points_of(list(memories), embedder)}
    return [points[row.id] for row in rows if row.id in points]
