"""Logs of utterances become sessions and turns; the same file twice adds nothing."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stackmem.importing import Imported, Importer
from stackmem.models import Session, Turn
from tests.unit.world import ZONE, World, at, states


def line(role: Any, text: Any, when: str | None = None, session: Any = "log", at: Any = None) -> bytes:
    """A line of a log; ``when`` is a day and time in July 2026, in Tokyo."""
    said = f"2026-07-{when}:00+09:00".replace(" ", "T") if when else at
    return json.dumps({"session": session, "at": said, "role": role, "text": text}, ensure_ascii=False).encode() + b"\n"


def run(world: World, *lines: bytes, owner: str = "home", **more: Any) -> Imported:
    return Importer(owner, ZONE, world.clock.now(), **more).run(lines)


def turns() -> list[tuple[str, str]]:
    return [(turn.user, turn.reply) for turn in Turn.select().order_by(Turn.id)]


LOG = [
    line("user", "こんにちは", "01 10:00"),
    line("assistant", "やあ", "01 10:01"),
    line("user", "PCを買った", "01 10:02"),
    line("assistant", "いいね", "01 10:03"),
]


# --- turns -----------------------------------------------------------------------------------------------------------


def test_a_user_and_an_assistant_part_are_a_turn(world: World) -> None:
    result = run(world, *LOG)
    assert turns() == [("こんにちは", "やあ"), ("PCを買った", "いいね")]
    assert (result.turns, result.known, result.memories, result.faults) == (2, 0, 0, [])
    first = Turn.select().order_by(Turn.id).first()
    assert (first.at, first.received_at, first.state, first.imported) == (
        at("01 10:00"), world.clock.now(), "pending", True,
    )  # fmt: skip
    assert (first.ordinal, first.owner, first.degraded) == (1, "home", False)


def test_an_imported_session_ends_as_soon_as_its_file_is_read(world: World) -> None:
    result = run(world, *LOG)
    session = Session.get()
    assert result.session_ids == [session.id]
    assert (session.name, session.seq, session.named) == ("log", 1, True)
    assert (session.ended_at, session.started_at) == (world.clock.now(), at("01 10:00"))


def test_consecutive_parts_of_one_role_are_joined(world: World) -> None:
    run(
        world,
        line("user", "ねえ"), line("user", "聞いて"), line("assistant", "なに"), line("assistant", "どうしたの"),
        line("user", "PC"),
    )  # fmt: skip
    assert turns() == [("ねえ\n聞いて", "なに\nどうしたの"), ("PC", "")]


def test_an_assistant_that_speaks_first_has_a_turn_without_user_words(world: World) -> None:
    run(world, line("assistant", "おはよう"), line("user", "おはよう"), line("assistant", "元気？"))
    assert turns() == [("", "おはよう"), ("おはよう", "元気？")]


def test_sessions_of_one_file_may_be_mixed(world: World) -> None:
    run(
        world,
        line("user", "一", session="a"), line("user", "二", session="b"), line("assistant", "はい", session="a"),
    )  # fmt: skip
    assert {(turn.session.name, turn.user, turn.reply) for turn in Turn.select()} == {
        ("a", "一", "はい"),
        ("b", "二", ""),
    }


# --- times -----------------------------------------------------------------------------------------------------------


def test_a_gap_of_more_than_ten_minutes_splits_a_session(world: World) -> None:
    run(
        world,
        line("user", "朝", "01 10:00"), line("user", "まだ", "01 10:10"), line("assistant", "はい", "01 10:20"),
        line("user", "昼", "01 10:31"),
    )  # fmt: skip
    assert [(turn.session.seq, turn.user) for turn in Turn.select().order_by(Turn.id)] == [(1, "朝\nまだ"), (2, "昼")]
    assert {session.name for session in Session.select()} == {"log"}


def test_a_turns_unknown_time_is_the_nearest_known_one(world: World) -> None:
    run(
        world,
        line("user", "一"), line("assistant", "はい", "01 10:00"), line("user", "二"), line("assistant", "はい"),
        line("user", "三", "01 10:05"), line("assistant", "はい"), line("user", "四"),
    )  # fmt: skip
    assert [turn.at for turn in Turn.select().order_by(Turn.id)] == [
        at("01 10:00"), at("01 10:00"), at("01 10:05"), at("01 10:05"),
    ]  # fmt: skip


def test_without_any_time_it_was_said_now(world: World) -> None:
    run(world, line("user", "一"), line("assistant", "はい"))
    assert Turn.get().at == world.clock.now()


def test_a_time_that_goes_back_splits_nothing(world: World) -> None:
    run(world, line("user", "一", "01 10:00"), line("assistant", "はい", "01 09:00"), line("user", "二", "01 09:05"))
    assert [(turn.user, turn.at) for turn in Turn.select().order_by(Turn.id)] == [
        ("一", at("01 10:00")), ("二", at("01 09:05")),
    ]  # fmt: skip
    assert Session.select().count() == 1


def test_a_naive_time_is_read_in_the_zone(world: World) -> None:
    run(world, b'{"session": "log", "at": "2026-07-01T10:00:00", "role": "user", "text": "a"}')
    assert Turn.get().at == at("01 10:00")


# --- bad lines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{", "The line is not valid JSON."),
        (b"[1]", "The line is not a JSON object."),
        (b'"x"', "The line is not a JSON object."),
        (b"\xff{}", "The line is not valid UTF-8."),
        (b"[" * 100_000, "nested too deeply"),
        (line("robot", "x"), '"role" must be "user" or "assistant".'),
        (line(["user"], "x"), '"role" must be "user" or "assistant".'),
        (line("user", " \n"), '"text" must be text that is not empty.'),
        (line("user", 5), '"text" must be text that is not empty.'),
        (line("user", "x", session=" "), '"session" must be a name of 1 to 200 characters.'),
        (line("user", "x", session="s" * 201), '"session" must be a name of 1 to 200 characters.'),
        (line("user", "x", session="s" + " " * 200), '"session" must be a name of 1 to 200 characters.'),
        (line("user", "x", at="昨日"), "is not a time in ISO 8601"),
        (line("user", "x", at=""), "is not a time in ISO 8601"),
        (line("user", "x", at=5), '"at" must be a time as text, or null.'),
        (b"{}", '"session" must be a name'),
        (b'{"kind": "song"}', '"kind" must be session, turn, memory, alias or forget_request.'),
        (b'{"kind": ["turn"]}', '"kind" must be session, turn, memory, alias or forget_request.'),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_by_its_number_and_the_others_count(world: World, bad: bytes, reason: str) -> None:
    result = run(world, LOG[0], b"\n", bad, LOG[1])
    assert [fault["line"] for fault in result.faults] == [3]
    assert reason in result.faults[0]["reason"]
    assert turns() == [("こんにちは", "やあ")]


def test_a_byte_order_mark_and_empty_lines_are_no_fault(world: World) -> None:
    result = run(world, b"\xef\xbb\xbf" + LOG[0], b"", b"  \r\n", LOG[1].rstrip() + b"\r\n")
    assert (result.faults, turns()) == ([], [("こんにちは", "やあ")])


def test_nul_and_lone_surrogates_are_replaced(world: World) -> None:
    run(world, b'{"session": "s\\u0000", "role": "user", "text": "a\\ud800"}')
    assert (Turn.get().user, Session.get().name) == ("a\ufffd", "s\ufffd")


@given(st.lists(st.binary(max_size=40) | st.sampled_from(LOG), max_size=6))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_imported_or_named(world: World, lines: list[bytes]) -> None:
    result = run(world, *lines)
    assert all(1 <= fault["line"] <= len(lines) and fault["reason"] for fault in result.faults)


# --- again -----------------------------------------------------------------------------------------------------------


def test_the_same_file_twice_adds_nothing(world: World) -> None:
    run(world, *LOG)
    world.clock.advance(hours=1)
    result = run(world, *LOG)
    assert (result.turns, result.known, result.session_ids) == (0, 2, [])
    assert (Turn.select().count(), Session.select().count()) == (2, 1)


def test_a_file_without_times_twice_adds_nothing(world: World) -> None:
    lines = [line("user", "一"), line("assistant", "はい")]
    run(world, *lines)
    world.clock.advance(hours=1)
    assert (run(world, *lines).turns, Turn.select().count()) == (0, 1)


def test_an_appended_file_adds_what_is_new_to_the_same_session(world: World) -> None:
    run(world, *LOG)
    result = run(world, *LOG, line("user", "13万円だった", "01 10:04"), line("assistant", "高いね", "01 10:05"))
    assert (result.turns, result.known) == (1, 2)
    assert [(turn.ordinal, turn.user) for turn in Turn.select().order_by(Turn.id)][-1] == (3, "13万円だった")
    assert Session.select().count() == 1
    assert result.session_ids == [Session.get().id]


def test_what_was_appended_is_remembered_too(offline: World) -> None:
    run(offline, *LOG)
    offline.settle()
    run(
        offline, *LOG, line("user", "うちの猫の名前はモモだよ", "01 10:04"), line("assistant", "かわいいね", "01 10:05")
    )
    offline.settle()
    assert "pending" not in states()
    assert len(states()) == 3


def test_the_same_file_for_another_owner_is_theirs(world: World) -> None:
    run(world, *LOG)
    assert run(world, *LOG, owner="mari").turns == 2
    assert {turn.owner for turn in Turn.select()} == {"home", "mari"}


def test_two_people_talking_are_noted_on_the_session(world: World) -> None:
    run(world, *LOG, both_speakers=True)
    assert Session.get().both_speakers


def test_an_import_goes_beside_a_live_session_of_the_same_name(world: World) -> None:
    live = world.turn("いま", session="log")
    run(world, *LOG)
    assert {(session.seq, session.imported is not None) for session in Session.select()} == {(1, False), (2, True)}
    assert Turn.select().where(Turn.session == live.session_id).count() == 1


def test_an_empty_file_imports_nothing(world: World) -> None:
    assert run(world) == Imported()
