import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks._counting import FAILURES, Call, CountingChat, call_of, read_calls
from benchmarks._replay import (
    Hints,
    Live,
    Made,
    SetClock,
    import_log,
    look_counts,
    made_memories,
    opened,
    times,
)
from benchmarks.offline_rules import turns_of
from benchmarks.remember import Log, cost, keep_turns, main, quality, share, turns_with, verdict
from stackmem.exceptions import TransientError
from stackmem.models import Turn as StoredTurn
from stackmem.models import Window
from stackmem.ports import ChatAnswer, ChatRequest


def line(session: str, time: str | None, role: str, text: str) -> dict[str, Any]:
    return {"session": session, "at": time and f"2026-07-22T{time}+09:00", "role": role, "text": text}


# Five turns: lines 1-2, 3-4, 5-6, 7-8 of session a, line 9 of session b.
ROWS = [
    line("a", "20:00:00", "user", "こんにちは"),
    line("a", "20:00:05", "assistant", "こんにちは"),
    line("a", "20:00:30", "user", "昨日富士通のPCを12万円で買ったよ"),
    line("a", "20:00:40", "assistant", "いいね"),
    line("a", "20:01:00", "user", "うちの猫の名前はモモだよ"),
    line("a", "20:01:10", "assistant", "かわいいね"),
    line("a", "20:05:00", "user", "うん"),
    line("a", "20:05:05", "assistant", "うん"),
    line("b", "21:00:00", "user", "妹の誕生日は5月3日なんだ"),
]
LABELS = {1: False, 3: True, 4: False, 5: True, 7: False, 9: True}
PROBES = [{"evidence": [3]}, {"evidence": [5, 9]}, {"evidence": [7, 3]}, {"evidence": [9]}]


def log(**more: Any) -> Log:
    return Log(**{"name": "made-up", "rows": ROWS, "turns": turns_of(ROWS), "labels": LABELS, "probes": PROBES,
                  "reference": [], **more})  # fmt: skip


def test_a_share_of_nothing_is_not_a_number() -> None:
    assert share(0, 0) is None
    assert share(1, 4) == 0.25


def test_a_turn_is_keep_when_one_of_its_labelled_lines_is() -> None:
    assert keep_turns(log()) == {0: False, 1: True, 2: True, 3: False, 4: True}
    assert keep_turns(log(labels={2: False, 4: False})) == {0: False, 1: False}


def test_a_reference_memory_rests_on_the_turns_that_hold_its_lines() -> None:
    assert turns_with(log().turns, [2, 3, 4, 9]) == (0, 1, 4)


def test_the_quality_is_what_a_hand_counts() -> None:
    memories = [Made("PC", "", (0, 1)), Made("猫", "", (2,), "superseded"), Made("うん", "", (3,))]
    assert quality(log(), memories) == {
        "capture recall": 2 / 3,  # lines 3 and 5 of 3, 5, 9
        "memories on no keep turn": 1 / 3,  # うん
        "noise by turn": 2 / 4,  # turns 0 and 3 of 0, 1, 2, 3
        "probes: first evidence line held": 3 / 4,  # all but that on line 9
        "probes: all evidence lines held": 2 / 4,
        "not-keep lines held": 3 / 3,  # 1, 4, 7
        "turns held": 4 / 5,
        "memories": 3,
        "memories superseded": 1,
        "memories per 100 turns": 60.0,
        "turns per memory": 4 / 3,
    }


def test_a_memory_without_a_labelled_line_is_not_judged() -> None:
    figures = quality(log(labels={1: False, 3: True}), [Made("PC", "", (0, 1)), Made("猫", "", (2,))])
    assert figures["memories on no keep turn"] == 0
    assert figures["noise by turn"] == 1 / 2


def test_without_labels_probes_and_memories_there_are_no_shares() -> None:
    figures = quality(log(labels={}, probes=[]), [])
    assert [name for name, value in figures.items() if value is None] == [
        "capture recall",
        "memories on no keep turn",
        "noise by turn",
        "probes: first evidence line held",
        "probes: all evidence lines held",
        "not-keep lines held",
        "turns per memory",
    ]
    assert figures["memories per 100 turns"] == 0


def test_the_cost_is_that_of_all_answered_calls_and_of_either_purpose() -> None:
    calls = [
        Call("remember", 1000, 100, 2.0),
        Call("remember", 500, 50, 1.0),
        Call("compare", 300, 10, 0.5),
        Call("compare", 0, 0, 9.0, answered=False),
    ]
    figures = cost(calls, 10)
    assert [figures[f"calls per turn{of}"] for of in ("", ", remember", ", compare")] == [0.3, 0.2, 0.1]
    assert [figures[f"prompt tokens per turn{of}"] for of in ("", ", remember", ", compare")] == [180, 150, 30]
    assert figures["completion tokens per turn"] == 16
    assert figures["model seconds per turn"] == 0.35
    assert figures["calls that failed"] == 1
    assert cost([], 0)["calls per turn"] is None


@pytest.mark.parametrize(
    ("name", "value", "met"),
    [
        ("capture recall", 0.75, True),
        ("capture recall", 0.74, False),
        ("calls per turn", 0.40, True),
        ("calls per turn", 0.41, False),
        ("calls per turn, compare", 9.0, None),
        ("capture recall", None, None),
    ],
)
def test_a_figure_meets_its_goal_up_to_the_bound(name: str, value: float | None, met: bool | None) -> None:
    assert verdict(name, value) is met


