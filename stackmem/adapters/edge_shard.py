"""One shard of Qdrant Edge: created, labelled, loaded with suspicion, written, asked; its errors as our types."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import qdrant_edge as edge

from stackmem.adapters import qdrant_points as points
from stackmem.exceptions import PermanentError, StackmemError, TransientError
from stackmem.ports import CommonPart, Fingerprint, IndexFilter, IndexHit, IndexPoint, Vector

ENGINE = f"qdrant-edge-py {version('qdrant-edge-py')}"
# Of points in a generation begun. A flush is dozens of fsyncs, however few the points, and holds Python's lock.
FLUSH = 4096
# Edge writes through memory maps of sparse files: on a full disk SIGBUS kills the process (0.9.0, measured on tmpfs).
RESERVE = 64 * 1024 * 1024  # bytes that stay free beside what a write brings


@dataclass(eq=False)
class Shard:
    """An open shard in ``folder/shard``, labelled by ``folder/engine.json``. Call it inside ``translated()``."""

    engine: edge.EdgeShard
    folder: Path
    fingerprint: Fingerprint
    users: int = 0  # threads inside; kept by those who hand it out
    begun: bool = False  # not the current generation yet: after a power cut it is begun again, so it is flushed seldom
    unflushed: int = 0  # points

    @classmethod
    def load(cls, folder: Path, fingerprint: Fingerprint) -> Self:
        """Open a shard and read a little: Edge may load a damaged one and fail only when its content is touched.

        Raises PermanentError on another label; whatever is damaged raises some Exception.
        """
        written = json.loads((folder / "engine.json").read_text(encoding="utf-8"))
        points.check_label(folder.name, written, _label(fingerprint))
        shard = cls(edge.EdgeShard.load(str(folder / "shard")), folder, fingerprint)
        shard.page(None, None)
        for name in (points.SUMMARY, points.SOURCES):
            shard._ask(_nearest(name, np.ones(fingerprint.dim, np.float32), edge.Filter(), 1))
        return shard

    @classmethod
    def create(cls, folder: Path, fingerprint: Fingerprint) -> Self:
        """Make an empty shard with its payload indexes. Raises TransientError where the disk is nearly full."""
        _check_space(folder.parent, 0)
        folder.mkdir()
        write_durably(folder / "engine.json", json.dumps(_label(fingerprint)))
        engine = edge.EdgeShard.create(str(folder / "shard"), edge.EdgeConfig(vectors=_vectors(fingerprint.dim)))
        for field in points.KEYWORD_FIELDS:
            engine.update(edge.UpdateOperation.create_field_index(field, edge.PayloadSchemaType.Keyword))
        for field in points.DATETIME_FIELDS:
            engine.update(edge.UpdateOperation.create_field_index(field, edge.PayloadSchemaType.Datetime))
        engine.flush()
        return cls(engine, folder, fingerprint, begun=True)

    def upsert(self, new: Sequence[IndexPoint]) -> None:
        """Write points and flush; of a generation begun, now and then.

        Raises PermanentError, before anything is written, and TransientError (disk full).
        """
        batch = [_edge_point(point, self.fingerprint.dim) for point in new]
        size = sum(point.summary.nbytes + point.sources.nbytes for point in new)
        self._write(edge.UpdateOperation.upsert_points(batch), len(new), size)

    def delete(self, memory_ids: Sequence[str]) -> None:
        """Remove points and flush. Raises TransientError where the disk is full."""
        found: list[Any] = points.known_point_ids(memory_ids)
        self._write(edge.UpdateOperation.delete_points(found), len(found), 0)

    def search(self, query: Vector, where: IndexFilter, limit: int, common: CommonPart | None = None) -> list[IndexHit]:
        """Return the best ``limit`` by summary and the best ``limit`` by sources, each with both scores."""
        vector = points.checked_query(query, self.fingerprint.dim)
        condition = _edge_filter(where)
        if limit < 1:
            return []
        asked = points.asked_for(vector, common)
        found = self._ask(*[_nearest(name, part, condition, limit) for name, part in asked.items()])
        near = _only({hit.id for hits in found for hit in hits})
        # All scores of all that were found; a memory without source words has none of these.
        every = [*dict.fromkeys(asked, vector).items(), *(asked.items() if common else ())]
        answers = self._ask(*[_nearest(name, part, *near) for name, part in every])
        return points.hits(*[{points.memory_id_of(hit.id): float(hit.score) for hit in hits} for hits in answers])

    def page(self, owner: str | None, offset: Any) -> tuple[list[edge.Record], Any]:
        """Return up to ``points.PAGE`` records in order of id, and the offset of the next page or None."""
        condition = None if owner is None else edge.Filter(must=[_any_of("owner", [owner])])
        return self.engine.scroll(
            edge.ScrollRequest(offset=offset, limit=points.PAGE, filter=condition, with_payload=True)
        )

    def _write(self, operation: edge.UpdateOperation, count: int, size: int) -> None:
        _check_space(self.folder, size)
        self.engine.update(operation)
        self.unflushed += count
        if not self.begun or self.unflushed >= FLUSH:
            self.engine.flush()  # Edge does no fsync before
            self.unflushed = 0

    def _ask(self, *requests: edge.QueryRequest) -> list[list[edge.ScoredPoint]]:
        return self.engine.query_batch(edge.QueryBatchRequest(list(requests)))


@contextmanager
def translated() -> Iterator[None]:
    """Turn what Edge raises into our types; it raises bare Exception, so the message is all there is to read."""
    try:
        yield
    except StackmemError:
        raise
    except Exception as exc:
        transient = isinstance(exc, OSError) or "os error" in str(exc)
        raise (TransientError if transient else PermanentError)(f"Qdrant Edge: {exc}") from exc
    except BaseException as exc:
        # A Rust panic: its class cannot be imported (https://docs.rs/pyo3/latest/pyo3/panic/struct.PanicException.html)
        if type(exc).__name__ != "PanicException":
            raise
        raise PermanentError(f"Qdrant Edge failed inside: {exc}") from exc


def write_durably(path: Path, text: str) -> None:
    """Replace a file in one step that survives a power cut."""
    new = path.with_name(path.name + ".tmp")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    points.sync(path.parent)  # else the new name itself may be lost


def _label(fingerprint: Fingerprint) -> dict[str, str]:
    return {"engine": ENGINE, "fingerprint": str(fingerprint)}


def _check_space(folder: Path, size: int) -> None:
    if shutil.disk_usage(folder).free < RESERVE + 4 * size:  # vectors, the log of writes, payload, room to grow
        raise TransientError(f"The disk under {folder} is nearly full: the index is not written.")


def _vectors(dim: int) -> dict[str, edge.EdgeVectorParams]:
    max_sim = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim)
    return {
        points.SUMMARY: edge.EdgeVectorParams(dim, edge.Distance.Cosine),
        points.SOURCES: edge.EdgeVectorParams(dim, edge.Distance.Cosine, multivector_config=max_sim),
    }


def _edge_point(point: IndexPoint, dim: int) -> edge.Point:
    summary, sources = points.checked_point(point, dim)
    vectors: dict[str, Any] = {points.SUMMARY: summary.tolist()}
    if len(sources):  # Edge refuses an empty multi-vector
        vectors[points.SOURCES] = sources.tolist()
    return edge.Point(points.point_id(point.memory_id), vectors, point.payload)


def _nearest(name: str, vector: Vector, condition: edge.Filter, limit: int) -> edge.QueryRequest:
    return edge.QueryRequest(limit=limit, query=edge.Query.Nearest(vector.tolist(), using=name), filter=condition)


def _only(wanted: set[Any]) -> tuple[edge.Filter, int]:
    """Return the filter to these points, and how many they are at most (at least 1: Edge refuses to find nothing)."""
    return edge.Filter(must=[edge.HasIdCondition(wanted)]), max(1, len(wanted))


def _edge_filter(where: IndexFilter) -> edge.Filter:
    must: list[Any] = [_any_of(field, values) for field, values in points.matches(where)]
    alternatives: list[Any] = [
        edge.Filter(must=[edge.FieldCondition(field, range=_range(bound, at)) for field, bound, at in conditions])
        for conditions in points.times(where)
    ]
    return edge.Filter(must=must, should=alternatives or None)


def _any_of(field: str, values: list[str]) -> edge.FieldCondition:
    return edge.FieldCondition(field, match=edge.MatchAny(values))


def _range(bound: str, at: str) -> edge.RangeDateTime:
    return edge.RangeDateTime(gte=at) if bound == "gte" else edge.RangeDateTime(lte=at)
