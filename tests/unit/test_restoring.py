"""An export taken back: names, uids, ids, states and links are kept."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peewee import IntegrityError

from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.compare import candidates
from stackmem.database import open_database
from stackmem.exporting import export_lines
from stackmem.ids import memory_id, turn_uid
from stackmem.importing import Imported, Importer
from stackmem.models import Alias, ForgetRequest, Memory, MemoryEntity, Session, Turn
from stackmem.sessions import begin, session_for_turn
from stackmem.text import entity_key
from tests.scripted import say
from tests.unit.conftest import ScriptedModel
from tests.unit.test_importing import line
from tests.unit.world import ZONE, World, again, at, ingest, keep, segments, sources_of, states, summaries

MEMORY_ID = "mem_01K0000000000000000000000A"
ORIGINS = ("made", "edited", "merged", "imported")


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


def named(lines: list[str]) -> list[dict[str, Any]]:
    """Return the lines with turns named by their uid: their numbers are the only thing a new home chooses."""
    found = [json.loads(line) for line in lines]
    uid_of: dict[Any, str | None] = {value["turn_id"]: value["uid"] for value in found if value["kind"] == "turn"}
    uid_of[None] = None
    for value in found:
        if "turn_id" in value:
            value["turn_id"] = uid_of[value["turn_id"]]
        if "source_turn_ids" in value:
            value["source_turn_ids"] = [uid_of[number] for number in value["source_turn_ids"]]
    return found


def without_owner(lines: list[str]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "owner"} for line in named(lines)]


def test_a_round_trip_into_another_home_keeps_everything(exported: list[str], elsewhere: World) -> None:
    result = run(exported)
    assert result.faults == []
    assert (result.turns, result.memories) == (len(values(exported, "turn")), len(values(exported, "memory")))
    assert named(list(export_lines("home", ZONE))) == named(exported)
    assert {row.origin for row in Memory.select()} == {"made"}
    assert {row.imported for row in Session.select()} == {None}
    assert all(row.imported for row in Turn.select())


def alias_row(name: str, other_name: str, **more: Any) -> Alias:
    names = {"name": name, "other_name": other_name, "key": entity_key(name), "other_key": entity_key(other_name)}
    return Alias.create(owner="home", **names, **more)  # type: ignore[no-any-return]


def test_a_round_trip_keeps_every_field(world: World, new_database: Callable[[], Any]) -> None:
    world.session("居間", device="kitchen", ended=True, both_speakers=True)
    plain = world.turn(
        "ミケの爪を切ったのはいつ？", "先週だよ", session="居間", emotion="happy", action="nod", model="qwen3",
        searched=True, memory_ids=[MEMORY_ID], at=at("20 09:00"), received_at=at("20 09:01"),
    )  # fmt: skip
    world.turn("聞こえる？", "うまく話せないみたい", session="居間", degraded=True, state="skipped")
    blank = world.turn("", "", session="居間", settled=True, state="skipped")
    begin("home", "s-0123456789ab", now=world.clock.now(), named=False, ended_at=world.clock.now())
    world.session("ログ", imported="ログ#1", ended=True)
    world.turn("こんにちは", session="ログ", state="failed")
    world.turn("もうひとつ", session="ログ")
    old = world.memory_of([plain], "猫の名前はタマ。", entities=["タマ", "猫"])
    new = world.memory_of([plain, blank], "猫の名前はミケ。", entities=["ミケ"], memory_type="preference")
    Memory.update(status="superseded", superseded_by=new.id).where(Memory.id == old.id).execute()
    Memory.update(origin="edited", revision=2).where(Memory.id == new.id).execute()
    alias_row("ミケ", "猫", turn=plain.id, created_at=at("21 08:00"))
    alias_row("RTX-3050Ti", "ゲーム機", created_at=at("21 09:00"))
    ForgetRequest.create(owner="home", turn=plain.id, what="爪の話", created_at=at("21 10:00"))
    before = list(export_lines("home", ZONE))
    kinds = [json.loads(text)["kind"] for text in before]
    assert kinds == ["session"] * 3 + ["turn"] * 5 + ["memory"] * 2 + ["alias"] * 2 + ["forget_request"]
    with new_database().connection_context():
        world.turn("別の人", owner="mari")  # so that turns get other numbers
        assert run(before).faults == []
        back = list(export_lines("home", ZONE))
        assert back != before
        assert named(back) == named(before)
        assert run(before[::-1]) == run(back) == Imported(known=5)
        assert list(export_lines("home", ZONE)) == back


def test_a_turn_that_has_no_reply_yet_comes_back_pending(world: World, new_database: Callable[[], Any]) -> None:
    world.turn("ねえ、聞いて", "", state="open")
    world.turn("うん", "はい", state="kept")
    before = list(export_lines("home", ZONE))
    with new_database().connection_context():
        run(before)
        assert [(row.user, row.reply, row.state) for row in Turn.select().order_by(Turn.id)] == [
            ("ねえ、聞いて", "", "pending"), ("うん", "はい", "kept"),
        ]  # fmt: skip
        assert Session.get().ended_at == at("25 10:00")  # it was open: an imported session ends when it is read


def test_a_session_that_comes_back_is_followed_by_the_next_of_its_name(exported: list[str], elsewhere: World) -> None:
    run(exported)
    turn = elsewhere.say("ただいま", session="a")
    assert (turn.session.name, turn.session.seq) == ("a", 2)


def test_a_round_trip_into_another_owner_of_another_home(exported: list[str], elsewhere: World) -> None:
    run(exported, owner="mari")
    back = list(export_lines("mari", ZONE))
    assert without_owner(back) == without_owner(exported)
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


OTHERS = "to another owner of this store: an export can be taken back under its own owner, or into another home folder."


def test_what_another_owner_of_the_store_has_is_refused_and_said_once_a_kind(
    exported: list[str], source: World
) -> None:
    result = run(exported, owner="other")
    turns, memories = values(exported, "turn"), values(exported, "memory")
    first_turn, first_memory = (
        [json.loads(text)["kind"] for text in exported].index(kind) + 1 for kind in ("turn", "memory")
    )
    assert result == Imported(
        faults=[
            {"line": first_turn, "reason": f"{len(turns)} turns belong {OTHERS}"},
            {"line": first_memory, "reason": f"{len(memories)} memories belong {OTHERS}"},
        ]
    )
    assert list(export_lines("home", ZONE)) == exported
    assert list(export_lines("other", ZONE)) == []
    assert source.session("その人の", owner="other").seq == 1  # it may still begin its own


def test_what_is_ones_own_in_a_file_with_anothers_turns_is_taken(world: World) -> None:
    take(turn(1, uid="u"))
    mixed = [
        turn(1, uid="u"),
        turn(2, uid="v"),
        turn(3, uid="w", session_id="t"),
        {"kind": "session", "session_id": "空"},
    ]
    result = run([json.dumps(value, ensure_ascii=False) for value in mixed], owner="mari")
    assert result.faults == [{"line": 1, "reason": f"1 turn belongs {OTHERS}"}]
    assert (result.turns, result.known) == (2, 0)
    mine = Session.select().where(Session.owner == "mari").order_by(Session.name)
    assert [row.name for row in mine] == ["s", "t", "空"]


def test_a_log_whose_turns_another_owner_took_from_an_export_is_refused(world: World, new_database: Any) -> None:
    log = [line("user", "うちの猫はミケ", "01 10:00"), line("assistant", "かわいいね", "01 10:01")]
    Importer("home", ZONE, at("25 10:00")).run(log)
    before = list(export_lines("home", ZONE))
    with new_database().connection_context():
        run(before, owner="mari")
        result = Importer("home", ZONE, at("25 11:00")).run(log)
        assert result == Imported(faults=[{"line": 1, "reason": f"1 turn belongs {OTHERS}"}])


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


def test_a_session_that_another_talk_has_here_comes_under_the_next_sequence(
    exported: list[str], elsewhere: World
) -> None:
    live = elsewhere.say("ただいま", session="a")
    assert run(exported).faults == []
    assert elsewhere.say("何の話だっけ", session="a").session_id == live.session_id
    assert [turn.user for turn in Turn.select().where(Turn.session == live.session_id)] == ["ただいま", "何の話だっけ"]
    of_file = [value for value in values(exported, "turn") if value["session_id"] == "a"]
    came_back = Turn.select().join(Session).where(Session.name == "a", Session.seq == 2).order_by(Turn.ordinal)
    assert [(turn.uid, turn.ordinal) for turn in came_back] == [(v["uid"], v["ordinal"]) for v in of_file]
    before = list(export_lines("home", ZONE))
    assert run(exported).turns == run(before).turns == 0
    assert list(export_lines("home", ZONE)) == before


def test_a_live_talk_without_a_name_goes_on_while_an_export_comes_back(world: World) -> None:
    live = world.turn("ただいま", session="s-1")
    Session.update(named=False).execute()
    take({"kind": "session", "session_id": "s-2", "named": False, "imported": False}, turn(1, session_id="s-2"))
    now = world.clock.now()
    assert session_for_turn("home", None, None, now).id == live.session_id
    assert session_for_turn("home", "s-2", None, now).seq == 2


# --- lines of a person's own ------------------------------------------------------------------------------------------


def turn(number: int = 1, **more: Any) -> dict[str, Any]:
    value = {"kind": "turn", "turn_id": number, "session_id": "s", "at": "2026-07-01T10:00:00+09:00"}
    return value | {"user": f"話{number}", "reply": "はい", **more}


def memory(**more: Any) -> dict[str, Any]:
    value = {"kind": "memory", "memory_id": MEMORY_ID, "topic": "猫", "summary": "猫がいる。"}
    return value | {"occurred_at": "2026-07-01T10:00:00+09:00", **more}


def alias(*names: str, **more: Any) -> dict[str, Any]:
    return {"kind": "alias", "names": list(names), **more}


def request(number: int, **more: Any) -> dict[str, Any]:
    return {"kind": "forget_request", "turn_id": number, **more}


def take(*lines: dict[str, Any]) -> Imported:
    return run([json.dumps(value, ensure_ascii=False) for value in lines])


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
        (memory(memory_id="mem_81K0000000000000000000000A"), '"memory_id"'),
        (memory(origin="dreamt"), '"origin"'),
        (turn(1, session_id=" "), '"session_id"'),
        (turn(1, received_at="x"), "is not a time"),
        (turn(1, memory_ids="mem"), '"memory_ids"'),
        (request("x"), '"turn_id"'),
        (request(1, created_at="x"), "is not a time"),
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


@pytest.mark.parametrize(("given", "stored"), [({}, "imported"), *(({"origin": o}, o) for o in ORIGINS)])
def test_a_memory_is_of_the_origin_its_line_says(world: World, given: dict[str, Any], stored: str) -> None:
    assert take(memory(**given)).faults == []
    assert Memory.get().origin == stored


def test_a_link_to_a_memory_that_is_not_there_is_kept(offline: World) -> None:
    missing = MEMORY_ID[:-1] + "B"
    assert (
        take(turn(1, state="kept"), memory(source_turn_ids=[1], status="superseded", superseded_by=missing)).faults
        == []
    )
    assert Memory.get().superseded_by == missing
    offline.settle()
    assert offline.points() == {MEMORY_ID: "superseded"}
    assert json.loads(list(export_lines("home", ZONE))[-1])["superseded_by"] == missing


@pytest.mark.parametrize(("given", "stored"), [(True, "s#1 export"), (False, None)])
def test_a_session_is_imported_where_its_line_says_so(world: World, given: bool, stored: str | None) -> None:
    take(turn(1), {"kind": "session", "session_id": "s", "imported": given, "named": given})
    assert (Session.get().imported, Session.get().named) == (stored, given)


# --- forgotten --------------------------------------------------------------------------------------------------------


def forgot(*rows: Turn) -> None:
    """Blank turns, as forgetting with their words does."""
    ids = [row.id for row in rows]
    Turn.update(user="", reply="", settled=True, state="skipped").where(Turn.id.in_(ids)).execute()


def test_a_forgotten_memory_is_never_brought_back(exported: list[str], source: World) -> None:
    gone = Memory.select().where(Memory.status == "active").first()
    Memory.update(status="forgotten", topic="", summary="", entities=[]).where(Memory.id == gone.id).execute()
    result = run(exported)
    number = next(n for n, text in enumerate(exported, 1) if json.loads(text).get("memory_id") == gone.id)
    assert result.faults == [{"line": number, "reason": "1 memory was forgotten here and is not brought back."}]
    assert (result.turns, result.memories) == (0, 0)
    assert (again(gone).status, again(gone).summary) == ("forgotten", "")


def test_a_settled_turn_keeps_its_words_when_an_older_export_comes_back(world: World) -> None:
    lines = (turn(1, user="通帳は引き出しの中", state="kept"), turn(2, user="やあ"))
    take(*lines)
    row = Turn.get_by_id(1)
    forgot(row)
    assert take(*lines).known == 2
    assert (again(row).user, again(row).reply, again(row).state) == ("", "", "skipped")


def test_a_memory_all_of_whose_turns_are_settled_is_not_brought_back(world: World) -> None:
    lines = [turn(number, user=f"通帳は引き出しの{number}段目") for number in (1, 2, 3)]
    take(*lines)
    forgot(*Turn.select().where(Turn.id <= 2))
    ids = [MEMORY_ID[:-1] + digit for digit in "ABC"]
    result = take(
        *lines,
        memory(memory_id=ids[0], source_turn_ids=[1, 2]),
        memory(memory_id=ids[1], source_turn_ids=[2, 9]),
        memory(memory_id=ids[2], source_turn_ids=[2, 3]),
    )  # fmt: skip
    assert result.faults == [{"line": 4, "reason": "2 memories were forgotten here and are not brought back."}]
    assert [row.id for row in Memory.select()] == [ids[2]]


def test_a_memory_of_turns_that_come_settled_with_it_is_kept(world: World) -> None:
    lines = (turn(1, settled=True, state="kept"), memory(source_turn_ids=[1], origin="edited"))
    assert [(result.memories, result.faults) for result in (take(*lines), take(*lines))] == [(1, []), (0, [])]


# --- aliases and requests to forget -----------------------------------------------------------------------------------


def test_an_alias_has_the_smaller_key_first_and_is_there_once(world: World) -> None:
    for names in (("妹", "ハルカ"), ("ハルカ", "妹"), ("はるか", "妹")):
        assert take(alias(*names)).faults == []
    keys = sorted([entity_key("妹"), entity_key("ハルカ")])
    first = Alias.select().order_by(Alias.id).first()
    assert [first.key, first.other_key] == keys
    assert [entity_key(first.name), entity_key(first.other_name)] == keys
    assert (first.turn, first.created_at) == (None, at("25 10:00"))
    assert Alias.select().count() == 1 + (entity_key("はるか") != entity_key("ハルカ"))


@pytest.mark.parametrize(
    "names", [[], ["妹"], ["妹", ""], ["妹", "、。"], ["RTX 3050", "ｒｔｘ－３０５０"], ["a", "b", "c"], "妹", [1, 2]]
)
def test_an_alias_of_no_two_things_is_named(world: World, names: Any) -> None:
    (fault,) = take(turn(1), {"kind": "alias", "names": names}).faults
    assert (fault["line"], '"names' in fault["reason"]) == (2, True)
    assert Alias.select().count() == 0


def test_an_alias_or_request_of_an_unknown_turn_is_named_and_left_out(world: World) -> None:
    result = take(alias("妹", "ハルカ", turn_id=7), request(8), request(9), turn(1))
    assert result.faults == [
        {"line": 1, "reason": "1 alias was stated in a turn that is not here."},
        {"line": 2, "reason": "2 requests to forget were made in turns that are not here."},
    ]
    assert (Alias.select().count(), ForgetRequest.select().count(), Turn.select().count()) == (0, 0, 1)


def test_what_names_a_forgotten_turn_is_not_brought_back(world: World) -> None:
    lines = (turn(1, user="妹の名前はハルカ"), alias("妹", "ハルカ", turn_id=1), request(1, what="妹の名前"))
    take(lines[0])
    forgot(Turn.get())
    assert take(*lines).faults == [
        {"line": 2, "reason": "1 alias was forgotten here and is not brought back."},
        {"line": 3, "reason": "1 request to forget is done with here and is not brought back."},
    ]
    assert (Alias.select().count(), ForgetRequest.select().count()) == (0, 0)


def test_a_request_that_was_decided_here_stays_decided(world: World) -> None:
    lines = (turn(1), request(1, what="猫の話", created_at="2026-07-02T10:00:00+09:00"))
    take(*lines)
    row = ForgetRequest.get()
    assert (row.owner, row.what, row.is_open, row.created_at) == ("home", "猫の話", True, at("02 10:00"))
    ForgetRequest.update(is_open=False).execute()
    assert take(*lines).faults == []
    assert not again(row).is_open


# --- anything ---------------------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(
    ["", " ", "猫", "s", "2026-07-01", "2026-07-01T10:00:00+09:00", "0001-01-01", "9999-12-31T23:59:59-12:00",
     MEMORY_ID, "mem_ZZZZZZZZZZZZZZZZZZZZZZZZZZ", "superseded", "kept", "user", "assistant", "\x00\ud800"]
) | st.text(max_size=5)  # fmt: skip
NUMBERS = st.integers(-2, 3) | st.sampled_from([10**9, 2**31, 2**63, 10**40]) | st.floats()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
GOOD = [
    {"kind": "session", "session_id": "s", "started_at": "2026-07-01", "device": "d"},
    turn(1, uid="u", ordinal=1, memory_ids=[MEMORY_ID]),
    turn(2, session_id="猫", settled=True),
    memory(source_turn_ids=[1, 2], entities=["猫", "ミケ"], said_at="2026-07-01"),
    alias("猫", "ミケ", turn_id=1),
    request(1, what="猫", created_at="2026-07-01"),
    {"session": "s", "role": "user", "text": "やあ", "at": "2026-07-01T10:00:00+09:00"},
]


@st.composite
def strange(draw: st.DrawFn) -> dict[str, Any]:
    """A line of any kind, some of whose fields hold anything."""
    value = dict(draw(st.sampled_from(GOOD)))
    names = sorted({name for line in GOOD for name in line} - {"kind"}) + ["origin", "state", "revision", "session_seq"]
    for name in draw(st.lists(st.sampled_from(names), max_size=3)):
        value[name] = draw(VALUES)
    return value


@given(st.lists(strange() | st.dictionaries(TEXTS | st.just("kind"), VALUES, max_size=4), max_size=6))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_values_in_any_field_are_taken_or_named(world: World, lines: list[dict[str, Any]]) -> None:
    texts = [json.dumps(value) for value in lines]
    for owner in ("home", "mari"):
        result = run(texts, owner=owner)
        assert all(1 <= fault["line"] <= len(lines) and fault["reason"] for fault in result.faults)
        before = list(export_lines(owner, ZONE))
        again = run(texts, owner=owner)
        assert (again.turns, again.memories) == (0, 0)
        assert run(before, owner=owner).turns == 0
        assert list(export_lines(owner, ZONE)) == before


def test_an_import_that_breaks_off_leaves_nothing_behind(world: World) -> None:
    Session.create(  # in the way of the last session of the file, as nothing we know of would be
        owner="home", name="前から", seq=1, named=True, imported="t#1 export", started_at=at("01 10:00"),
        received_at=at("01 10:00"),
    )  # fmt: skip
    lines = [line("user", "やあ", session="log").decode(), json.dumps(turn(1)), json.dumps(turn(2, session_id="t"))]
    with pytest.raises(IntegrityError):
        run(lines)
    assert (Turn.select().count(), Session.select().count()) == (0, 1)


def test_two_sessions_of_a_file_stay_two_where_their_name_is_taken_here(world: World) -> None:
    world.turn("ここの話", session="robot")
    lines = [
        *(session_line_of("robot", seq) for seq in (1, 2)),
        *(turn_line_of(number, "robot", 1 + number // 3, f"話{number}") for number in range(1, 5)),
    ]
    Importer("home", ZONE, world.clock.now()).run(lines)
    placed = {turn.user: turn.session.seq for turn in Turn.select()}
    assert placed == {"ここの話": 1, "話1": 2, "話2": 2, "話3": 3, "話4": 3}


def session_line_of(name: str, seq: int) -> bytes:
    return json.dumps({"kind": "session", "session_id": name, "session_seq": seq}).encode()


def turn_line_of(number: int, name: str, seq: int, user: str, **more: Any) -> bytes:
    line = {
        "kind": "turn", "turn_id": number, "session_id": name, "session_seq": seq, "at": "2026-07-01T10:00:00+09:00",
        "user": user, "reply": "うん", **more,
    }  # fmt: skip
    return json.dumps(line, ensure_ascii=False).encode()


def test_words_that_an_import_brought_can_be_said_again(world: World, model: ScriptedModel) -> None:
    """The live turn would get the very uid that the imported one has: another owner's import may have put it there."""
    model.script = lambda _: say("うん")
    for owner in ("home", "mari"):
        name = f"robot-{owner}"
        uid = turn_uid("home", name, 1, 1, "ありがとう")
        Importer(owner, ZONE, world.clock.now()).run([turn_line_of(1, "x", 1, "ありがとう", uid=uid)])
        turn = world.say("ありがとう", session=name)
        assert (turn.user, turn.reply) == ("ありがとう", "うん")
        assert turn.uid != uid


