"""Forgetting: gone from every search at once, from every table after a day, and brought back by nothing."""

import json
from datetime import timedelta
from typing import Any

import pytest

from stackmem.answers import Decision
from stackmem.compare import Sides, apply_decisions
from stackmem.editing import edit
from stackmem.exceptions import NotFound
from stackmem.exporting import export_lines
from stackmem.forgetting import PURGE_AFTER, forget, purge_due, undo
from stackmem.importing import Importer
from stackmem.making import inherit, supersede
from stackmem.models import Alias, ForgetRequest, Job, Memory, MemoryVector, Session, ToolTrace, Turn, proxy
from stackmem.rebuilding import rebuild_from_turns
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, World, again, ingest, keep, segments, sources_of, states, summaries

SECRET = "合言葉は紫キャベツ42"


def found(world: World, query: str, owner: str = "home") -> list[str]:
    """Return the summaries that the robot's tool finds."""
    result = world.recall.call(owner, None, "search_memory", {"query": query})
    return [candidate["summary"] for candidate in result.content["candidates"]]


def stored(world: World) -> str:
    """Return every value of every table, and all that the index holds, as one text."""
    tables = [table for table in proxy.obj.get_tables() if not table.startswith("sqlite_")]
    rows = [proxy.execute_sql(f'SELECT * FROM "{table}"').fetchall() for table in tables]
    assert world.index.current is not None
    points = [(key, json.dumps(payload, ensure_ascii=False)) for key, payload in world.index.current.scan()]
    return repr(rows) + repr(points)


def test_what_is_forgotten_is_not_found_from_the_same_moment_on(world: World) -> None:
    memory = world.memory(SECRET, entities=["紫キャベツ"])
    world.memory("猫の名前はミケ。")
    world.indexed()
    assert SECRET in found(world, "合言葉")
    done = forget("home", [memory.id], world.clock.now())
    assert done.memory_ids == [memory.id]
    assert done.purge_at == world.clock.now() + timedelta(hours=24)
    assert memory.id in world.points()  # the point is still there: the rows say no
    assert SECRET not in found(world, "合言葉")
    assert found(world, "猫の名前") == ["猫の名前はミケ。"]
    assert world.recall.call("home", None, "read_memory_source", {"memory_ids": [memory.id]}).content["count"] == 0
    world.settle()
    assert memory.id not in world.points()
    assert SECRET not in "".join(line for line in export_lines("home", ZONE) if '"memory"' in line)


def test_undoing_brings_it_back_until_it_is_purged(world: World) -> None:
    old = world.memory("PCは12万円。", status="superseded")
    new = world.memory("PCは13万円。")
    Memory.update(superseded_by=new.id).where(Memory.id == old.id).execute()
    world.indexed()
    before = world.points()
    assert set(forget("home", [new.id], world.clock.now()).memory_ids) == {old.id, new.id}  # its history goes with it
    world.settle()
    assert world.points() == {}
    assert set(undo("home", [new.id])) == {old.id, new.id}
    world.settle()
    assert world.points() == before
    assert (again(new).status, again(old).status, again(old).superseded_by) == ("active", "superseded", new.id)
    with pytest.raises(NotFound, match="is not forgotten"):
        undo("home", [new.id])


def test_forgetting_an_old_version_leaves_the_one_that_replaced_it(world: World) -> None:
    old, new = world.memory("PCは12万円。", status="superseded"), world.memory("PCは13万円。")
    Memory.update(superseded_by=new.id).where(Memory.id == old.id).execute()
    forget("home", [old.id], world.clock.now(), at_once=True)
    purge_due(world.clock.now())
    assert summaries() == ["PCは13万円。"]
    assert again(old).summary == ""


