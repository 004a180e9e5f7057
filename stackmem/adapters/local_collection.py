"""What Qdrant's local mode takes and gives: a client on a folder, collections, points, filters, scores, errors.

qdrant_client costs 0.6 s to import, so it is imported inside the functions that need it.
"""

import shutil
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stackmem.adapters import qdrant_points as points
from stackmem.exceptions import Busy, PermanentError, StackmemError, TransientError
from stackmem.ports import Fingerprint, IndexFilter, IndexPoint, Vector

if TYPE_CHECKING:
    from qdrant_client import QdrantClient
    from qdrant_client.models import Filter, PointStruct, QueryResponse

ENGINE = f"qdrant-client {version('qdrant-client')}"
ALIAS = "current"


def connect(folder: Path) -> "QdrantClient":
    """Open the client on a folder, reading all its points into memory.

    Raises Busy where a client outside stackmem uses the folder; damaged files raise any Exception.
    """
    from qdrant_client import QdrantClient

    # Advice to move to a server above 20,000 points; the README gives the figures, and Edge is the default.
    warnings.filterwarnings("ignore", message="Local mode is not recommended", category=UserWarning)
    try:
        # SQLite's own check of threads is off: there is one lock around every call.
        return QdrantClient(path=str(folder), force_disable_check_same_thread=True)
    except RuntimeError as exc:
        if "already accessed" not in str(exc):
            raise
        raise Busy(f"Another Qdrant client is using {folder}: stop it.") from exc


def wipe(folder: Path) -> None:
    """Remove what the client keeps in a folder, so that one can be opened where the files are damaged."""
    shutil.rmtree(folder / "collection", ignore_errors=True)
    (folder / "meta.json").unlink(missing_ok=True)


def create(client: "QdrantClient", name: str, fingerprint: Fingerprint) -> None:
    """Make an empty collection, labelled. No payload indexes: local mode accepts them with a warning and uses none."""
    from qdrant_client.models import Distance, MultiVectorComparator, MultiVectorConfig, VectorParams

    max_sim = MultiVectorConfig(comparator=MultiVectorComparator.MAX_SIM)
    vectors = {
        points.SUMMARY: VectorParams(size=fingerprint.dim, distance=Distance.COSINE),
        points.SOURCES: VectorParams(size=fingerprint.dim, distance=Distance.COSINE, multivector_config=max_sim),
    }
    client.create_collection(name, vectors, metadata=_label(fingerprint))


def check_label(client: "QdrantClient", name: str, fingerprint: Fingerprint) -> None:
    """Raise PermanentError where another engine or embedder wrote the collection."""
    written = client.get_collection(name).config.metadata
    points.check_label(name, written or {}, _label(fingerprint))


def current(client: "QdrantClient") -> str | None:
    """Return the name of the collection under the alias, or None."""
    named = [alias.collection_name for alias in client.get_aliases().aliases if alias.alias_name == ALIAS]
    return named[0] if named and client.collection_exists(named[0]) else None


def make_current(client: "QdrantClient", name: str, folder: Path) -> None:
    """Point the alias to a collection, durably: the client replaces meta.json but syncs nothing."""
    from qdrant_client.models import CreateAlias, CreateAliasOperation

    to_new = CreateAliasOperation(create_alias=CreateAlias(collection_name=name, alias_name=ALIAS))
    client.update_collection_aliases([to_new])
    for path in (folder / "meta.json", folder):
        points.sync(path)


def names(client: "QdrantClient", folder: Path) -> set[str]:
    """Return our generations, those included of which only the folder is left; a new one of that name would fill it."""
    known = {collection.name for collection in client.get_collections().collections}
    left = {path.name for path in (folder / "collection").glob("*")}
    return {name for name in known | left if points.generation_number(name) is not None}


def drop(client: "QdrantClient", name: str, folder: Path) -> None:
    """Remove a collection and its folder."""
    client.delete_collection(name)
    shutil.rmtree(folder / "collection" / name, ignore_errors=True)


def _label(fingerprint: Fingerprint) -> dict[str, str]:
    return {"engine": ENGINE, "fingerprint": str(fingerprint)}


def ids(answer: "QueryResponse") -> set[Any]:
    """Return the ids of the points found."""
    return {hit.id for hit in answer.points}


def reckoned(records: Sequence[Any], name: str, query: Vector) -> dict[str, float]:
    """Return the scores of these points, reckoned here: another query would score the whole collection again."""
    return {
        points.memory_id_of(record.id): points.max_sim(query, np.asarray(record.vector[name], dtype=np.float32))
        for record in records
        if name in (record.vector or {})
    }


def local_point(point: IndexPoint, dim: int) -> "PointStruct":
    """Return the point as qdrant_client takes it. Raises PermanentError on a wrong dimension, NaN or a bad id."""
    from qdrant_client.models import PointStruct

    summary, sources = points.checked_point(point, dim)
    vectors: dict[str, Any] = {points.SUMMARY: summary.tolist()}
    if len(sources):
        vectors[points.SOURCES] = sources.tolist()
    return PointStruct(id=str(points.point_id(point.memory_id)), vector=vectors, payload=point.payload)


def local_filter(where: IndexFilter) -> "Filter":
    """Return the filter as qdrant_client takes it."""
    from qdrant_client.models import DatetimeRange, FieldCondition, Filter, MatchAny

    must: list[Any] = [FieldCondition(key=key, match=MatchAny(any=values)) for key, values in points.matches(where)]
    alternatives: list[Any] = [
        Filter(
            must=[FieldCondition(key=key, range=DatetimeRange.model_validate({bound: at})) for key, bound, at in all_of]
        )
        for all_of in points.times(where)
    ]
    return Filter(must=must, should=alternatives or None)


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the client raises into our types."""
    try:
        yield
    except StackmemError:
        raise
    except (OSError, sqlite3.OperationalError) as exc:  # full, read-only or failing disk
        raise TransientError(f"Qdrant local mode: {exc}") from exc
    except Exception as exc:  # it raises ValueError, KeyError, RuntimeError and, unpickling damaged points, anything
        raise PermanentError(f"Qdrant local mode: {type(exc).__name__}: {exc}") from exc