def test_an_id_that_another_owner_imported_keeps_no_memory_from_being_made(world: World, model: ScriptedModel) -> None:
    turn = world.turn("猫はミケだよ")
    Session.update(ended_at=world.clock.now()).execute()
    stolen = {
        "kind": "memory", "memory_id": memory_id(turn.at, "home", [turn.uid]), "topic": "x", "summary": "横取り。",
        "occurred_at": "2026-07-01T10:00:00+09:00",
    }  # fmt: skip
    Importer("mari", ZONE, world.clock.now()).run([json.dumps(stolen, ensure_ascii=False).encode()])
    model.script = lambda _: segments(keep([1], "猫はミケ。"))
    world.settle()
    assert summaries() == ["猫はミケ。"]
    assert summaries("mari") == ["横取り。"]


def test_a_settled_turn_is_never_looked_at(world: World) -> None:
    Importer("home", ZONE, world.clock.now()).run([turn_line_of(1, "x", 1, "忘れたこと", settled=True)])
    assert [turn.state for turn in Turn.select()] == ["skipped"]


@pytest.mark.parametrize(
    "more", [{"summary": ""}, {"summary": "あ" * 2001}, {"topic": "あ" * 201}, {"entities": ["あ" * 81]}]
)
def test_a_memory_of_no_sensible_size_is_named_and_skipped(world: World, more: dict[str, Any]) -> None:
    odd = {
        "kind": "memory", "memory_id": memory_id(world.clock.now(), "home", ["x"]), "topic": "x", "summary": "y",
        "occurred_at": "2026-07-01", **more,
    }  # fmt: skip
    result = Importer("home", ZONE, world.clock.now()).run([json.dumps(odd, ensure_ascii=False).encode()])
    assert [fault["line"] for fault in result.faults] == [1]
    assert summaries() == []