def test_the_sweep_purges_after_a_day_and_leaves_a_tombstone(world: World) -> None:
    memory = world.memory(SECRET, entities=["紫キャベツ"])
    turn_id = sources_of(memory)[0]
    world.indexed()
    forget("home", [memory.id], world.clock.now())
    world.clock.advance(hours=23, minutes=59)
    world.work.sweep()
    assert again(memory).summary == SECRET
    world.clock.advance(minutes=2)
    world.work.sweep()
    tombstone = again(memory)
    assert (tombstone.status, tombstone.owner, tombstone.summary, tombstone.topic) == ("forgotten", "home", "", "")
    assert tombstone.entities == tombstone.entity_keys == []
    assert tombstone.occurred_at == tombstone.said_at == tombstone.forgotten_at
    assert sources_of(memory) == []
    assert not MemoryVector.select().exists()
    assert Turn.get_by_id(turn_id).user == SECRET  # what was said stays, unless that is asked for too
    assert states() == ["skipped"]
    with pytest.raises(NotFound, match="There is no memory"):
        undo("home", [memory.id])
    with pytest.raises(NotFound, match="There is no memory"):
        forget("home", [memory.id], world.clock.now())


def test_the_files_are_written_anew_after_a_purge(world: World) -> None:
    memory = world.memory(SECRET)
    world.indexed()
    forget("home", [memory.id], world.clock.now(), at_once=True)
    assert purge_due(world.clock.now()) == 1
    assert purge_due(world.clock.now()) == 0
    (job,) = Job.select()
    assert (job.kind, job.state) == ("scrub", "waiting")
    before = world.index.current
    world.settle()
    assert again(job).state == "done"
    assert world.index.current is not before  # a new generation


def test_with_its_words_nothing_of_it_is_left_anywhere(world: World) -> None:
    memory = world.memory(SECRET, "ねえ、合言葉は紫キャベツ42だよ", entities=["紫キャベツ"], topic="合言葉")
    other = world.memory("ユーザーには妹がいる。", "妹がいるんだ")
    source = Turn.get_by_id(sources_of(memory)[0])
    Alias.insert(
        owner="home", key="レッドキャベツ", other_key="紫キャベツ", name="レッドキャベツ", other_name="紫キャベツ",
        turn=source.id, created_at=world.clock.now(),
    ).execute()  # fmt: skip
    asked = world.turn("合言葉って紫キャベツいくつ？", "紫キャベツ42だよ", session="later", searched=True)
    Turn.update(memory_ids=[memory.id, other.id]).where(Turn.id == asked.id).execute()
    small = world.turn("妹の話なんだけど", "妹さん、元気？", session="later", searched=True, memory_ids=[memory.id])
    for turn, query in ((asked, "紫キャベツの数"), (small, "妹")):
        hits = [{"memory_id": memory.id, "source_turn_ids": [source.id]}, {"memory_id": other.id}]
        ToolTrace.create(
            turn=turn, ordinal=0, tool="search_memory", arguments={"query": query}, hits=hits, note="紫キャベツ",
            duration_ms=1.0,
        )  # fmt: skip
    wish = world.turn("紫キャベツの話は忘れて", "わかった", session="later")
    ForgetRequest.create(owner="home", turn=wish.id, what="紫キャベツの話", created_at=world.clock.now())
    world.indexed()
    assert "キャベツ" in stored(world)
    forget("home", [memory.id], world.clock.now(), turns=True, at_once=True)
    purge_due(world.clock.now())
    world.settle()
    assert "キャベツ" not in stored(world)
    assert "42" not in json.dumps([row.arguments for row in ToolTrace.select()])
    assert (again(source).user, again(source).reply) == ("", "")
    assert (again(small).user, again(small).reply) == ("妹の話なんだけど", "妹さん、元気？")  # repeats nothing of it
    assert [hit["memory_id"] for row in ToolTrace.select() for hit in row.hits] == [other.id, other.id]
    assert summaries() == ["ユーザーには妹がいる。"]
    assert not ForgetRequest.select().where(ForgetRequest.is_open).exists()


def test_another_memory_loses_the_words_as_a_source_but_stays(world: World, model: ScriptedModel) -> None:
    shared = world.turn("PCは13万円で、猫はミケ", state="kept")
    more = world.turn("ミケは3歳", state="kept")
    pc = world.memory_of([shared], "PCは13万円。")
    cat = world.memory_of([shared, more], "猫のミケは3歳。")
    world.indexed()
    forget("home", [pc.id], world.clock.now(), turns=True, at_once=True)
    purge_due(world.clock.now())
    world.settle()
    assert sources_of(cat) == [more.id]
    assert again(cat).summary == "猫のミケは3歳。"
    assert "13万円" not in stored(world)
    assert world.points() == {cat.id: "active"}


