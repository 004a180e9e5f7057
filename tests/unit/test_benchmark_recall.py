import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import _noise
from benchmarks._asking import Log, Ranks, log_of, ranks_of, raw_windows, search_ranks, z_scores
from benchmarks._figures import mean_reciprocal_rank, rank_of, recall_at
from benchmarks._reference import ReferenceChat
from benchmarks._replay import Hints, import_log, made_memories, opened
from benchmarks.offline_rules import turns_of
from benchmarks.recall import Case, Result, figures, goals, lost, main
from stackmem.clock import SystemClock
from stackmem.exceptions import PermanentError
from stackmem.models import Memory, MemoryVector
from stackmem.ports import ChatRequest


def line(session: str, time: str, role: str, text: str) -> dict[str, Any]:
    return {"session": session, "at": f"2026-07-22T{time}+09:00", "role": role, "text": text}


# Four turns: lines 1-2, 3-4, 5-6 of session a, line 7 of session b.
ROWS = [
    line("a", "20:00:00", "user", "こんにちは"),
    line("a", "20:00:05", "assistant", "こんにちは"),
    line("a", "20:00:30", "user", "昨日富士通のPCを12万円で買ったよ"),
    line("a", "20:00:40", "assistant", "いいね"),
    line("a", "20:01:00", "user", "うちの猫の名前はモモだよ"),
    line("a", "20:01:10", "assistant", "かわいいね"),
    line("b", "21:00:00", "user", "こんにちは"),
]
REFERENCE = [
    {
        "lines": [3],
        "topic": "PC",
        "summary": "ユーザーは富士通のPCを買った。",
        "entities": [],
        "memory_type": "episode",
    },
    {"lines": [5, 6], "topic": "猫", "summary": "ユーザーの猫はモモ。", "entities": ["モモ"], "memory_type": "episode"},
]
PROBES = [
    {"question": "ノートパソコンはどこの？", "search": True, "evidence": [3]},
    {"question": "飼っている猫の名前は？", "search": True, "evidence": [5]},
    {"question": "歌って", "search": False, "evidence": []},
]


# --- figures ---------------------------------------------------------------------------------------------------------


def test_the_rank_is_that_of_the_first_thing_that_holds_anything_wanted() -> None:
    found = [{1, 2}, {3}, {4, 5}]
    assert rank_of(found, [5, 3]) == 2
    assert rank_of(found, [5]) == 3
    assert rank_of(found, [6]) is None
    assert rank_of([], [1]) is None


def test_recall_and_mean_reciprocal_rank_are_what_a_hand_counts() -> None:
    ranks = [1, 2, 4, None]
    assert [recall_at(ranks, k) for k in (1, 3, 5)] == [0.25, 0.5, 0.75]
    assert mean_reciprocal_rank(ranks) == (1 + 1 / 2 + 1 / 4) / 4
    assert recall_at([], 1) is None
    assert mean_reciprocal_rank([]) is None


def test_scores_that_are_all_alike_are_zero_when_normalised() -> None:
    assert z_scores(np.array([2.0, 2.0])).tolist() == [0, 0]
    assert z_scores(np.array([1.0, 3.0])).tolist() == [-1, 1]


def test_raw_windows_slide_by_one_turn_inside_a_session() -> None:
    rows = [line("a", "20:00:00", "user", str(number)) for number in range(8)]
    for row in rows[1::2]:
        row["role"] = "assistant"  # four turns of two lines
    windows = raw_windows(turns_of([*rows, line("b", "21:00:00", "user", "はい")]))
    assert [list(window) for window in windows] == [[0, 1, 2], [1, 2, 3], [4]]
    assert raw_windows([]) == []


def test_only_what_the_log_can_answer_is_asked_and_ranked_by_any_and_by_the_first_line() -> None:
    log = log_of("own", ROWS, [*PROBES, {"question": "?", "evidence": [7, 1]}], [])
    assert len(log.probes) == 3
    ranks = ranks_of(log.probes, lambda question: [{1}, {3}, {7}])
    assert (ranks.any_line, ranks.first_line) == ([2, None, 1], [2, None, 3])


def result(here: list[int | None], *, memories: str = "reference", noisy: list[int | None] | None = None) -> Result:
    ranks: Callable[[list[int | None]], Ranks] = lambda of: Ranks(of, of, [1.0] * len(of))  # noqa: E731
    case = Case(memories, "use", "edge", 10_000 if noisy else 0)
    return Result(case, "all", "m", 1, ranks(here), ranks([1, 9, 9, 9]), ranks(noisy) if noisy else None)


def test_goals_are_met_up_to_the_bound() -> None:
    assert [met for _, met in goals(result([1, 1, 1, 2]))] == [True, True]
    assert [met for _, met in goals(result([1, 1, 2, 9]))] == [False, False]
    assert [met for _, met in goals(result([5, 9, 9, 9], memories="model"))] == [True]
    assert [met for _, met in goals(result([9, 9, 9, 9], memories="model"))] == [False]
    assert list(goals(result([]))) == []


