"""What only the index on a Qdrant server meets: other processes, a wire, a key, a server that is away."""

import logging
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from stackmem.adapters import server_calls
from stackmem.adapters.server_index import ServerStore
from stackmem.exceptions import PermanentError, TransientError
from stackmem.ports import Fingerprint, IndexStore, VectorIndex
from tests.contract.conftest import DIM, FINGERPRINT, HOME, KEY, Backend, X, Y, found, fresh, memory_id, point
from tests.qdrant_standin import QdrantStandin

OTHER = Fingerprint("other", DIM)


@pytest.fixture
def store(server: Backend) -> IndexStore:
    return server.again()


@pytest.fixture
def other(server: Backend) -> IndexStore:
    """The store of another process."""
    return server.again()


@pytest.mark.qdrant_server
def test_a_real_server_is_asked_too(qdrant: Backend) -> None:
    index = fresh(qdrant.again())
    index.upsert([point(1)])
    assert found(index) == {1}


# --- other processes -------------------------------------------------------------------------------------------------


def test_what_one_process_writes_another_finds(store: IndexStore, other: IndexStore) -> None:
    mine = fresh(store)
    theirs = other.open(FINGERPRINT)
    assert theirs is not None
    mine.upsert([point(1)])
    theirs.upsert([point(2)])
    assert found(mine) == found(theirs) == {1, 2}


def test_after_another_process_has_swapped_every_call_reaches_the_new_generation(
    store: IndexStore, other: IndexStore
) -> None:
    mine = fresh(store)
    theirs = other.open(FINGERPRINT)
    assert theirs is not None
    mine.upsert([point(number) for number in range(3)])
    for call in (
        lambda: found(mine),
        lambda: mine.upsert([point(9)]),
        lambda: mine.delete([memory_id(1)]),
        lambda: list(mine.scan()),
    ):
        other.begin(FINGERPRINT).upsert([point(number) for number in range(3)])
        other.swap()
        call()
    mine.upsert([point(9)])
    assert found(theirs) == found(mine) == {0, 1, 2, 9}


def test_an_index_of_another_embedder_is_neither_searched_nor_written(store: IndexStore, other: IndexStore) -> None:
    mine = fresh(store)
    mine.upsert([point(1)])
    theirs = fresh(other, OTHER)
    with pytest.raises(TransientError, match="with another embedder: then restart"):
        mine.search(X, HOME, 5)
    with pytest.raises(TransientError, match="with another embedder"):
        mine.upsert([point(2)])
    assert store.open(FINGERPRINT) is None
    assert found(theirs) == set()


def test_a_generation_that_another_process_removed_is_not_filled_on(store: IndexStore, other: IndexStore) -> None:
    begun = store.begin(FINGERPRINT)
    other.begin(FINGERPRINT)
    with pytest.raises(TransientError, match="does not have this"):
        begun.upsert([point(1)])


