"""What the background model answers, validated: whatever it sends, only this gets further."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.answers import Segment, read_decisions, read_segments
from stackmem.exceptions import BadAnswer

GOOD = {"turn_ids": [1, 2], "keep": True, "topic": "PC", "summary": "ユーザーはPCを買った。"}


def read(*items: Any, count: int = 5) -> list[Segment]:
    return read_segments(json.dumps({"segments": list(items)}), count)


def test_a_good_answer_is_read() -> None:
    more = {"entities": ["富士通"], "memory_type": "decision", "occurred_at": "2026-07-01", "occurred_from": None}
    (segment,) = read(GOOD | more)
    assert segment.model_dump() == GOOD | more | {"occurred_to": None, "forget": "", "aliases": []}


def test_a_wish_to_forget_and_other_names_are_read() -> None:
    (segment,) = read(
        GOOD | {"forget": " PCの値段 ", "aliases": [["富士通", "Fujitsu"], ["x"], "y", ["a", 1], ["", "b"]]}
    )
    assert (segment.forget, segment.aliases) == ("PCの値段", [("富士通", "Fujitsu")])
    (segment,) = read(GOOD | {"forget": None, "aliases": {"富士通": "Fujitsu"}})
    assert (segment.forget, segment.aliases) == ("", [])


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"segments": [GOOD]}),
        json.dumps([GOOD]),
        json.dumps(GOOD),
        f"```json\n{json.dumps({'segments': [GOOD]}, ensure_ascii=False)}\n```",
        f"<think>[1]</think>はい：{json.dumps({'segments': [GOOD]})}です",
        json.dumps(json.dumps({"segments": [GOOD]})),
        json.dumps({"segments": [GOOD]})[:-1],
    ],
)
def test_the_same_answer_is_read_whatever_stands_around_it(content: str) -> None:
    assert [segment.summary for segment in read_segments(content, 5)] == [GOOD["summary"]]


@pytest.mark.parametrize("content", ["", "はい", "{}", "[1, 2", '{"segments": null}', '{"segments": "x"}', "null", "7"])
def test_what_is_no_list_of_segments_is_a_bad_answer(content: str) -> None:
    with pytest.raises(BadAnswer, match='not a JSON object with a list "segments"'):
        read_segments(content, 5)


def test_an_empty_list_is_an_answer() -> None:
    assert read() == []
    assert read_segments("[]", 5) == []


@pytest.mark.parametrize(
    ("given_", "numbers"),
    [
        ([2, 1, 2, 2], [1, 2]),
        (["2", " 3 "], [2, 3]),
        (4, [4]),
        ([0, -1, 5, 6, 10**9, 10**30], [5]),
        ([True, 1.5, None, "x", "²", [1], 3], [3]),
        ("1", [1]),
    ],
)
def test_numbers_of_the_look_are_taken_and_others_dropped(given_: Any, numbers: list[int]) -> None:
    assert read(GOOD | {"turn_ids": given_})[0].turn_ids == numbers


def test_a_segment_that_names_no_turn_of_the_look_is_dropped() -> None:
    assert len(read(GOOD, GOOD | {"turn_ids": [99]})) == 1


@pytest.mark.parametrize("items", [[GOOD | {"turn_ids": [99]}], [GOOD | {"turn_ids": []}], [{"summary": "x"}]])
def test_an_answer_that_names_none_at_all_is_bad(items: list[Any]) -> None:
    with pytest.raises(BadAnswer, match="No segment names a turn_id"):
        read(*items)


@pytest.mark.parametrize("summary", ["", "  ", None, 5, ["x"]])
def test_something_kept_without_a_summary_is_bad(summary: Any) -> None:
    with pytest.raises(BadAnswer, match="keep: true has no summary"):
        read(GOOD | {"summary": summary})


@pytest.mark.parametrize(
    ("keep", "read_as"),
    [(True, True), ("true", True), ("Yes", True), (1, True), (False, False), ("no", False), (None, False), ([], False)],
)
def test_keep_is_read_leniently(keep: Any, read_as: bool) -> None:
    assert read(GOOD | {"keep": keep})[0].keep is read_as


def test_long_texts_are_cut_and_odd_ones_become_empty() -> None:
    names = [f"名{number}" for number in range(20)] + ["名0", "", 5]
    (segment,) = read(
        GOOD | {"topic": "あ" * 500, "summary": "い" * 5000, "entities": names, "memory_type": "wish", "occurred_at": 5}
    )
    assert (len(segment.topic), len(segment.summary), len(segment.entities)) == (200, 2000, 12)
    assert (segment.memory_type, segment.occurred_at) == ("episode", None)
    assert read(GOOD | {"topic": None, "entities": "富士通", "memory_type": ["x"]})[0].entities == ["富士通"]
    assert read(GOOD | {"entities": ["x" * 500]})[0].entities == ["x" * 80]


def test_nul_and_lone_surrogates_are_replaced() -> None:
    assert read(GOOD | {"summary": "a\x00\ud800"})[0].summary == "a\ufffd\ufffd"


def test_things_that_are_no_objects_are_passed_over() -> None:
    assert len(read(GOOD, "x", 5, None, [GOOD])) == 1


def test_of_two_hundred_segments_sixty_are_read_and_those_that_name_another_turn() -> None:
    items = [GOOD | {"turn_ids": [number % 9 + 1]} for number in range(199)]
    found = read(*items, GOOD | {"turn_ids": [10]}, count=10)
    assert len(found) == 61
    assert found[-1].turn_ids == [10]
    assert len(read(*[GOOD | {"turn_ids": [number]} for number in range(1, 201)], count=200)) == 200


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")), st.integers(1, 40))
def test_any_text_is_read_or_bad(content: str, count: int) -> None:
    with contextlib.suppress(BadAnswer):
        for segment in read_segments(content, count):
            assert segment.turn_ids
            assert set(segment.turn_ids) <= set(range(1, count + 1))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(st.fixed_dictionaries({}, optional={name: VALUES for name in Segment.model_fields}), max_size=4))
def test_any_values_in_a_segment_are_read_or_bad(items: list[Any]) -> None:
    with contextlib.suppress(BadAnswer):
        read(*items)


# --- decisions -------------------------------------------------------------------------------------------------------


def test_decisions_are_read() -> None:
    repeats = {"id": "N1", "decision": "repeats", "known": "K2", "why": "x"}
    content = json.dumps({"decisions": [repeats, {"id": "N2", "decision": "new"}]})
    assert [(item.id, item.decision, item.known) for item in read_decisions(content)] == [
        ("N1", "repeats", "K2"),
        ("N2", "new", None),
    ]
    assert read_decisions('{"decisions": []}') == []


@pytest.mark.parametrize(
    "content",
    [
        "はい",
        "{}",
        '{"decisions": [{"id": "N1"}]}',
        '{"decisions": [{"id": "N1", "decision": "delete", "known": "K1"}]}',
        '{"decisions": [{"id": 1, "decision": "new", "known": null}]}',
    ],
)
def test_a_decision_that_cannot_be_followed_is_bad(content: str) -> None:
    with pytest.raises(BadAnswer):
        read_decisions(content)


@given(st.text() | VALUES.map(lambda value: json.dumps({"decisions": value})))
def test_any_text_is_decisions_or_bad(content: str) -> None:
    with contextlib.suppress(BadAnswer):
        read_decisions(content)
