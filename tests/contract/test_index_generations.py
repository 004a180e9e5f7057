"""How generations of the index are opened, begun, swapped and closed, under running searches too."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from stackmem.exceptions import Busy, PermanentError, TransientError
from stackmem.ports import Fingerprint, IndexStore, VectorIndex
from tests.contract.conftest import (
    DIM,
    FINGERPRINT,
    HOME,
    Backend,
    X,
    found,
    fresh,
    memory_id,
    point,
)


def test_what_was_written_is_there_after_closing_and_opening(backend: Backend) -> None:
    first = backend.again()
    index = fresh(first)
    index.upsert([point(1, X, [X]), point(2, X), point(3)])
    index.delete([memory_id(3)])
    first.close()
    second = backend.again()
    again = second.open(FINGERPRINT)
    assert again is not None
    assert found(again) == {1, 2}
    assert dict(again.scan())[memory_id(1)] == point(1).payload
    second.close()


def test_a_closed_index_says_so(store: IndexStore, index: VectorIndex) -> None:
    begun = store.begin(FINGERPRINT)
    store.close()
    for closed in (index, begun):
        with pytest.raises(TransientError, match="closed"):
            closed.search(X, HOME, 5)


def test_there_is_nothing_to_open_at_first_nor_with_another_fingerprint(store: IndexStore) -> None:
    assert store.open(FINGERPRINT) is None
    fresh(store).upsert([point(1)])
    for other in (Fingerprint("test/model", DIM, "query: "), Fingerprint("test_model", DIM), Fingerprint("m", 8)):
        assert store.open(other) is None
    store.close()
    assert store.open(Fingerprint("test_model", DIM)) is None
    again = store.open(FINGERPRINT)
    assert again is not None
    assert found(again) == {1}


def test_a_generation_begun_is_empty_and_unseen_until_the_swap(store: IndexStore, index: VectorIndex) -> None:
    index.upsert([point(1)])
    begun = store.begin(FINGERPRINT)
    begun.upsert([point(2)])
    assert (found(index), found(begun)) == ({1}, {2})
    swapped = store.swap()
    assert found(index) == found(begun) == found(swapped) == {2}
    index.upsert([point(3)])
    assert found(swapped) == {2, 3}


def test_beginning_again_drops_what_was_begun(store: IndexStore, index: VectorIndex) -> None:
    index.upsert([point(1)])
    dropped = store.begin(FINGERPRINT)
    dropped.upsert([point(2)])
    store.begin(FINGERPRINT).upsert([point(3)])
    with pytest.raises(TransientError):
        dropped.upsert([point(4)])
    assert found(store.swap()) == {3}


def test_a_swap_may_change_the_dimension(store: IndexStore, index: VectorIndex) -> None:
    wide = Fingerprint("wide", 6)
    store.begin(wide).upsert([point(1, np.ones(6), np.ones((2, 6)))])
    swapped = store.swap()
    assert len(swapped.search(np.ones(6, np.float32), HOME, 5)) == 1
    with pytest.raises(PermanentError):
        index.search(X, HOME, 5)
    assert store.open(FINGERPRINT) is None
    assert store.open(wide) is not None


def test_there_is_nothing_to_swap_before_a_generation_was_begun(store: IndexStore, index: VectorIndex) -> None:
    with pytest.raises(PermanentError):
        store.swap()
    assert found(index) == set()


def test_search_never_stops_while_generations_are_swapped(store: IndexStore, index: VectorIndex) -> None:
    generations = [{memory_id(base + number) for number in range(20)} for base in (0, 20)]
    index.upsert([point(number, X, [X]) for number in range(20)])
    done, seen = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            seen.append({hit.memory_id for hit in index.search(X, HOME, 20)})
            seen.append({each for each, _ in index.scan()})

    with ThreadPoolExecutor(4) as readers:
        reading = [readers.submit(read) for _ in range(4)]
        try:
            for swap in range(1, 6):
                begun = store.begin(FINGERPRINT)
                begun.upsert([point(20 * (swap % 2) + number, X, [X]) for number in range(20)])
                store.swap()
        finally:
            done.set()
        for each in reading:
            each.result()
    assert {frozenset(each) for each in seen} <= {frozenset(each) for each in generations}
    assert {each for each, _ in index.scan()} == generations[1]


def test_two_threads_write_while_two_read(index: VectorIndex) -> None:
    def write(base: int) -> None:
        for number in range(base, base + 40):
            index.upsert([point(number, X, [X])])
            if number % 4 == 0:
                index.delete([memory_id(number)])

    def read(_: int) -> None:
        for _ in range(40):
            assert all(hit.summary_score > 0.99 for hit in index.search(X, HOME, 100))
            list(index.scan("home"))

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(task, base) for base in (0, 40) for task in (write, read)]
        for task in tasks:
            task.result()
    assert found(index, limit=100) == {number for number in range(80) if number % 4}


def test_a_folder_deleted_under_its_owner_is_begun_anew(embedded: Backend) -> None:
    store = embedded.again()
    index = fresh(store)
    index.upsert([point(1, X, [X])])
    shutil.rmtree(embedded.folder)
    store.begin(FINGERPRINT).upsert([point(2, X, [X])])
    again = store.swap()
    assert found(again) == {2}
    assert found(index) == {2}
    with pytest.raises(Busy):
        embedded.again(lock_wait_s=0).open(FINGERPRINT)
    store.close()
    reopened = embedded.again()
    index = reopened.open(FINGERPRINT)
    assert index is not None
    assert found(index) == {2}
    reopened.close()