# --- calls -----------------------------------------------------------------------------------------------------------


REQUEST = ChatRequest([{"role": "user", "content": "猫" * 10}], "remember", 1.0)


def test_tokens_are_the_servers_and_estimated_where_it_reports_none() -> None:
    assert call_of(REQUEST, ChatAnswer("はい", (), 40, 3), 0.5) == Call("remember", 40, 3, 0.5)
    assert call_of(REQUEST, ChatAnswer("はい"), 0.5) == Call("remember", 10, 1, 0.5, estimated=True)


class Down:
    name = "down"

    def complete(self, request: ChatRequest) -> ChatAnswer:
        raise TransientError("It is down.")


def test_a_model_that_is_down_ends_the_run_after_some_failures_in_a_row(tmp_path: Path) -> None:
    chat = CountingChat(Down(), tmp_path / "calls.jsonl")
    for _ in range(FAILURES - 1):
        with pytest.raises(TransientError):
            chat.complete(REQUEST)
    with pytest.raises(Exception, match="failed 8 times in a row: It is down"):
        chat.complete(REQUEST)
    assert [call.answered for call in read_calls(tmp_path)] == [False] * FAILURES


# --- both ways -------------------------------------------------------------------------------------------------------


def quiet(done: int, total: int) -> None:
    assert done <= total


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)  # no .env
    for name in ("STACKMEM_CHAT_BASE_URL", "STACKMEM_MEMORY_BASE_URL", "STACKMEM_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def test_a_turns_time_is_that_of_its_first_and_last_line_and_never_goes_back() -> None:
    turn, early, late = turns_of(ROWS)[0], datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 8, 1, tzinfo=UTC)
    assert [moment.second for moment in times(turn, ROWS, early)] == [0, 5]
    assert times(turn, ROWS, late) == (late, late)
    unknown = [line("a", None, "user", "はい")]
    assert times(turns_of(unknown)[0], unknown, early) == (early, early)


def live(home: Path, count: int, *, closes: bool = False) -> tuple[list[Made], list[tuple[list[int], bool]]]:
    turns, queue, clock = turns_of(ROWS), Hints(), SetClock(datetime(2000, 1, 1, tzinfo=UTC))
    with opened(home, clock, queue) as runtime:
        Live(runtime, clock, queue, "o", closes).run(turns[:count], ROWS, quiet)
        looks = [(row.turn_ids, row.final) for row in Window.select().order_by(Window.id)]
        assert not StoredTurn.select().where(StoredTurn.state == "pending").exists()
        return made_memories(turns), looks


def test_live_turns_are_looked_at_after_silence_and_at_the_end_of_the_session(offline: Path) -> None:
    memories, looks = live(offline, 5)
    assert {place for memory in memories for place in memory.turns} >= {1, 2, 4}
    assert looks[0] == ([1, 2, 3], False)  # two minutes after the third
    assert [final for turn_ids, final in looks if 5 in turn_ids] == [False, True]
    # The end of a session asks nothing about turns that the look before it judged; no two of these memories are alike.
    assert [turn_ids for turn_ids, final in looks if final] == [[4], [5]]
    assert [call.purpose for call in read_calls(offline)] == ["remember"] * (len(looks) - 2)


def test_a_look_at_turns_that_were_all_seen_before_is_counted(offline: Path) -> None:
    _, looks = live(offline, 5)
    with opened(offline, SetClock(datetime(2026, 8, 1, tzinfo=UTC)), Hints()):
        assert look_counts() == {
            "looks": len(looks),
            "looks at an open session": sum(not final for _, final in looks),
            "looks that saw no new turn": 2,  # at the end of either session: silence came before it
            "turns failed": 0,
        }


def test_a_session_that_the_client_closes_is_looked_at_once_more_and_no_silence_after_it(offline: Path) -> None:
    _, looks = live(offline, 5, closes=True)
    assert [final for turn_ids, final in looks if 5 in turn_ids] == [True]


def test_a_live_replay_that_was_stopped_goes_on(offline: Path) -> None:
    live(offline, 3)
    memories, _ = live(offline, 5)
    assert live(offline, 5)[0] == memories
    assert {place for memory in memories for place in memory.turns} >= {1, 2, 4}


def test_an_import_twice_adds_nothing_and_asks_nothing(offline: Path) -> None:
    made = []
    for _ in range(2):
        with opened(offline, SetClock(datetime(2026, 8, 1, tzinfo=UTC)), Hints()) as runtime:
            import_log(runtime, "o", ROWS, quiet)
            made.append((made_memories(turns_of(ROWS)), read_calls(offline)))
    assert made[0] == made[1]
    assert {place for memory in made[0][0] for place in memory.turns} >= {1, 2, 4}


def test_the_command_prints_both_ways_and_writes_the_figures(offline: Path, real_logs: Path, tmp_path: Path) -> None:
    arguments = ["--log", "ad-ey", "--sessions", "2", "--both-ways", "--memories", "--json", str(tmp_path / "out.json")]
    result = CliRunner().invoke(main, [*arguments, "--keep-home", str(tmp_path / "kept")])
    assert result.exit_code == 0, result.output
    assert "ad-ey, import: " in result.output
    assert "ad-ey, live: " in result.output
    assert "ok  ≥ 0.75" in result.output
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [(one["way"], one["model"], one["tokens_estimated"]) for one in written] == [
        ("import", "offline", True),
        ("live", "offline", True),
    ]
    assert (tmp_path / "kept" / "ad-ey-live" / "stackmem.db").exists()
