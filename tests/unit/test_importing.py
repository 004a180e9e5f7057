"""Logs of utterances become sessions and turns; the same file twice adds nothing."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stackmem.exporting import export_lines
from stackmem.importing import Imported, Importer
from stackmem.models import Memory, Session, Turn, proxy
from tests.unit.world import ZONE, World, again, at, states, summaries


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


def test_a_time_that_goes_back_and_on_again_splits_nothing(world: World) -> None:
    run(
        world,
        line("user", "一", "01 10:00"), line("assistant", "はい", "01 09:00"), line("user", "二", "01 10:01"),
        line("assistant", "はい"), line("user", "三", "01 10:11"),
    )  # fmt: skip
    assert [turn.user for turn in Turn.select().order_by(Turn.id)] == ["一", "二", "三"]
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


# --- a log that grows -------------------------------------------------------------------------------------------------

SHORT = LOG[:3]  # it breaks off before the reply


def only(world: World, *lines: bytes) -> Turn:
    """Import a log of one turn and return it."""
    run(world, *lines)
    return Turn.select().get()  # type: ignore[no-any-return]


def test_a_reply_that_came_later_belongs_to_the_turn_that_waited_for_it(world: World) -> None:
    run(world, *SHORT)
    uids = [turn.uid for turn in Turn.select().order_by(Turn.id)]
    Turn.update(state="skipped").execute()
    for _ in range(2):
        result = run(world, *LOG)
        assert (result.turns, result.known) == (0, 2)
        assert turns() == [("こんにちは", "やあ"), ("PCを買った", "いいね")]
        assert [turn.uid for turn in Turn.select().order_by(Turn.id)] == uids
        assert states() == ["skipped", "pending"]
    assert run(world, *SHORT).known == 2  # the older file again
    assert turns() == [("こんにちは", "やあ"), ("PCを買った", "いいね")]


def test_only_a_session_that_has_something_new_is_named(world: World) -> None:
    run(world, *SHORT, line("user", "別の話", session="other"))
    result = run(world, *LOG, line("user", "別の話", session="other"))
    assert result.session_ids == [Session.get(Session.name == "log").id]


@pytest.mark.parametrize("when", ["01 10:00", None])
def test_words_and_turns_that_came_later_are_put_where_they_belong(world: World, when: str | None) -> None:
    log = [
        line("user", "富士通の", when), line("user", "PCを買った", when), line("assistant", "いいね", when),
        line("assistant", "いくら？", when), line("user", "13万円", when),
    ]  # fmt: skip
    for end in range(1, len(log) + 1):
        run(world, *log[:end])
        world.clock.advance(hours=1)
    assert turns() == [("富士通の\nPCを買った", "いいね\nいくら？"), ("13万円", "")]
    assert Session.select().count() == 1


def test_what_a_log_gained_is_remembered(offline: World) -> None:
    log = [line("user", "ねえ", "01 10:00"), line("user", "うちの猫の名前はモモだよ", "01 10:01")]
    turn = only(offline, log[0])
    offline.settle()
    assert again(turn).state == "skipped"
    run(offline, *log)
    offline.settle()
    assert again(turn).state == "kept"
    assert "モモ" in summaries()[0]


def test_a_turn_that_is_a_memory_stays_one_and_is_indexed_with_its_new_words(offline: World) -> None:
    log = [line("user", "うちの猫の名前はモモだよ", "01 10:00"), line("assistant", "かわいい名前だね", "01 10:01")]
    turn = only(offline, log[0])
    offline.settle()
    run(offline, *log)
    assert (again(turn).reply, again(turn).state) == ("かわいい名前だね", "kept")
    assert [memory.outdated for memory in Memory.select()] == [True]
    offline.settle()
    assert len(summaries()) == 1


def test_what_the_user_added_to_a_turn_that_is_a_memory_is_remembered_too(offline: World) -> None:
    log = [
        line("user", "引っ越したよ。今は横浜に住んでる", "01 10:00"), line("user", "家賃は9万円で契約した", "01 10:01"),
        line("assistant", "いいね", "01 10:02"),
    ]  # fmt: skip
    turn = only(offline, log[0])
    offline.settle()
    for _ in range(2):
        run(offline, *log)
        offline.settle()
        assert again(turn).user == "引っ越したよ。今は横浜に住んでる"
        assert [row.user for row in Turn.select().order_by(Turn.id)][1:] == ["家賃は9万円で契約した"]
        assert any("家賃" in summary for summary in summaries())


@pytest.mark.parametrize("when", ["01 10:00", None])
@pytest.mark.parametrize("blank", [True, False])
def test_a_settled_turn_never_changes(world: World, when: str | None, blank: bool) -> None:
    log = [line("user", "通帳は引き出しの中", when), line("user", "二段目", when), line("assistant", "うん", when)]
    turn = only(world, log[0])
    words = {"user": "", "reply": ""} if blank else {}
    Turn.update(settled=True, state="skipped", **words).execute()
    before = again(turn)
    for end in (3, 2, 1):
        assert run(world, *log[:end]).turns == 0
        after = Turn.select().get()
        assert (after.user, after.reply, after.state) == (before.user, before.reply, "skipped")


def test_words_that_were_forgotten_do_not_come_back_with_a_shorter_file(world: World) -> None:
    log = [line("user", "通帳は引き出しの中", "01 10:00"), line("assistant", "うん", "01 10:01")]
    only(world, *log)
    Turn.update(settled=True, state="skipped", user="", reply="").execute()
    assert run(world, log[0]).turns == 0
    assert turns() == [("", "")]


@pytest.mark.parametrize("when", ["01 10:00", None])
def test_a_log_goes_on_after_an_export_of_it_was_taken_back(
    world: World, new_database: Callable[[], Any], when: str | None
) -> None:
    log = [
        line("user", "こんにちは", when), line("assistant", "やあ", when), line("user", "PCを買った", when),
        line("assistant", "いいね", when), line("user", "13万円", when),
    ]  # fmt: skip
    run(world, *log[:3])
    exported = [text.encode() for text in export_lines("home", ZONE)]
    for owner in ("home", "mari"):
        with new_database().connection_context():
            run(world, *exported, owner=owner)
            result = run(world, *log, owner=owner)
            assert turns() == [("こんにちは", "やあ"), ("PCを買った", "いいね"), ("13万円", "")]
            assert (result.turns, result.known, Session.select().count()) == (1, 2, 1)


def test_the_same_words_twice_in_one_second_are_two_turns(world: World) -> None:
    log = [line(role, "うん", "01 10:00") for role in ("user", "assistant", "user", "assistant")]
    only(world, *log[:2])
    assert run(world, *log).turns == 1
    assert turns() == [("うん", "うん")] * 2


def test_other_words_in_the_place_of_forgotten_ones_are_not_lost(world: World) -> None:
    only(world, line("user", "通帳は引き出しの中"), line("assistant", "うん"))
    Turn.update(settled=True, state="skipped", user="", reply="").execute()
    assert run(world, line("user", "猫を飼いはじめた"), line("assistant", "いいね")).turns == 1
    assert turns() == [("", ""), ("猫を飼いはじめた", "いいね")]


# --- one log in several files -----------------------------------------------------------------------------------------

LATER = [line("user", "13万円だった", "01 10:05"), line("assistant", "高いね", "01 10:06")]


def test_a_file_that_goes_on_where_another_ended_continues_its_session(world: World) -> None:
    run(world, *LOG)
    for lines, known in ((LATER, 0), (LATER, 1), (LOG + LATER, 3), (LOG[2:] + LATER, 2)):
        result = run(world, *lines)
        assert (result.known, result.turns) == (known, 1 - bool(known))
    assert turns() == [("こんにちは", "やあ"), ("PCを買った", "いいね"), ("13万円だった", "高いね")]
    assert Session.select().count() == 1


def test_a_reply_at_the_head_of_a_file_is_a_turn_of_its_own(world: World) -> None:
    run(world, *SHORT)
    run(world, LOG[3])
    assert turns() == [("こんにちは", "やあ"), ("PCを買った", ""), ("", "いいね")]


def test_another_days_file_is_a_session_of_its_own_even_with_the_same_words(world: World) -> None:
    days = [
        [line("user", "おはよう", f"{day} 07:00"), line("assistant", "おはよう！", f"{day} 07:00")]
        for day in ("01", "02", "03")
    ]
    for day in (*days, *days):
        run(world, *day)
    assert turns() == [("おはよう", "おはよう！")] * 3
    assert [(session.name, session.seq) for session in Session.select().order_by(Session.id)] == [
        ("log", 1), ("log", 2), ("log", 3),
    ]  # fmt: skip
    assert run(world, *days[1], line("user", "いってきます", "02 07:05")).turns == 1
    assert Turn.select().order_by(Turn.id.desc()).first().session.seq == 2


def test_an_earlier_days_file_may_come_later(world: World) -> None:
    run(world, line("user", "二日目", "02 07:00"))
    run(world, line("user", "一日目", "01 07:00"))
    assert {(turn.session.seq, turn.user) for turn in Turn.select()} == {(1, "二日目"), (2, "一日目")}


def test_a_file_without_times_is_added_to_the_session_of_its_name(world: World) -> None:
    run(world, line("user", "一"), line("assistant", "はい"))
    run(world, line("user", "二"), line("assistant", "はい"))
    assert turns() == [("一", "はい"), ("二", "はい")]
    assert Session.select().count() == 1


WORDS = st.sampled_from(["うん", "はい", "猫", "PCを買った", "うん\nはい"])
GAPS = st.sampled_from([0, 1, 30, 59, 660, -30])  # seconds


@st.composite
def logs(draw: st.DrawFn, timed: bool, numbered: bool = False) -> list[bytes]:
    """A log whose times, where it has any, may stand still, jump back or pause; its words may repeat or not."""
    when, lines = at("01 10:00"), []
    for number in range(draw(st.integers(1, 9))):
        when += timedelta(seconds=draw(GAPS))
        role = draw(st.sampled_from(["user", "assistant"]))
        words = draw(WORDS) + (str(number) if numbered else "")
        lines.append(line(role, words, at=when.isoformat() if timed else None))
    return lines


@given(st.booleans().flatmap(lambda timed: logs(timed=timed)), st.lists(st.integers(1, 9), max_size=4))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_however_a_log_grew_it_is_as_if_it_came_at_once(world: World, log: list[bytes], cuts: list[int]) -> None:
    with world_is_empty():
        run(world, *log)
        at_once = [(turn.session.seq, turn.user, turn.reply) for turn in Turn.select().order_by(Turn.id)]
    with world_is_empty():
        for cut in [*sorted(cuts), len(log), 1, len(log)]:
            run(world, *log[:cut])
            world.clock.advance(hours=1)
        assert [(turn.session.seq, turn.user, turn.reply) for turn in Turn.select().order_by(Turn.id)] == at_once


@given(logs(timed=True, numbered=True), st.integers(0, 9))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_of_a_log_in_two_files_no_line_is_lost_and_none_comes_twice(world: World, log: list[bytes], cut: int) -> None:
    with world_is_empty():
        for part in (log[:cut], log[cut:], log[:cut], log[cut:]):
            run(world, *part)
        stored = "\n".join(words for turn in turns() for words in turn if words)
        said = "\n".join(json.loads(text)["text"] for text in log)
        assert sorted(stored.split("\n")) == sorted(said.split("\n"))


@contextmanager
def world_is_empty() -> Iterator[None]:
    """Undo what the block stores."""
    with proxy.atomic() as whole:
        yield
        whole.rollback()
