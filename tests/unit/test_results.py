"""Results of runs on disk: read strictly, written whole, and shown as text that stays text."""

import json
from pathlib import Path
from typing import Any

import pytest

from evals.report import render_page
from evals.results import About, Folder, read_run, summary, write_text
from stackmem.exceptions import StackmemError

ABOUT = {
    "version": "0", "mode": "free", "model": "m", "memory_model": "m", "judge_model": None,
    "tool_mode": "native", "embedder": "use", "persona": "p", "prompts": "x",
    "settings": "y",
}  # fmt: skip


def turn(**more: Any) -> dict[str, Any]:
    return {
        "index": 0, "user": "u", "reply": "r", "reference": "", "expect": {"search": False}, "found": None,
        "verdicts": {"false_trigger": True}, "ask_back_judge": None, "degraded": False, "model_calls": 1,
        "tokens": {}, "duration_ms": 1.0, "calls": [], **more,
    }  # fmt: skip


def run_of(*turns: dict[str, Any]) -> dict[str, Any]:
    none = {"num": 0, "den": 0}
    scenario = {"id": "a", "tags": ["recall"], "capture": none, "noise": none, "turns": list(turns)}
    return summary(ABOUT, [scenario | {"background": {"calls": 0, "tokens": 0}}])


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(run_of(turn())))
    assert read_run(tmp_path) == json.loads(json.dumps(run_of(turn())))


@pytest.mark.parametrize(
    "other",
    [
        {"scores": None},
        {"scores": {"miss_rate": 1}},
        {"scenarios": [1]},
        {"scenarios": [{"id": "a", "tags": [], "turns": [{"index": 0}]}]},
        {"baselines": None},
    ],
)
def test_what_is_no_run_or_one_of_another_version_gets_a_sentence(tmp_path: Path, other: dict[str, Any]) -> None:
    file = tmp_path / "results.json"
    for value in (run_of(turn()) | other, [], {"scenarios": []}):
        file.write_text(json.dumps(value))
        with pytest.raises(StackmemError, match="is not the result of a run"):
            read_run(file)


def test_a_folder_that_holds_something_else_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(StackmemError, match="is not what a run wrote"):
        Folder(tmp_path).begin(About(**ABOUT))


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_text(tmp_path / "taken", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_japanese_in_a_report_can_be_read() -> None:
    call = {"tool": "search_memory", "arguments": {"query": "猫の名前"}, "note": "", "hits": []}
    run = run_of(turn(expect={"answer": [["モモ"]]}, calls=[call]))
    page = render_page("html", run, None)
    assert "[[&#34;モモ&#34;]]" in page or '[["モモ"]]' in page
    assert "猫の名前" in page
    assert "\\u" not in page


def test_words_in_a_report_cannot_become_markup() -> None:
    words = "<script>x</script> ![a](http://b/c) [a](b) `c` *d* _e_ | \\ &lt;\n# f"
    run = run_of(turn(user=words, reply=words, calls=[{"tool": words, "arguments": {words: words}, "note": words,
                      "hits": [{"memory_id": "m", "score": 1.0, "turns": [], "summary": words}]}]))  # fmt: skip
    page = render_page("html", run, None)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    row = render_page("md", run, None).splitlines()[-1]
    assert row.count("|") - row.count("\\|") == 6
    told = r"\<script\>x\</script\> \!\[a\](http:\//b/c) \[a\](b) \`c\` \*d\* \_e\_ \| \\ &amp;lt; # f"
    assert f"| {told} | {told} |" in row
