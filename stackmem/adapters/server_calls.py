"""What a Qdrant server is asked: collections, aliases, points, searches; its errors as our types.

qdrant_client costs 0.6 s to import, so it is imported inside the functions that need it.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stackmem.adapters import qdrant_points as points
from stackmem.adapters.local_collection import local_filter, local_point
from stackmem.exceptions import PermanentError, StackmemError, TransientError
from stackmem.ports import CommonPart, IndexFilter, IndexHit, IndexPoint, Vector

if TYPE_CHECKING:
    from qdrant_client import QdrantClient
    from qdrant_client.models import PointStruct, QueryRequest, Record

TIMEOUT_S = 10  # of one request
NUMBERS = 500_000  # in the vectors of one request: a server takes 32 MB, a number in JSON is about 20 bytes
_WORDS_LIMIT = 200  # characters of the server's words in a message of ours


class Gone(TransientError):
    """The collection is not there (any more)."""


def connect(url: str, api_key: str) -> "QdrantClient":
    """Return a client; nothing is asked yet."""
    from qdrant_client import QdrantClient

    with warnings.catch_warnings():
        # On a LAN without TLS the key is all there is; whoever set it that way knows.
        warnings.filterwarnings("ignore", message="Api key is used with an insecure connection", category=UserWarning)
        return QdrantClient(url=url, api_key=api_key or None, timeout=TIMEOUT_S, check_compatibility=False)


# --- collections -----------------------------------------------------------------------------------------------------


def create(client: "QdrantClient", name: str, dim: int) -> None:
    """Make an empty collection with its payload indexes, which filters need there.

    No graph: searches are exact (a rebuilt index finds the same), and a home's memories are few for a server.
    """
    from qdrant_client.models import (
        Distance,
        HnswConfigDiff,
        MultiVectorComparator,
        MultiVectorConfig,
        PayloadSchemaType,
        VectorParams,
    )

    max_sim = MultiVectorConfig(comparator=MultiVectorComparator.MAX_SIM)
    vectors = {
        points.SUMMARY: VectorParams(size=dim, distance=Distance.COSINE),
        points.SOURCES: VectorParams(size=dim, distance=Distance.COSINE, multivector_config=max_sim),
    }
    client.create_collection(name, vectors, hnsw_config=HnswConfigDiff(m=0))
    for field in points.KEYWORD_FIELDS:
        client.create_payload_index(name, field, PayloadSchemaType.KEYWORD)
    for field in points.DATETIME_FIELDS:
        client.create_payload_index(name, field, PayloadSchemaType.DATETIME)


def current(client: "QdrantClient", alias: str) -> str | None:
    """Return the name of the collection under the alias, or None."""
    return next((one.collection_name for one in client.get_aliases().aliases if one.alias_name == alias), None)


def make_current(client: "QdrantClient", name: str, alias: str) -> None:
    """Point the alias to a collection, in one step."""
    from qdrant_client.models import CreateAlias, CreateAliasOperation, DeleteAlias, DeleteAliasOperation

    changes: list[Any] = [CreateAliasOperation(create_alias=CreateAlias(collection_name=name, alias_name=alias))]
    if current(client, alias) is not None:
        changes.insert(0, DeleteAliasOperation(delete_alias=DeleteAlias(alias_name=alias)))
    client.update_collection_aliases(changes)


def names(client: "QdrantClient") -> set[str]:
    """Return the names of all collections on the server."""
    return {collection.name for collection in client.get_collections().collections}


# --- points ----------------------------------------------------------------------------------------------------------


def upsert(client: "QdrantClient", name: str, new: Sequence[IndexPoint], dim: int) -> None:
    """Write points, in requests that a server takes; all are checked before the first goes out."""
    batch: list[PointStruct] = []
    numbers = 0
    ready = [(local_point(point, dim), point.summary.size + point.sources.size) for point in new]
    for made, size in ready:
        if batch and numbers + size > NUMBERS:
            client.upsert(name, batch, wait=True)
            batch, numbers = [], 0
        batch.append(made)
        numbers += size
    client.upsert(name, batch, wait=True)


def page(client: "QdrantClient", name: str, owner: str | None, offset: Any) -> tuple[list["Record"], Any]:
    """Return some records in order of id, and the offset of the next page or None."""
    condition = None if owner is None else local_filter(IndexFilter(owner, status=None))
    return client.scroll(name, scroll_filter=condition, limit=points.PAGE, offset=offset)


def search(
    client: "QdrantClient", name: str, query: Vector, where: IndexFilter, limit: int, common: CommonPart | None
) -> list[IndexHit]:
    """Return the best ``limit`` by summary and the best ``limit`` by sources, each with all its scores: two requests.

    ``query`` is of the right shape.
    """
    from qdrant_client.models import Filter, HasIdCondition

    condition = local_filter(where)
    if limit < 1:
        return []
    asked = points.asked_for(query, common)
    found = _ask(client, name, [_nearest(using, part, condition, limit) for using, part in asked.items()])
    ids: list[Any] = list({hit.id for hits in found for hit in hits})
    if not ids:
        return []
    only = Filter(must=[HasIdCondition(has_id=ids)])
    every = [*dict.fromkeys(asked, query).items(), *(asked.items() if common else ())]
    answers = _ask(client, name, [_nearest(using, part, only, len(ids)) for using, part in every])
    return points.hits(*[{points.memory_id_of(hit.id): float(hit.score) for hit in hits} for hits in answers])


def _ask(client: "QdrantClient", name: str, requests: list["QueryRequest"]) -> list[list[Any]]:
    return [answer.points for answer in client.query_batch_points(name, requests)]


def _nearest(using: str, vector: Vector, condition: Any, limit: int) -> "QueryRequest":
    from qdrant_client.models import QueryRequest, SearchParams

    # A multi-vector is asked with a matrix, here of one row.
    query: Any = [vector.tolist()] if using == points.SOURCES else vector.tolist()
    return QueryRequest(query=query, using=using, filter=condition, limit=limit, params=SearchParams(exact=True))


# --- errors ----------------------------------------------------------------------------------------------------------


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn what the client raises into our types."""
    from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

    server = f"The Qdrant server at {urlsplit(url).netloc.rpartition('@')[2]}"
    try:
        yield
    except StackmemError:
        raise
    except UnexpectedResponse as exc:
        raise _refused(server, exc.status_code or 500, exc.content.decode(errors="replace")) from exc
    except (ApiException, OSError) as exc:
        raise TransientError(
            f"{server} cannot be reached, or broke off; if it never answers, check STACKMEM_INDEX_URL."
        ) from exc
    except Exception as exc:  # pydantic's, where something else answers there, or a payload that is no JSON
        raise PermanentError(f"{server} and this client do not understand each other: {type(exc).__name__}.") from exc


def _refused(server: str, status: int, body: str) -> StackmemError:
    words = " ".join(body.split())[:_WORDS_LIMIT]
    if status in (401, 403):
        return PermanentError(f"{server} refused the key: check STACKMEM_INDEX_API_KEY.")
    if status == 404:
        return Gone(f"{server} does not have this (any more): {words}")
    if status in (408, 429) or status >= 500:
        return TransientError(f"{server} failed (HTTP {status}: {words}).")
    return PermanentError(f"{server} refused the request (HTTP {status}: {words}).")
