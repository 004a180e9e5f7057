"""An export taken back: names, uids, ids, states and links are kept."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.compare import candidates
from stackmem.database import open_database
from stackmem.exporting import export_lines
from stackmem.importing import Imported, Importer
from stackmem.models import Memory, MemoryEntity, Session, Turn
from tests.unit.test_importing import line
from tests.unit.world import ZONE, World, at, ingest, sources_of, states, summaries

MEMORY_ID = "mem_01K0000000000000000000000A"


def run(lines: list[str], owner: str = "home", clock: Any = None) -> Imported:
    return Importer(owner, ZONE, clock or at("25 10:00")).run(text.encode() for text in lines)


@pytest.fixture(scope="session")
def exported(migrated: Path, embedder: UseEmbedder, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What two sessions, remembered and compared, are exported as."""
    path = tmp_path_factory.mktemp("exported") / "stackmem.db"
    shutil.copy(migrated, path)
    with open_database(f"sqlite:///{path}").connection_context():
        ingest(World(embedder, OfflineChat()))
        assert "superseded" in {memory.status for memory in Memory.select()}
        return list(export_lines("home", ZONE))


@pytest.fixture
def elsewhere(exported: list[str], offline: World) -> World:
    """Another, empty home."""
    return offline


@pytest.fixture
def source(exported: list[str], offline: World) -> World:
    """The home where the export came from."""
    ingest(offline)
    assert list(export_lines("home", ZONE)) == exported
    return offline


def values(lines: list[str], kind: str) -> list[dict[str, Any]]:
    return [value for value in map(json.loads, lines) if value["kind"] == kind]


def without_ids(lines: list[str], kind: str) -> list[dict[str, Any]]:
    """Return the lines of a kind with turns named by their uid, and without what a new home may choose."""
    uid_of = {value["turn_id"]: value["uid"] for value in values(lines, "turn")}
    free = {"turn_id": 0, "owner": "", "origin": ""}
    return [
        value | free | {"source_turn_ids": [uid_of[number] for number in value.get("source_turn_ids", [])]}
        for value in values(lines, kind)
    ]


def test_a_round_trip_into_another_home_keeps_everything(exported: list[str], elsewhere: World) -> None:
    result = run(exported)
    assert result.faults == []
    assert (result.turns, result.memories) == (len(values(exported, "turn")), len(values(exported, "memory")))
    back = list(export_lines("home", ZONE))
    assert without_ids(back, "turn") == without_ids(exported, "turn")
    assert without_ids(back, "memory") == without_ids(exported, "memory")
    assert {value["origin"] for value in values(back, "memory")} == {"imported"}
    names = ("session_id", "session_seq", "device", "both_speakers", "started_at", "received_at")
    assert [[value[name] for name in names] for value in values(back, "session")] == [
        [value[name] for name in names] for value in values(exported, "session")
    ]


def test_a_round_trip_into_another_owner_of_another_home(exported: list[str], elsewhere: World) -> None:
    run(exported, owner="mari")
    back = list(export_lines("mari", ZONE))
    for kind in ("turn", "memory"):
        assert without_ids(back, kind) == without_ids(exported, kind)
    assert {value["owner"] for value in values(back, "memory")} == {"mari"}
    assert list(export_lines("home", ZONE)) == []
    assert {row.owner for row in MemoryEntity.select()} == {"mari"}


def test_turn_ids_are_mapped_where_they_are_taken(exported: list[str], elsewhere: World) -> None:
    for number in range(5):
        elsewhere.turn(f"前からある{number}", session="mine")
    run(exported)
    by_uid = {turn.uid: turn.id for turn in Turn.select()}
    uid_of = {value["turn_id"]: value["uid"] for value in values(exported, "turn")}
    for value in values(exported, "memory"):
        assert sources_of(value["memory_id"]) == [by_uid[uid_of[number]] for number in value["source_turn_ids"]]


def test_the_same_export_twice_adds_nothing(exported: list[str], elsewhere: World) -> None:
    run(exported)
    before = list(export_lines("home", ZONE))
    result = run(exported)
    assert (result.turns, result.memories, result.known) == (0, 0, len(values(exported, "turn")))
    assert list(export_lines("home", ZONE)) == before


def test_an_export_taken_back_where_it_came_from_changes_nothing(exported: list[str], source: World) -> None:
    result = run(exported)
    assert (result.turns, result.memories) == (0, 0)
    assert list(export_lines("home", ZONE)) == exported


def test_nothing_of_another_owner_in_the_same_store_is_touched(exported: list[str], source: World) -> None:
    run(exported, owner="other")
    assert list(export_lines("home", ZONE)) == exported
    assert values(list(export_lines("other", ZONE)), "memory") == []


def test_what_was_taken_back_is_searched_at_once_and_compared_with_nothing(
    exported: list[str], elsewhere: World
) -> None:
    run(exported)
    elsewhere.settle()
    assert set(elsewhere.points()) == {memory.id for memory in Memory.select()}
    found = elsewhere.recall.call("home", None, "search_memory", {"query": "猫の名前はモモ"})
    assert "モモ" in found.content["candidates"][0]["summary"]
    assert "pending" not in states()