def test_a_rebuild_from_the_turns_brings_nothing_back(offline: World) -> None:
    ingest(offline)
    memory = next(row for row in Memory.select().where(Memory.owner == "home") if "モモ" in row.summary)
    others = sorted(row.id for row in Memory.select().where(Memory.owner == "home", Memory.id != memory.id))
    forget("home", [memory.id], offline.clock.now(), at_once=True)
    purge_due(offline.clock.now())
    offline.settle()
    for _ in range(2):
        rebuild_from_turns(offline.remembering)
        offline.settle()
        assert not [row for row in Memory.select().where(Memory.owner == "home") if "モモ" in row.summary]
        left = Memory.select().where(Memory.owner == "home", Memory.status != "forgotten")
        assert sorted(row.id for row in left) == others
        assert memory.id not in offline.points()


def test_what_shares_turns_with_it_stays_through_a_rebuild(world: World, model: ScriptedModel) -> None:
    turns = [world.turn(text) for text in ("PCは13万円で、猫はミケ", "ミケは3歳", "妹は大阪")]
    Session.update(ended_at=world.clock.now()).where(Session.id == turns[0].session_id).execute()
    model.script = lambda _: segments(
        keep([1], "PCは13万円。"), keep([1, 2], "猫のミケは3歳。"), keep([3], "妹は大阪。")
    )
    world.settle()
    pc = Memory.get(Memory.summary == "PCは13万円。")
    forget("home", [pc.id], world.clock.now())
    model.script = lambda _: segments(keep([1], "妹は大阪に住む。"))  # only the third turn is shown
    rebuild_from_turns(world.remembering)
    assert [len(prompt["turns"]) for prompt in model.prompts][-1] == 1
    assert sorted(summaries()) == ["妹は大阪に住む。", "猫のミケは3歳。"]
    assert again(pc).status == "forgotten"


@pytest.mark.parametrize("turns", [False, True])
def test_no_import_brings_it_back(offline: World, turns: bool) -> None:
    log = [
        {"session": "x", "at": "2026-07-01T10:00:00+09:00", "role": "user", "text": "うちの猫の名前はモモだよ"},
        {"session": "x", "at": "2026-07-01T10:00:05+09:00", "role": "assistant", "text": "かわいいね"},
    ]
    lines = [json.dumps(line, ensure_ascii=False).encode() for line in log]
    Importer("home", ZONE, offline.clock.now()).run(lines)
    offline.settle()
    (memory,) = Memory.select()
    exported = [line.encode() for line in export_lines("home", ZONE)]
    forget("home", [memory.id], offline.clock.now(), turns=turns)
    for hours in (1, 24):  # before and after its words are gone
        offline.clock.advance(hours=hours)
        offline.work.sweep()
        for file in (lines, exported):
            Importer("home", ZONE, offline.clock.now()).run(file)
            offline.work.sweep()
            offline.settle()
            assert summaries() == []
            assert Turn.select().count() == 1
            assert offline.points() == {}
    assert Turn.get().user == ("" if turns else "うちの猫の名前はモモだよ")


def test_owners_cannot_forget_or_bring_back_each_others(world: World) -> None:
    hers = world.memory("秘密。", owner="mari")
    for act in (lambda: forget("home", [hers.id], world.clock.now()), lambda: undo("home", [hers.id])):
        with pytest.raises(NotFound, match="There is no memory"):
            act()
    mine = world.memory("自分の。")
    with pytest.raises(NotFound):
        forget("home", [mine.id, hers.id], world.clock.now())
    assert again(mine).status == again(hers).status == "active"  # all or nothing


def test_forgetting_again_can_only_make_it_sooner_and_more(world: World) -> None:
    memory = world.memory(SECRET)
    forget("home", [memory.id], world.clock.now(), turns=True)
    world.clock.advance(hours=1)
    forget("home", [memory.id], world.clock.now())
    assert again(memory).purge_at == world.clock.now() - timedelta(hours=1) + PURGE_AFTER
    assert again(memory).purge_turns
    forget("home", [memory.id], world.clock.now(), at_once=True)
    assert purge_due(world.clock.now()) == 1
    assert Turn.get().user == ""


