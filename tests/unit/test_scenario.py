"""Scenario files: what is read, and how a fault is named."""

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from evals.scenario import ScenarioFaults, files_of, matches, read, says, times
from stackmem.exceptions import StackmemError

ZONE = ZoneInfo("Asia/Tokyo")

HEAD = """\
id: ja-pc
language: ja
title: PCの値段
tags: [recall, correction]
history:
  - session: h1
    at: "2026-07-01T20:15:00+09:00"
    turns:
      - {id: h1.1, user: ただいま, assistant: おかえり！, keep: false}
      - {id: h1.2, user: 富士通のPCを12万円で買ったよ, assistant: いいね, keep: true, type: episode}
      - {id: h1.3, user: 13万円だった, assistant: うん, keep: true, replaces: [h1.2], at: "2026-07-01T21:00"}
conversation:
  session: c1
  at: 2026-07-23
  turns:
"""
ASKED = """\
    - user: いくらで買ったっけ
      assistant: 13万円だったね。
      expect: {search: true, evidence: [h1.3], stale: [h1.2], answer: [["13万"]], forbid: ["12万"]}
"""
TALK = "    - {user: 前に進んで, assistant: うん, expect: {search: false}}\n"


def written(folder: Path, text: str, name: str = "ja-pc.yaml") -> Path:
    """Return the path of a file with this text."""
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def faults(path: Path) -> list[tuple[int, str]]:
    """Return the faults of a file that has some."""
    with pytest.raises(ScenarioFaults) as caught:
        read(path, ZONE)
    assert all(fault.file == path for fault in caught.value.faults)
    return [(fault.line, fault.reason) for fault in caught.value.faults]


def test_a_scenario_is_read_with_its_times_and_its_expectations_as_written(tmp_path: Path) -> None:
    file = read(written(tmp_path, HEAD + ASKED + TALK * 9), ZONE)
    assert file.turns == 10
    assert file.expects[0]["stale"] == ["h1.2"]
    assert file.expects[1] == {"search": False}
    assert [turn.keep for turn in file.scenario.past] == [False, True, True]
    past = [moment.astimezone(ZONE).strftime("%H:%M:%S") for moment in times(file.scenario.history[0], ZONE)]
    assert past == ["20:15:00", "20:15:20", "21:00:00"]
    talk = times(file.scenario.conversation, ZONE)
    assert talk[0].astimezone(ZONE).isoformat() == "2026-07-23T00:00:00+09:00"  # a date that YAML would have eaten
    assert (talk[9] - talk[0]).total_seconds() == 180


def test_a_turn_without_expectations_is_in_no_denominator(tmp_path: Path) -> None:
    file = read(written(tmp_path, HEAD + "    - {user: ねえ, assistant: なに}\n" + TALK * 9), ZONE)
    assert file.expects[0] == {}
    assert file.scenario.conversation.turns[0].expect.search == "either"


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("title: PCの値段\n", "", 1, "title: Field required."),
        ("title:", "titel:", 3, "titel: nothing reads this key."),
        ("tags: [recall, correction]", "tags: [recal]", 4, "tags.0: Input should be 'recall'"),
        ("id: ja-pc", "id: ja-other", 1, "the file of 'ja-other' is ja-other.yaml."),
        ("id: h1.2", "id: h1.1", 10, "there are two turns 'h1.1'."),
        ("type: episode", "type: event", 10, "type is one of episode, decision, preference."),
        ("replaces: [h1.2]", "replaces: [h9]", 11, "no earlier turn is called 'h9'."),
        ('"2026-07-01T21:00"', '"2026-06-01T21:00"', 11, "it is earlier than what stands before it."),
        ('"2026-07-01T20:15:00+09:00"', '"gestern"', 7, "'gestern' is not a time"),
        ('"2026-07-01T20:15:00+09:00"', '"9999-12-31T23:59:50+00:00"', 7, "between the years 1971 and 9000."),
        ("session: c1", "session: h1", 6, "there are two sessions 'h1'."),
        ("evidence: [h1.3]", "evidence: [h7]", 18, "no turn of the history is called 'h7'."),
        ("stale: [h1.2]", "stale: [h1.3]", 18, "a turn is evidence or stale, not both."),
        ("search: true", "search: false", 18, "evidence of a turn that needs no search"),
        ("search: true", "search: perhaps", 18, "search: it is true, false or either."),
        ("search: true", "search: ｔｒｕｅ", 18, "search: it is true, false or either."),
        ('[["13万"]]', '[["14万"]]', 18, "the reference reply itself does not match it."),
        ('["12万"]', '["１３万"]', 18, "the reference reply itself holds '１３万'."),
        ("forbid:", "ask_back: true, forbid:", 18, "what is asked back needs two or more candidates."),
        ("keep: false", "keep: nein", 9, "keep: Input should be a valid boolean."),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, old: str, new: str, line: int, reason: str) -> None:
    text = (HEAD + ASKED + TALK * 9).replace(old, new, 1)
    found = faults(written(tmp_path, text))
    assert any(at == line and reason in said for at, said in found), found