def test_restored_memories_are_candidates_for_new_ones(exported: list[str], elsewhere: World) -> None:
    run(exported)
    new = elsewhere.memory("ユーザーの猫のモモは3歳だ。", entities=["モモ"], compared=False)
    elsewhere.indexed()
    assert candidates(new.window, [Memory.get_by_id(new.id)])


def test_the_order_of_the_lines_does_not_count(exported: list[str], elsewhere: World) -> None:
    run(exported[::-1])
    assert sorted(value["uid"] for value in values(list(export_lines("home", ZONE)), "turn")) == sorted(
        value["uid"] for value in values(exported, "turn")
    )
    for value in values(exported, "memory"):
        assert len(sources_of(value["memory_id"])) == len(value["source_turn_ids"])


# --- lines of a person's own ------------------------------------------------------------------------------------------


def turn(number: int = 1, **more: Any) -> dict[str, Any]:
    value = {"kind": "turn", "turn_id": number, "session_id": "s", "at": "2026-07-01T10:00:00+09:00"}
    return value | {"user": f"話{number}", "reply": "はい", **more}


def memory(**more: Any) -> dict[str, Any]:
    value = {"kind": "memory", "memory_id": MEMORY_ID, "topic": "猫", "summary": "猫がいる。"}
    return value | {"occurred_at": "2026-07-01T10:00:00+09:00", **more}


def take(*given: dict[str, Any]) -> Imported:
    return run([json.dumps(value, ensure_ascii=False) for value in given])


def test_the_least_a_line_may_hold_is_enough(world: World) -> None:
    result = take(turn(1), turn(2, state="open"), memory(source_turn_ids=[1, 7]))
    assert (result.turns, result.memories, result.faults) == (2, 1, [])
    first, second = Turn.select().order_by(Turn.id)
    assert (first.ordinal, second.ordinal, first.state, second.state) == (1, 2, "pending", "pending")
    assert len(first.uid) == 32
    row = Memory.get()
    assert (row.occurred_from, row.occurred_to, row.said_at) == (at("01 10:00"),) * 3
    assert (row.status, row.memory_type, row.origin, row.outdated) == ("active", "episode", "imported", True)
    assert sources_of(row) == [first.id]
    session = Session.get()
    assert (session.name, session.seq, session.ended_at is not None) == ("s", 1, True)
    assert take(turn(1), turn(2)).known == 2


def test_a_place_that_is_taken_is_given_to_the_next(world: World) -> None:
    take(turn(1, ordinal=1), turn(2, ordinal=1, uid="x"), turn(3, ordinal=9))
    assert [row.ordinal for row in Turn.select().order_by(Turn.id)] == [1, 2, 9]


@pytest.mark.parametrize("state", ["kept", "skipped", "failed"])
def test_a_settled_turn_stays_settled(world: World, state: str) -> None:
    take(turn(1, state=state))
    assert states() == [state]
    assert list(world.work.waiting(world.clock.now(), world.clock.now())) == []


def test_a_turn_that_was_pending_is_remembered(offline: World) -> None:
    take(turn(1, user="うちの猫の名前はモモだよ", state="pending"))
    offline.settle()
    assert states() == ["kept"]
    assert len(summaries()) == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (turn(1, at="昨日"), "is not a time in ISO 8601"),
        (turn(1, user=None), '"user"'),
        (turn(1, turn_id="x"), '"turn_id"'),
        (turn(1, session_id=""), '"session_id"'),
        (turn(1, session_seq=0), '"session_seq"'),
        (turn(1, session_seq=10**30), '"session_seq"'),
        (turn(1, ordinal=10**30), '"ordinal"'),
        (memory(memory_id="mem_1"), '"memory_id"'),
        (memory(memory_id="mem_01K0000000000000000000000U"), '"memory_id"'),
        (memory(status="forgotten"), '"status"'),
        (memory(memory_type="wish"), '"memory_type"'),
        (memory(occurred_at="x"), "is not a time"),
        (memory(said_at="x"), "is not a time"),
        (memory(entities="猫"), '"entities"'),
        (memory(revision=10**30), '"revision"'),
        ({"kind": "session"}, '"session_id"'),
        ({"kind": "session", "session_id": "s", "started_at": "x"}, "is not a time"),
    ],
)
def test_a_bad_line_is_named_and_the_others_count(world: World, value: dict[str, Any], reason: str) -> None:
    result = take(turn(8), value, turn(9))
    assert [fault["line"] for fault in result.faults] == [2]
    assert reason in result.faults[0]["reason"]
    assert Turn.select().count() == 2


def test_utterances_and_lines_of_an_export_may_stand_in_one_file(world: World) -> None:
    result = run([json.dumps(turn(1)), line("user", "やあ", session="s").decode()])
    assert (result.turns, result.faults) == (2, [])


def test_a_memory_never_rests_on_another_owners_turn(world: World) -> None:
    take(turn(1, uid="u"))
    lines = [json.dumps(value, ensure_ascii=False) for value in (turn(1, uid="u"), memory(source_turn_ids=[1]))]
    run(lines, owner="mari")
    assert Memory.get().owner == "mari"
    assert sources_of(MEMORY_ID) == []


def test_unknown_fields_are_passed_over(world: World) -> None:
    assert take(turn(1, mood="よい"), memory(colour="青")).faults == []
