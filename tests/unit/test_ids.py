"""Ids come from the rows, so that repeating a task gives the same ones."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from stackmem.ids import memory_id, session_name, turn_uid

SAID = datetime(2026, 7, 23, 1, 0, 0, 123000, tzinfo=UTC)
UIDS = ["b" * 32, "a" * 32]


def test_the_same_turn_has_the_same_uid() -> None:
    assert turn_uid("home", "s", 1, 1, "おはよう") == turn_uid("home", "s", 1, 1, "おはよう")
    assert re.fullmatch("[0-9a-f]{32}", turn_uid("home", "s", 1, 1, "おはよう"))


@pytest.mark.parametrize(
    "other",
    [
        ("mari", "s", 1, 1, "おはよう"),
        ("home", "t", 1, 1, "おはよう"),
        ("home", "s", 2, 1, "おはよう"),
        ("home", "s", 1, 2, "おはよう"),
        ("home", "s", 1, 1, "おはよ"),
        ("home", "s", 11, "", "おはよう"),
        ("homes", "", 1, 1, "おはよう"),
    ],
)
def test_another_owner_session_place_or_wording_gives_another_uid(other: tuple[str, str, int, int, str]) -> None:
    assert turn_uid(*other) != turn_uid("home", "s", 1, 1, "おはよう")


@given(st.text(), st.text())
def test_any_words_have_a_uid(owner: str, words: str) -> None:
    assert len(turn_uid(owner, "s", 1, 1, words)) == 32


def test_a_memory_id_is_a_ulid_whose_time_is_that_of_the_first_turn() -> None:
    identity = memory_id(SAID, "home", UIDS)
    assert re.fullmatch("mem_[0-9A-HJKMNP-TV-Z]{26}", identity)
    assert ULID.from_str(identity.removeprefix("mem_")).datetime == SAID


def test_the_order_of_the_sources_does_not_count() -> None:
    assert memory_id(SAID, "home", UIDS) == memory_id(SAID, "home", UIDS[::-1])


@pytest.mark.parametrize(
    "other",
    [
        memory_id(SAID + timedelta(milliseconds=1), "home", UIDS),
        memory_id(SAID, "mari", UIDS),
        memory_id(SAID, "home", UIDS[:1]),
        memory_id(SAID, "home", UIDS, 1),
        memory_id(SAID, "home", UIDS, 0, 1),
    ],
)
def test_whatever_a_memory_rests_on_is_in_its_id(other: str) -> None:
    assert other != memory_id(SAID, "home", UIDS)


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_a_time_that_a_ulid_cannot_hold_still_gives_an_id(year: int) -> None:
    assert len(memory_id(datetime(year, 1, 2, tzinfo=UTC), "home", UIDS)) == 30


def test_session_names_are_new_each_time() -> None:
    assert session_name() != session_name()
    assert re.fullmatch("s-[0-9a-f]{12}", session_name())