def test_a_blanked_turn_is_not_shown_to_the_model(world: World, model: ScriptedModel) -> None:
    memory = world.memory(SECRET, session="s")
    forget("home", [memory.id], world.clock.now(), turns=True, at_once=True)
    purge_due(world.clock.now())
    model.script = lambda _: segments()
    world.say("こんにちは", session="s")
    assert [message["role"] for message in model.asked[0]["messages"]] == ["system", "user"]


def test_a_neighbour_that_is_forgotten_is_not_read_out(world: World) -> None:
    kept = world.memory("猫はミケ。", "猫はミケだよ", session="s")
    gone = world.memory(SECRET, f"{SECRET}だよ", session="s")
    forget("home", [gone.id], world.clock.now())
    read: Any = world.recall.call("home", None, "read_memory_source", {"memory_ids": [kept.id], "around": 3})
    assert [turn["user"] for turn in read.content["memories"][0]["sources"]] == ["猫はミケだよ"]


def test_a_reply_from_its_turns_when_they_were_no_memory_yet_goes_too(world: World) -> None:
    memory, other = world.memory(SECRET, f"{SECRET}だよ"), world.memory("猫はミケ。", "猫はミケだよ")
    asked = [world.turn("なんだっけ？", reply, session="later", searched=True) for reply in (SECRET, "猫はミケだよね")]
    for turn, of in zip(asked, (memory, other), strict=True):
        hits = [{"memory_id": None, "source_turn_ids": sources_of(of)}]
        ToolTrace.create(
            turn=turn, ordinal=0, tool="search_memory", arguments={"query": turn.reply}, hits=hits, duration_ms=1.0
        )
    forget("home", [memory.id], world.clock.now(), turns=True, at_once=True)
    purge_due(world.clock.now())
    assert "紫キャベツ" not in stored(world)
    assert [again(turn).reply for turn in asked] == ["", "猫はミケだよね"]
    assert [row.hits for row in ToolTrace.select().order_by(ToolTrace.id)] == [[], hits]


def test_forgotten_while_a_rebuild_asks_the_model_it_is_not_made_again(world: World, model: ScriptedModel) -> None:
    turns = [world.turn(text, session=text) for text in (f"{SECRET}だよ", "猫はミケだよ")]
    Session.update(ended_at=world.clock.now()).execute()
    model.script = lambda _: segments(keep([1], "覚えたこと。"))
    world.settle()
    secret = Memory.get(Memory.id.in_([row.memory_id for row in turns[0].memories]))
    model.script = lambda _: segments(keep([1], f"{SECRET}。"), keep([1], f"{SECRET}と言った。"))
    asked = len(model.asked)

    def meanwhile(done: int, _: int) -> None:
        if done == 2 and secret.status == "active":
            forget("home", [secret.id], world.clock.now(), turns=True, at_once=True)
            purge_due(world.clock.now())
            secret.status = "forgotten"
            model.script = lambda _: segments(keep([1], "もう一度聞かれた。"))

    rebuild_from_turns(world.remembering, meanwhile)
    assert len(model.asked) == asked + 2  # what was answered is not asked again
    assert [row.turn_id for row in again(secret).sources] == []
    assert {turn for row in Memory.select().where(Memory.status == "active") for turn in sources_of(row)} == {
        turns[1].id
    }
    assert states(*turns) == ["skipped", "kept"]


def test_forgotten_while_the_model_compares_it_replaces_nothing(world: World) -> None:
    old, new = world.memory("PCは12万円。", entities=["PC"]), world.memory("PCは13万円。", entities=["PC"])
    forget("home", [new.id], world.clock.now(), at_once=True)
    purge_due(world.clock.now())
    for decision in ("supersedes", "repeats"):
        given = Decision(id="N1", decision=decision, known="K1", keep="PCは青い。")
        apply_decisions([given], Sides({"N1": new}, {"K1": old}, {(new.id, old.id)}))
    assert summaries() == ["PCは12万円。"]
    assert again(new).summary == ""
    assert sources_of(new) == []