def test_what_is_lost_among_noise_is_the_fall_of_recall_at_5() -> None:
    fallen = result([1, 1, 1, 1], noisy=[1, 1, 1, 6])
    assert lost(fallen) == 0.25
    assert [met for _, met in goals(fallen)] == [True, True, False]
    assert lost(result([1])) == 0


def test_both_together_are_pooled() -> None:
    both = result([1, 1], noisy=[1, None]) + result([None, None], noisy=[1, None])
    assert figures(both.here)["recall@1"] == 0.5
    assert lost(both) == 0
    assert (both.log, both.stored) == ("all", 2)


# --- the scripted memory model ---------------------------------------------------------------------------------------


def test_the_reference_model_answers_no_other_log() -> None:
    chat = ReferenceChat(turns_of(ROWS), REFERENCE)
    look = json.dumps({"turns": [{"turn_id": 1, "user": "?", "robot": ""}]})
    with pytest.raises(PermanentError, match="not of the log"):
        chat.complete(
            ChatRequest([{"role": "system", "content": ""}, {"role": "user", "content": look}], "remember", 1)
        )


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)  # no .env
    for name in ("STACKMEM_CHAT_BASE_URL", "STACKMEM_MEMORY_BASE_URL", "STACKMEM_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def quiet(done: int, total: int) -> None:
    assert done <= total


@pytest.mark.parametrize("index", ["edge:", "local:"])
def test_reference_memories_rest_on_their_turns_and_are_found_among_others(home: Path, index: str) -> None:
    log = Log("o", ROWS, turns_of(ROWS), PROBES[:2], REFERENCE)
    model = ReferenceChat(log.turns, log.reference)
    with opened(home, SystemClock(), Hints(), model=model, index_url=index) as runtime:
        import_log(runtime, "home", ROWS, quiet)
        assert [(made.topic, made.turns) for made in made_memories(log.turns)] == [("PC", (1,)), ("猫", (2,))]
        assert search_ranks(runtime, log).any_line == [1, 1]
        _noise.add(runtime, "home", list(_noise.noise(60, ["はい", "今日は雨でした。"])), quiet)
        assert search_ranks(runtime, log).first_line == [1, 1]
        assert Memory.select().where(Memory.outdated).count() == 0
        assert MemoryVector.select().count() == (1 + 1) * 62


def test_noise_is_the_same_for_the_same_seed_and_half_of_it_other_lines() -> None:
    rain = "今日は雨でした。"
    made = list(_noise.noise(6, [rain]))
    assert made == list(_noise.noise(6, [rain]))
    assert made != list(_noise.noise(6, [rain], seed=1))
    assert [(rain, rain) in one.turns for one in made] == [True, False] * 3
    assert len(list(_noise.noise(3, []))) == 3


def test_noise_is_made_of_no_question_and_of_nothing_short() -> None:
    lines = ["今日は雨でしたか", "今日は雨でしたか。", "今日は雨でした？", "雨でした。"]
    assert not any(map(_noise.is_statement, lines))
    assert _noise.is_statement("傘を忘れてこまりました")
    assert list(_noise.noise(4, lines)) == list(_noise.noise(4, []))


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_the_figures_and_writes_them(home: Path, real_logs: Path, tmp_path: Path) -> None:
    arguments = ["--memories", "reference", "--log", "he-gu", "--index", "edge", "--noise", "20"]
    done = CliRunner().invoke(main, [*arguments, "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    assert "he-gu: 28 probes, 81 memories by reference, embedder use, index edge" in done.output
    (written,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert written["figures"]["recall@5"] > written["raw_windows"]["recall@5"]
    assert written["among_noise"]["recall@5"] > 0.5


def test_a_log_of_ones_own_is_measured_too(home: Path, tmp_path: Path) -> None:
    for name, rows in (("talk", ROWS), ("asked", PROBES)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    own = ["--file", str(tmp_path / "talk.jsonl"), "--index", "edge"]
    done = CliRunner().invoke(main, [*own, "--probes", str(tmp_path / "asked.jsonl")])
    assert done.exit_code == 0, done.output
    assert "talk: 2 probes, 2 memories by offline" in done.output
    assert "--file needs --probes" in CliRunner().invoke(main, own).output
    assert "no reference memories" in CliRunner().invoke(main, [*own, "--memories", "reference"]).output
    (tmp_path / "asked.jsonl").write_text("{", encoding="utf-8")
    done = CliRunner().invoke(main, [*own, "--probes", str(tmp_path / "asked.jsonl")])
    assert "is not JSON lines" in done.output
    (tmp_path / "asked.jsonl").write_text('{"question": "?"}', encoding="utf-8")
    done = CliRunner().invoke(main, [*own, "--probes", str(tmp_path / "asked.jsonl")])
    assert "is no JSON object with question, evidence" in " ".join(done.output.split())
