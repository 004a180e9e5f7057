"""The JSON shapes of spec/json.md."""

import json

from stackmem import shapes
from stackmem.models import ToolTrace
from tests.unit.world import ZONE, World, at

MEMORY = [
    "memory_id", "topic", "summary", "entities", "memory_type", "occurred_at", "source_turn_ids", "status",
]  # fmt: skip


def test_a_turns_answer_has_every_field(world: World) -> None:
    turn = world.turn(
        "やあ", "うん", emotion="happy", action="nod", model="offline", searched=True, memory_ids=["mem_x"]
    )
    assert shapes.turn_answer(turn) == {
        "turn_id": turn.id, "session_id": "s", "text": "やあ", "reply": "うん", "emotion": "happy", "action": "nod",
        "audio_url": None, "searched": True, "memory_ids": ["mem_x"], "degraded": False, "model": "offline",
    }  # fmt: skip


def test_a_turn_with_its_trace_has_every_field(world: World) -> None:
    turn = world.turn("やあ", at=at("01 10:00"), model_calls=2, durations_ms={"model": 1.5})
    for ordinal, tool in ((1, "read_memory_source"), (0, "search_memory")):
        ToolTrace.create(turn=turn, ordinal=ordinal, tool=tool, arguments={"query": "猫"}, duration_ms=2.5)
    shown = shapes.turn_with_trace(turn, ZONE)
    assert shapes.turn_answer(turn).items() <= shown.items()
    assert (shown["state"], shown["at"], shown["session_seq"]) == ("pending", "2026-07-01T10:00:00+09:00", 1)
    assert [call["tool"] for call in shown["trace"]["calls"]] == ["search_memory", "read_memory_source"]
    assert shown["trace"]["calls"][0] == {
        "tool": "search_memory", "arguments": {"query": "猫"}, "hits": [], "relaxed": [], "note": "",
        "duration_ms": 2.5,
    }  # fmt: skip
    assert (shown["trace"]["model_calls"], shown["trace"]["durations_ms"]) == (2, {"model": 1.5})
    json.dumps(shown)


def test_a_memory_has_every_field_in_the_designs_order(world: World) -> None:
    memory = world.memory("猫がいる。", "一", "二", entities=["モモ"], said=at("02 10:00"), occurred_at="2026-07-01")
    (line,) = shapes.memory_lines([memory], ZONE)
    assert [name for name in line if name in MEMORY] == MEMORY
    assert (line["source_turn_ids"], line["superseded_by"], line["status"]) == ([1, 2], None, "active")
    assert (line["occurred_at"], line["occurred_from"], line["occurred_to"], line["said_at"]) == (
        "2026-07-01T00:00:00+09:00", "2026-07-01T00:00:00+09:00", "2026-07-01T23:59:59+09:00",
        "2026-07-02T10:00:00+09:00",
    )  # fmt: skip
    assert shapes.memory_lines([], ZONE) == []


def test_a_session_shows_its_name_and_sequence(world: World) -> None:
    line = shapes.session_line(world.session("居間"), ZONE)
    assert (line["session_id"], line["session_seq"], line["ended_at"], line["imported"]) == ("居間", 1, None, False)
    assert line["started_at"] == "2026-07-23T10:00:00+09:00"