def test_forgotten_while_it_is_embedded_no_vector_of_it_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, other = world.memory(SECRET), world.memory("猫はミケ。")
    embed = world.index.embedder.embed_documents

    def meanwhile(texts: list[str]) -> Any:
        forget("home", [memory.id], world.clock.now(), at_once=True)
        purge_due(world.clock.now())
        monkeypatch.undo()
        return embed(texts)

    monkeypatch.setattr(world.index.embedder, "embed_documents", meanwhile)
    world.settle()
    assert {row.memory_id for row in MemoryVector.select()} == {other.id}
    assert world.points() == {other.id: "active"}


def test_undoing_soon_after_does_not_wait_for_a_hint_that_was_taken(world: World) -> None:
    memory = world.memory(SECRET)
    world.indexed()
    forget("home", [memory.id], world.clock.now())
    world.work.sweep()
    for hint in world.queue.taken():
        world.work.run(hint)
    undo("home", [memory.id])
    assert world.work.sweep() == 1


def test_other_words_of_a_turn_that_recalled_it_stay(world: World) -> None:
    memory = world.memory("PCは12万円。", "PCを12万円で買ったよ", entities=["PC"])
    later = world.turn(
        "PCはいくらだったかな？そうそう、会社の株を田中さんに譲った", "PCは12万円だよ", session="later", searched=True,
        memory_ids=[memory.id], state="kept",
    )  # fmt: skip
    other = world.memory_of([later], "ユーザーは会社の株を田中さんに譲った。")
    hits = [{"memory_id": memory.id, "source_turn_ids": sources_of(memory)}]
    ToolTrace.create(turn=later, ordinal=0, tool="search_memory", arguments={"query": "PC"}, hits=hits, duration_ms=1.0)
    world.indexed()
    forget("home", [memory.id], world.clock.now(), turns=True, at_once=True)
    purge_due(world.clock.now())
    assert (again(later).user[:2], again(later).reply) == ("PC", "")
    assert again(other).outdated  # its words changed: its vectors are made again
    world.settle()
    assert summaries() == ["ユーザーは会社の株を田中さんに譲った。"]


def test_a_sentence_that_was_handed_on_goes_and_comes_back_with_it(world: World, model: ScriptedModel) -> None:
    old = world.memory("前は秘密のPCだった。", entities=["PC"])
    new = world.memory("PCは20万円。", entities=["PC"])
    supersede(old, new.id)
    inherit(again(new), again(old), "前は秘密のPCだった。")
    assert summaries() == ["PCは20万円。前は秘密のPCだった。"]
    forget("home", [old.id], world.clock.now())
    assert summaries() == ["PCは20万円。"]
    undo("home", [old.id])
    assert summaries() == ["PCは20万円。前は秘密のPCだった。"]
    forget("home", [old.id], world.clock.now(), turns=True, at_once=True)
    purge_due(world.clock.now())
    world.settle()
    assert "秘密" not in stored(world)


def test_an_old_version_comes_back_with_what_replaced_it(world: World) -> None:
    old, new = world.memory("PCは12万円。", status="superseded"), world.memory("PCは13万円。")
    Memory.update(superseded_by=new.id).where(Memory.id == old.id).execute()
    forget("home", [new.id], world.clock.now())
    assert set(undo("home", [old.id])) == {old.id, new.id}
    assert summaries() == ["PCは13万円。"]


def test_what_was_restored_goes_through_an_export_and_a_later_correction_too(
    world: World, new_database: Any, embedder: Any, chat: Any
) -> None:
    memory = world.memory("PCは12万円。")
    forget("home", [memory.id], world.clock.now())
    undo("home", [memory.id])
    first = [line.encode() for line in export_lines("home", ZONE)]
    new = edit("home", memory.id, {"summary": "PCは13万円。"}, world.clock.now(), ZONE)
    second = [line.encode() for line in export_lines("home", ZONE)]
    with new_database().connection_context():
        for lines, expected in ((first, ["PCは12万円。"]), (second, ["PCは13万円。"]), (first, ["PCは13万円。"])):
            result = Importer("home", ZONE, world.clock.now()).run(lines)
            assert result.faults == []
            assert summaries() == expected
        assert Memory.get(Memory.status == "superseded").superseded_by == new.id
