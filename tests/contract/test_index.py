"""What every VectorIndex and IndexStore must do, the in-memory fake included."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from stackmem.adapters import qdrant_points
from stackmem.exceptions import PermanentError
from stackmem.ports import CommonPart, Fingerprint, IndexFilter, IndexHit, IndexPoint, IndexStore, VectorIndex
from tests.contract.conftest import DIM, HOME, REAL, X, Y, Z, found, fresh, memory_id, point

TOKYO = timezone(timedelta(hours=9))


# --- writing ---------------------------------------------------------------------------------------------------------


def test_what_was_upserted_is_found_with_plain_python_scores(index: VectorIndex) -> None:
    index.upsert([point(1, X, [X, Y])])
    (hit,) = index.search(X, HOME, 5)
    assert hit == IndexHit(memory_id(1), pytest.approx(1, abs=1e-5), pytest.approx(1, abs=1e-5))
    assert type(hit.summary_score) is float
    assert type(hit.source_score) is float


def test_upserting_twice_makes_one_point_and_the_last_payload_counts(index: VectorIndex) -> None:
    index.upsert([point(1, X, [X], status="active", topic="old")])
    index.upsert([point(1, Y, [], status="superseded", entity_keys=["k"])])
    assert found(index) == set()
    (hit,) = index.search(Y, IndexFilter("home", status="superseded"), 5)
    assert hit == IndexHit(memory_id(1), pytest.approx(1, abs=1e-5), None)
    ((_, payload),) = index.scan()
    assert "topic" not in payload


def test_the_last_of_one_id_in_a_batch_counts(index: VectorIndex) -> None:
    index.upsert([point(1, X), point(1, Y)])
    (hit,) = index.search(Y, HOME, 5)
    assert hit.summary_score == pytest.approx(1, abs=1e-5)


def test_deleting_removes_and_ignores_what_is_unknown_or_no_id_at_all(index: VectorIndex) -> None:
    index.upsert([point(1), point(2)])
    index.delete([memory_id(1), memory_id(50), "mem_nonsense", ""])
    assert found(index) == {2}
    assert [each for each, _ in index.scan()] == [memory_id(2)]


def test_nothing_to_write_is_nothing_done(index: VectorIndex) -> None:
    index.upsert([])
    index.delete([])
    index.delete(["no id"])
    assert list(index.scan()) == []


def test_a_deleted_point_can_come_back(index: VectorIndex) -> None:
    index.upsert([point(1)])
    index.delete([memory_id(1)])
    index.upsert([point(1)])
    assert found(index) == {1}


@pytest.mark.parametrize(
    "bad",
    [
        point(2, [1, 0]),
        point(2, X, [[1, 0]]),
        point(2, [np.nan, 0, 0, 0]),
        point(2, X, [X, [0, np.inf, 0, 0]]),
        IndexPoint("mem_short", X, np.empty((0, DIM), np.float32), {}),
    ],
    ids=["summary's dimension", "sources' dimension", "NaN", "infinity", "id"],
)
def test_a_bad_point_is_refused_and_its_batch_left_out(index: VectorIndex, bad: IndexPoint) -> None:
    with pytest.raises(PermanentError):
        index.upsert([point(1), bad])
    assert list(index.scan()) == []


@pytest.mark.parametrize("query", [[1, 0], [[1, 0, 0, 0]], [np.nan, 0, 0, 0]], ids=["short", "matrix", "NaN"])
def test_a_bad_query_is_refused(index: VectorIndex, query: list[float]) -> None:
    index.upsert([point(1, X, [X])])
    with pytest.raises(PermanentError):
        index.search(np.asarray(query, np.float32), HOME, 5)


def test_a_payload_comes_back_whole_in_any_script(index: VectorIndex) -> None:
    payload = {
        "topic": "電源 😀👨‍👩‍👧 \ufffd العربية ไทย \U00020bb7",
        "entity_keys": ["スタックチャン", "😀"],
        "n": 1.5,
        "none": None,
    }
    index.upsert([point(1, owner="家", **payload)])
    ((_, back),) = index.scan("家")
    assert back == point(1, owner="家", **payload).payload
    assert found(index, IndexFilter("家", entity_keys=["😀"])) == {1}


# --- filters ---------------------------------------------------------------------------------------------------------


def test_no_owner_sees_anothers_points(index: VectorIndex) -> None:
    index.upsert([point(number, X, [X], owner=f"owner{number % 3}") for number in range(12)])
    for number in range(3):
        owner = f"owner{number}"
        assert found(index, IndexFilter(owner, status=None)) == set(range(number, 12, 3))
        assert {payload["owner"] for _, payload in index.scan(owner)} == {owner}
    assert found(index, IndexFilter("owner")) == set()


def test_status_narrows_unless_it_is_none(index: VectorIndex) -> None:
    index.upsert([point(1), point(2, status="superseded"), point(3, status="forgotten")])
    assert found(index) == {1}
    assert found(index, IndexFilter("home", status="superseded")) == {2}
    assert found(index, IndexFilter("home", status=None)) == {1, 2, 3}


def test_type_and_any_of_the_entity_keys_narrow_together(index: VectorIndex) -> None:
    index.upsert(
        [
            point(1, entity_keys=["a", "b"]),
            point(2, entity_keys=["c"], memory_type="decision"),
            point(3, entity_keys=["b"], memory_type="decision"),
            point(4),
        ]
    )
    assert found(index, IndexFilter("home", entity_keys=["a", "c"])) == {1, 2}
    assert found(index, IndexFilter("home", entity_keys=["z"])) == set()
    assert found(index, IndexFilter("home", memory_type="decision")) == {2, 3}
    assert found(index, IndexFilter("home", memory_type="decision", entity_keys=["b"])) == {3}


def _summer(number: int, first: str, last: str, said: str) -> IndexPoint:
    return point(number, occurred_from=first, occurred_to=last, said_at=said)


SAID = "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("since", "until", "wanted"),
    [
        (datetime(2025, 7, 1, tzinfo=UTC), datetime(2025, 7, 2, tzinfo=UTC), {1}),  # inside the range it is about
        (datetime(2025, 8, 31, 23, 59, 59, tzinfo=UTC), None, {1, 2, 3}),  # touches its end
        (datetime(2025, 9, 1, tzinfo=UTC), None, {1, 2, 3}),  # said later
        (None, datetime(2025, 6, 1, tzinfo=UTC), {1, 2}),  # touches its beginning
        (None, datetime(2025, 5, 31, 23, 59, 59, tzinfo=UTC), {2}),
        (datetime(2025, 10, 1, tzinfo=UTC), datetime(2025, 12, 31, tzinfo=UTC), set()),
        (datetime(2025, 12, 31, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), {1, 2}),  # by when it was said
        (datetime(2026, 1, 1, 9, tzinfo=TOKYO), datetime(2026, 1, 1, 9, tzinfo=TOKYO), {1, 2}),  # the same instant
        (datetime(2026, 1, 1, 8, 59, 59, tzinfo=TOKYO), datetime(2026, 1, 1, 8, 59, 59, tzinfo=TOKYO), set()),
        (datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC), set()),  # a microsecond late
    ],
)
def test_a_time_range_meets_what_a_memory_is_about_or_when_it_was_said(
    index: VectorIndex, since: datetime | None, until: datetime | None, wanted: set[int]
) -> None:
    index.upsert(
        [
            _summer(1, "2025-06-01T00:00:00+00:00", "2025-08-31T23:59:59+00:00", SAID),
            _summer(2, "2024-06-01T00:00:00Z", "2024-08-31T00:00:00Z", "2026-01-01T00:00:00Z"),
            _summer(3, "2026-06-01T00:00:00+00:00", "2026-06-02T00:00:00+00:00", "2026-06-03T00:00:00.123456+00:00"),
            point(4, occurred_from=None, occurred_to=None, said_at=None),
        ]
    )
    assert found(index, IndexFilter("home", since=since, until=until)) == wanted
    assert found(index, IndexFilter("other", since=since, until=until)) == set()


def test_a_time_without_a_zone_is_refused(index: VectorIndex) -> None:
    index.upsert([point(1)])
    with pytest.raises(PermanentError, match="zone"):
        index.search(X, IndexFilter("home", since=datetime(2026, 1, 1)), 5)


# --- scores ----------------------------------------------------------------------------------------------------------


def test_a_hit_by_one_vector_brings_the_other_score_too(index: VectorIndex) -> None:
    index.upsert([point(1, X, [Y, Z]), point(2, Y, [Z, X]), point(3, Z, [[0, 0, 0, 1]])])
    hits = {hit.memory_id: hit for hit in index.search(X, HOME, 1)}
    assert hits == {
        memory_id(1): IndexHit(memory_id(1), pytest.approx(1, abs=1e-5), pytest.approx(0, abs=1e-5)),
        memory_id(2): IndexHit(memory_id(2), pytest.approx(0, abs=1e-5), pytest.approx(1, abs=1e-5)),
    }


def test_a_point_without_sources_has_no_source_score(index: VectorIndex) -> None:
    index.upsert([point(1, X), point(2, Y, [X])])
    scores = {hit.memory_id: hit.source_score for hit in index.search(X, HOME, 1)}
    assert scores == {memory_id(1): None, memory_id(2): pytest.approx(1, abs=1e-5)}


def test_scores_are_cosines_of_vectors_of_any_length(index: VectorIndex) -> None:
    index.upsert([point(1, [3, 4, 0, 0], [[0, 0, 10, 0], [-5, 0, 0, 0]]), point(2, [0, 0, 0, 0], [[0, 0, 0, 0]])])
    hits = {hit.memory_id: hit for hit in index.search(7 * X, HOME, 5)}
    assert hits[memory_id(1)] == IndexHit(memory_id(1), pytest.approx(0.6, abs=1e-5), pytest.approx(0, abs=1e-5))
    assert hits[memory_id(2)] == IndexHit(memory_id(2), pytest.approx(0, abs=1e-5), pytest.approx(0, abs=1e-5))


def test_a_common_part_is_left_out_of_what_is_looked_for_and_not_of_the_scores(index: VectorIndex) -> None:
    index.upsert([point(1, X, [X]), point(2, Y, [Y]), point(3, Z, [])])
    query, near = (2 * X + Y) / np.sqrt(5), pytest.approx
    hits = {hit.memory_id: hit for hit in index.search(query, HOME, 1, CommonPart(query - Y, query - X - Y))}
    assert hits.keys() <= {memory_id(1), memory_id(2)}
    hit = hits[memory_id(2)]
    assert hit.summary_score == hit.source_score == near(1 / np.sqrt(5), abs=1e-5)
    assert (hit.summary_apart, hit.source_apart) == (near(1, abs=1e-5), near(1 / np.sqrt(2), abs=1e-5))
    hits = {hit.memory_id: hit for hit in index.search(query, HOME, 9, CommonPart(query - Z, query - Z))}
    assert (hits[memory_id(3)].summary_apart, hits[memory_id(3)].source_apart) == (near(1, abs=1e-5), None)
    assert hits[memory_id(1)].summary_score == near(2 / np.sqrt(5), abs=1e-5)


def test_ties_fill_the_limit_without_doubles(index: VectorIndex) -> None:
    index.upsert([point(number, X, [X]) for number in range(20)])
    assert 3 <= len(found(index, limit=3)) <= 6
    assert found(index, limit=20) == set(range(20))


def test_the_limit_bounds_each_of_the_two_rankings(index: VectorIndex) -> None:
    index.upsert([point(number, X + number * Y, [X + (30 - number) * Y]) for number in range(30)])
    assert found(index, limit=2) == {0, 1, 28, 29}
    assert found(index, limit=0) == set()
    assert found(index, limit=1000) == set(range(30))


def test_an_empty_index_answers_with_nothing(index: VectorIndex) -> None:
    assert index.search(X, HOME, 5) == []
    assert list(index.scan()) == []
    assert list(index.scan("home")) == []


def _crowd(count: int, dim: int, seed: int = 7) -> list[IndexPoint]:
    rng = np.random.default_rng(seed)
    return [
        point(
            number,
            rng.normal(size=dim),
            rng.normal(size=(number % 4, dim)) if number % 4 else (),
            owner=f"owner{number % 3}",
            entity_keys=[f"k{number % 5}"],
            said_at=f"2026-01-{1 + number % 28:02}T00:00:00+00:00",
        )
        for number in range(count)
    ]


def _brute(query: np.ndarray, crowd: list[IndexPoint]) -> dict[str, tuple[float, float | None]]:
    def cosine(vectors: np.ndarray) -> float:
        return float(np.max(vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)))

    return {
        each.memory_id: (cosine(each.summary[None]), cosine(each.sources) if len(each.sources) else None)
        for each in crowd
    }


def test_search_among_2000_agrees_with_brute_force(store: IndexStore) -> None:
    check_against_brute_force(store, 2_000)


@pytest.mark.slow
# Local mode would commit to SQLite for minutes, and so would the stand-in's engine reckon.
@pytest.mark.parametrize("backend", ["edge", *REAL], indirect=True)
def test_search_among_10000_agrees_with_brute_force(store: IndexStore) -> None:
    check_against_brute_force(store, 10_000)


def check_against_brute_force(store: IndexStore, count: int) -> None:
    fingerprint = Fingerprint("crowd", 64)
    index, crowd = fresh(store, fingerprint), _crowd(count, 64)
    for first in range(0, count, 500):
        index.upsert(crowd[first : first + 500])
    since = datetime(2026, 1, 11, tzinfo=UTC)
    where = IndexFilter("owner1", entity_keys=["k1", "k2"], since=since, until=datetime(2026, 1, 20, tzinfo=UTC))
    counted = [
        each for each in crowd if each.payload["owner"] == "owner1" and each.payload["entity_keys"][0] in {"k1", "k2"}
    ]
    counted = [each for each in counted if "2026-01-11" <= each.payload["said_at"][:10] <= "2026-01-20"]
    for query in np.random.default_rng(8).normal(size=(5, 64)).astype(np.float32):
        hits, scores = index.search(query, where, 10), _brute(query, counted)
        for hit in hits:
            assert (hit.summary_score, hit.source_score) == pytest.approx(scores[hit.memory_id], abs=1e-5)
        for which in (0, 1):
            every = sorted((each[which] for each in scores.values() if each[which] is not None), reverse=True)
            got = sorted((s for h in hits if (s := (h.summary_score, h.source_score)[which]) is not None), reverse=True)
            assert got[:10] == pytest.approx(every[:10], abs=1e-5)


def test_a_scan_yields_everything_in_order_of_id_beyond_one_page(index: VectorIndex) -> None:
    order = np.random.default_rng(1).permutation(1_234)
    for first in range(0, 1_234, 500):
        index.upsert([point(int(number), owner=f"owner{number % 2}") for number in order[first : first + 500]])
    assert [each for each, _ in index.scan()] == [memory_id(number) for number in range(1_234)]
    assert [each for each, _ in index.scan("owner1")] == [memory_id(number) for number in range(1, 1_234, 2)]


# --- ids -------------------------------------------------------------------------------------------------------------


def test_a_point_id_holds_the_bits_of_the_memory_id_and_sorts_alike() -> None:
    for number in (0, 1, 77, 10**9):
        assert qdrant_points.point_id(memory_id(number)).int == (1 << 100) + number
        assert qdrant_points.memory_id_of(str(qdrant_points.point_id(memory_id(number)))) == memory_id(number)


@pytest.mark.parametrize(
    "bad", ["", "mem_", memory_id(10).lower(), memory_id(1)[4:], "mem_" + "Z" * 26, "mem_" + "é" * 26]
)
def test_what_is_no_memory_id_has_no_point_id(bad: str) -> None:
    with pytest.raises(PermanentError, match="Not a memory id"):
        qdrant_points.point_id(bad)


def test_a_hit_deleted_between_two_queries_is_left_out() -> None:
    assert [hit.memory_id for hit in qdrant_points.hits({"a": 0.5}, {"a": 0.1, "gone": 0.9})] == ["a"]