def test_a_scan_goes_on_in_the_new_generation(
    store: IndexStore, other: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stackmem.adapters.qdrant_points.PAGE", 2)
    mine = fresh(store)
    mine.upsert([point(number) for number in range(6)])
    pages = mine.scan()
    seen = [next(pages)[0], next(pages)[0]]
    other.begin(FINGERPRINT).upsert([point(number) for number in range(6)])
    other.swap()
    assert [*seen, *(memory for memory, _ in pages)] == [memory_id(number) for number in range(6)]


def test_collections_of_others_are_left_alone(standin: QdrantStandin, server: Backend) -> None:
    stores = [ServerStore(standin.url, api_key=KEY, name=name) for name in ("robot", "robot-2", "robo")]
    indexes = [fresh(store) for store in stores]
    for number, index in enumerate(indexes):
        index.upsert([point(number)])
    fresh(stores[0])
    assert [found(index) for index in indexes] == [set(), {1}, {2}]
    for store in stores:
        store.close()


# --- the wire --------------------------------------------------------------------------------------------------------


def test_points_go_out_in_requests_that_a_server_takes(
    store: IndexStore, standin: QdrantStandin, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = fresh(store)
    monkeypatch.setattr(server_calls, "NUMBERS", DIM * 4)
    before = len(standin.asked)
    index.upsert([point(number, X, [X, Y]) for number in range(5)])
    assert len(standin.asked) - before == 5
    assert found(index) == set(range(5))


def test_a_search_is_two_requests(store: IndexStore, standin: QdrantStandin) -> None:
    index = fresh(store)
    index.upsert([point(number, X, [Y]) for number in range(5)])
    before = len(standin.asked)
    assert len(index.search(X, HOME, 5)) == 5
    assert len(standin.asked) - before == 2


def test_a_new_generation_has_its_payload_indexes(store: IndexStore, standin: QdrantStandin) -> None:
    store.begin(FINGERPRINT)
    assert len([path for _, path in standin.asked if path.endswith("/index")]) == 7


# --- a server that is away, refuses, or is none ----------------------------------------------------------------------


def test_a_server_that_is_away_stops_no_start_and_is_found_again(
    server: Backend, standin: QdrantStandin, caplog: pytest.LogCaptureFixture
) -> None:
    fresh(server.again()).upsert([point(1)])
    standin.stop()
    store = server.again()
    with caplog.at_level(logging.WARNING):
        index = store.open(FINGERPRINT)
    assert "cannot be reached" in caplog.text
    assert index is not None
    for call in (lambda: found(index), lambda: index.upsert([point(2)]), lambda: store.begin(FINGERPRINT)):
        with pytest.raises(TransientError, match="check STACKMEM_INDEX_URL"):
            call()
    standin.start(standin.port)
    assert found(index) == {1}


def test_a_server_that_goes_away_during_a_swap_leaves_the_old_generation(
    store: IndexStore, standin: QdrantStandin
) -> None:
    index = fresh(store)
    index.upsert([point(1)])
    store.begin(FINGERPRINT).upsert([point(2)])
    standin.refuses = (503, "shutting down")
    with pytest.raises(TransientError, match="HTTP 503"):
        store.swap()
    standin.refuses = None
    assert found(index) == {1}
    assert found(store.swap()) == {2}


def test_an_old_generation_that_cannot_be_dropped_does_not_stop_a_swap(
    store: IndexStore, standin: QdrantStandin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def down(_: object) -> set[str]:
        raise TransientError("The Qdrant server failed.")

    index = fresh(store)
    store.begin(FINGERPRINT).upsert([point(2)])
    with monkeypatch.context() as patched:
        patched.setattr(server_calls, "names", down)
        store.swap()
    assert "An old generation of the index is still there" in caplog.text
    assert found(index) == {2}
    fresh(store)
    assert len(standin.client.get_collections().collections) == 1


@pytest.mark.parametrize(
    ("status", "words", "kind", "said"),
    [
        (500, "Service internal error: No space left on device", TransientError, "No space left"),
        (507, "disk full", TransientError, "HTTP 507"),
        (429, "slow down", TransientError, "HTTP 429"),
        (403, "forbidden", PermanentError, "STACKMEM_INDEX_API_KEY"),
        (400, "Wrong input: expected dim: 4, got 2", PermanentError, "refused the request"),
    ],
)
def test_a_refusal_is_one_sentence_of_the_right_kind(
    store: IndexStore, standin: QdrantStandin, status: int, words: str, kind: type[Exception], said: str
) -> None:
    index = fresh(store)
    standin.refuses = (status, words)
    for call in (lambda: index.upsert([point(1)]), lambda: index.search(X, HOME, 5), lambda: list(index.scan())):
        with pytest.raises(kind, match=said) as caught:
            call()
        assert KEY not in str(caught.value)
    standin.refuses = None


def test_a_wrong_key_names_its_setting(standin: QdrantStandin) -> None:
    store = ServerStore(standin.url, api_key="wrong")
    with pytest.raises(PermanentError, match="refused the key: check STACKMEM_INDEX_API_KEY"):
        store.open(FINGERPRINT)
    store.close()


@pytest.fixture
def something_else() -> Iterator[str]:
    """A web server that is no Qdrant."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join()


def test_something_else_at_the_address_is_told(something_else: str) -> None:
    store = ServerStore(something_else)
    with pytest.raises((PermanentError, TransientError), match=r"The Qdrant server at 127.0.0.1|is away"):
        store.begin(FINGERPRINT)
    store.close()


def test_an_unserialisable_payload_is_refused(store: IndexStore) -> None:
    index: VectorIndex = fresh(store)
    with pytest.raises(PermanentError):
        index.upsert([point(1, X, topic=object())])
    assert found(index) == set()
    assert np.isfinite(X).all()
