"""Everything of an owner as JSON lines."""

import json

import pytest

from stackmem.exporting import export_lines
from tests.unit.world import ZONE, World, at


def test_sessions_turns_and_memories_come_in_this_order_oldest_first(world: World) -> None:
    world.memory(
        "ユーザーは富士通のPCを買った。", "PCを買った", "13万円だった", entities=["富士通"], said=at("01 10:00")
    )
    world.memory("猫がいる。", session="b", said=at("02 10:00"))
    lines = [json.loads(line) for line in export_lines("home", ZONE)]
    assert [line["kind"] for line in lines] == ["session"] * 2 + ["turn"] * 3 + ["memory"] * 2
    turn, memory = lines[2], lines[5]
    names = ("turn_id", "session_id", "at", "user", "reply", "emotion", "action", "state")
    assert {name: turn[name] for name in names} == {
        "turn_id": 1, "session_id": "old", "at": "2026-07-01T10:00:00+09:00", "user": "PCを買った",
        "reply": "そうなんだ", "emotion": "neutral", "action": "none", "state": "kept",
    }  # fmt: skip
    assert memory["source_turn_ids"] == [1, 2]
    assert (memory["status"], memory["superseded_by"], memory["entities"]) == ("active", None, ["富士通"])
    assert memory["memory_id"].startswith("mem_")


def test_japanese_is_not_escaped(world: World) -> None:
    world.memory("富士通")
    assert all("\\u" not in line for line in export_lines("home", ZONE))


def test_other_owners_and_forgotten_memories_stay_out(world: World) -> None:
    world.memory("秘密", owner="mari")
    world.memory("忘れた話", "もとの言葉", status="forgotten")
    text = "\n".join(export_lines("home", ZONE))
    assert "秘密" not in text
    assert "忘れた話" not in text
    assert "もとの言葉" in text


def test_more_than_a_page_comes_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackmem.exporting.BATCH", 3)
    for number in range(7):
        world.memory(f"話{number}。")
    kinds = [json.loads(line)["kind"] for line in export_lines("home", ZONE)]
    assert (kinds.count("turn"), kinds.count("memory")) == (7, 7)


def test_nothing_is_an_empty_export(world: World) -> None:
    assert list(export_lines("home", ZONE)) == []