def test_every_fault_of_a_file_is_named_at_once_in_order(tmp_path: Path) -> None:
    text = (HEAD + ASKED + TALK * 8).replace("replaces: [h1.2]", "replaces: [h9]").replace("ja-pc", "ja-x")
    assert [line for line, _ in faults(written(tmp_path, text))] == [1, 11, 15]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "the file holds no keys"),
        ("- eins\n", 1, "the file holds no keys"),
        ("id: [\n", 2, "expected the node content"),
        ("id: a\nid: b\n", 2, "the key 'id' stands here twice."),
        ("id: &a\n  b: *a\n", 1, "refers to itself"),
        ("? [1]\n: 2\n", 1, "no plain word"),
        ("id: !!python/object:os.system ls\n", 1, "could not determine a constructor"),
        ("id: \x00\n", 1, "special characters are not allowed"),
        ("id: a\ntitle：PCの値段\ntags: []\n", 3, "line 2 has a full-width colon or blank: write : and spaces."),
        ("a:\n  - b: h1\n　　c: x\n    d: y\n", 4, "line 3 has a full-width colon or blank: write : and spaces."),
        ("id: a\n　title: b\n", 2, "\u3000title: nothing reads this key: it begins with a full-width blank."),
        ("id: " + "[" * 3000, 1, "values stand too deep in one another."),
    ],
)
def test_what_is_no_scenario_at_all_gets_a_sentence(tmp_path: Path, text: str, line: int, reason: str) -> None:
    found = faults(written(tmp_path, text))
    assert any(at == line and reason in said for at, said in found), found


def test_aliases_of_aliases_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    (tmp_path / "x.yaml").write_text("\n".join(lines))
    with pytest.raises(ScenarioFaults, match="values are no scenario"):
        read(tmp_path / "x.yaml", ZoneInfo("Asia/Tokyo"))


def test_a_file_that_is_not_utf_8_gets_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "ja-pc.yaml"
    path.write_bytes("id: 日本".encode("shift_jis"))
    assert faults(path) == [(1, "the file is not UTF-8.")]


def test_a_folder_stands_for_its_files_and_each_file_counts_once(tmp_path: Path) -> None:
    one, two = written(tmp_path, "", "a.yaml"), written(tmp_path, "", "b.yaml")
    written(tmp_path, "", "notes.txt")
    assert files_of([tmp_path, two]) == [one, two]
    with pytest.raises(StackmemError, match="no folder with"):
        files_of([tmp_path / "none"])


def test_matching_knows_neither_width_nor_case_nor_spaces() -> None:
    assert matches("１３ 万", "約13万円です")
    assert matches("RTX3050", "ｒｔｘ 3050 Ti")
    assert not matches("十三万", "13万円")
    assert says([["13万", "十三万"], ["円"]], "十三万 円")
    assert not says([["13万"], ["ドル"]], "13万円")
    assert says([], "何でも")
