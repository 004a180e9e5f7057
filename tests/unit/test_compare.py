"""New memories against older ones: a changed value supersedes, a repetition is absorbed, else both stay."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stackmem.answers import Segment
from stackmem.compare import KNOWN, KNOWN_IN_CALL, candidates, next_uncompared, sides
from stackmem.exceptions import Conflict
from stackmem.making import make_memory
from stackmem.models import Lease, Memory, Owner, Window
from stackmem.ports import Hint
from tests.scripted import Answer, content, error
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, World, again, at, decisions, sources_of, summaries

OLD, NEW = "ユーザーは富士通のPCを12万円で買った。", "ユーザーの富士通のPCは13万円だった。"
CAT = "ユーザーの猫の名前はモモだ。"
BAD = content("わかりました！")


def compare(world: World, owner: str = "home") -> int:
    """Index what waits, then have a worker compare."""
    world.indexed(owner)
    return world.comparing.compare(owner)


def pair(world: World, owner: str = "home", **more: Any) -> tuple[Memory, Memory]:
    """An older memory, and a newer one that waits for its comparison."""
    old = world.memory(OLD, entities=["富士通"], said=at("01 10:00"), owner=owner)
    said = more.pop("said", at("02 10:00"))
    return old, world.memory(NEW, entities=["富士通"], said=said, compared=False, owner=owner, **more)


# --- whether to ask --------------------------------------------------------------------------------------------------


def test_without_candidates_no_call_is_made(world: World, model: ScriptedModel) -> None:
    world.memory(CAT, entities=["モモ"])
    window = world.memory("ユーザーは明日、歯医者へ行く。", entities=["歯医者"], compared=False).window_id
    assert compare(world) == 1
    assert model.asked == []
    assert Window.get_by_id(window).compared
    assert len(summaries()) == 2


def test_the_first_memory_of_an_owner_costs_no_call(world: World, model: ScriptedModel) -> None:
    world.memory(CAT, compared=False)
    assert compare(world) == 1
    assert model.asked == []


def test_a_shared_name_makes_one_call_whatever_its_spelling(world: World, model: ScriptedModel) -> None:
    world.memory("全然別のことを話した。", entities=["Ｆｕｊｉｔｓｕ"])
    world.memory("昨日は晴れだった。", entities=["fujitsu"], compared=False)
    model.script = [decisions(("N1", "new", None))]
    compare(world)
    assert len(model.asked) == 1


def test_a_near_memory_makes_one_call_without_any_shared_name(world: World, model: ScriptedModel) -> None:
    old = world.memory(OLD)
    new = world.memory(NEW, compared=False)
    model.script = [decisions(("N1", "new", None))]
    compare(world)
    assert again(new).neighbours == [old.id]
    assert model.prompts[0]["known"][0]["summary"] == OLD


def test_all_new_memories_of_a_window_are_compared_in_one_call(world: World, model: ScriptedModel) -> None:
    world.memory(OLD, entities=["富士通"])
    world.memory(CAT, entities=["モモ"])
    turns = [world.turn(text, session="now", state="kept") for text in ("PC", "猫")]
    first = world.memory_of(turns[:1], NEW, entities=["富士通"], compared=False)
    second = world.memory_of(turns[1:], "ユーザーの猫のモモは3歳だ。", entities=["モモ"], compared=False)
    Memory.update(window=first.window_id).where(Memory.id == second.id).execute()
    Window.delete().where(Window.id == second.window_id).execute()
    model.script = [decisions(("N1", "new", None), ("N2", "new", None))]
    assert compare(world) == 1
    (prompt,) = model.prompts
    assert {memory["summary"] for memory in prompt["new"]} == {NEW, "ユーザーの猫のモモは3歳だ。"}
    assert {memory["summary"] for memory in prompt["known"]} == {OLD, CAT}
    assert [memory["id"] for memory in prompt["new"] + prompt["known"]] == ["N1", "N2", "K1", "K2"]


def test_the_model_sees_labels_and_dates_and_no_ids(world: World, model: ScriptedModel) -> None:
    old, new = pair(world)
    model.script = [decisions(("N1", "new", None))]
    compare(world)
    assert model.prompts[0]["new"] == [
        {
            "id": "N1", "topic": NEW[:8], "summary": NEW, "memory_type": "episode", "entities": ["富士通"],
            "said_at": "2026-07-02T10:00:00+09:00",
        }
    ]  # fmt: skip
    assert old.id not in json.dumps(model.asked)
    assert new.id not in json.dumps(model.asked)
    assert "supersedes" in model.asked[0]["messages"][0]["content"]
    assert "富士通" in model.asked[0]["messages"][1]["content"]


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ({"occurred_at": "2026-07-01"}, "2026-07-01"),
        ({"occurred_from": "2026-07-01", "occurred_to": "2026-07-03"}, "2026-07-01/2026-07-03"),
        ({"occurred_at": "2026-06"}, "2026-06-01/2026-06-30"),
        ({"occurred_at": "2026-07-01T10:00:00"}, None),
    ],
)
def test_the_model_sees_the_days_a_memory_is_about(
    world: World, model: ScriptedModel, times: dict[str, str], shown: str | None
) -> None:
    world.memory(OLD, entities=["富士通"])
    world.memory(NEW, entities=["富士通"], compared=False, **times)
    model.script = [decisions()]
    compare(world)
    assert model.prompts[0]["new"][0].get("occurred") == shown


def test_a_correction_keeps_what_only_the_old_memory_held(world: World, model: ScriptedModel) -> None:
    old = world.memory("ユーザーは富士通の黒いPCを12万円で買った。", entities=["富士通", "PC"])
    new = world.memory("PCは13万円だった。", entities=["PC"], compared=False)
    kept = "PCは富士通の黒いものだ。"
    decided = {"id": "N1", "decision": "supersedes", "known": "K1", "keep": kept}
    model.script = [content(json.dumps({"decisions": [decided]}))]
    compare(world)
    assert (again(old).status, again(old).superseded_by) == ("superseded", new.id)
    now = again(new)
    assert now.summary == f"PCは13万円だった。{kept}"
    assert now.entities == ["PC", "富士通"]
    assert sources_of(new) == sorted(sources_of(old) + [max(sources_of(new))])
    assert now.outdated  # its vectors are made anew


def test_english_memories_are_compared_in_english(world: World, model: ScriptedModel) -> None:
    world.memory("The user bought a laptop.", entities=["laptop"])
    world.memory("The user sold the laptop.", entities=["laptop"], compared=False)
    model.script = [decisions()]
    compare(world)
    assert "記憶" not in model.asked[0]["messages"][0]["content"]


def test_owners_are_never_compared_with_each_other(world: World, model: ScriptedModel) -> None:
    world.memory(OLD, entities=["富士通"])
    mari = world.memory(NEW, entities=["富士通"], owner="mari", compared=False)
    world.indexed()
    assert compare(world, "mari") == 1
    assert model.asked == []
    assert again(mari).neighbours == []
    assert compare(world, "nobody") == 0


def test_an_index_that_lies_about_the_owner_is_caught_by_the_rows(world: World) -> None:
    mari = world.memory(OLD, owner="mari")
    new = world.memory(NEW, compared=False)
    Memory.update(neighbours=[mari.id]).where(Memory.id == new.id).execute()
    assert candidates(Window.get_by_id(new.window_id), [again(new)]) == {new.id: []}


def test_retired_and_newer_memories_are_no_candidates(world: World, model: ScriptedModel) -> None:
    world.memory(OLD, entities=["富士通"], status="superseded")
    first = world.memory(NEW, entities=["富士通"], compared=False)
    world.memory("ユーザーは富士通のPCを売った。", entities=["富士通"])
    world.indexed()
    assert candidates(Window.get_by_id(first.window_id), [again(first)]) == {first.id: []}


def test_an_imported_memory_without_a_window_is_a_candidate(world: World) -> None:
    old, new = pair(world)
    Memory.update(window=None).where(Memory.id == old.id).execute()
    world.indexed()
    assert candidates(Window.get_by_id(new.window_id), [again(new)]) == {new.id: [old]}
    assert again(new).neighbours == [old.id]


def test_the_nearest_six_are_compared_and_twenty_at_most_in_a_call(world: World) -> None:
    for number in range(9):
        world.memory(f"ユーザーは{number}回目の富士通の店に行った。", entities=["富士通"])
    new = world.memory(NEW, entities=["富士通"], compared=False)
    world.indexed()
    found = candidates(Window.get_by_id(new.window_id), [again(new)])[new.id]
    near = again(new).neighbours
    assert len(found) == KNOWN
    assert [memory.id for memory in found][: len(near[:KNOWN])] == near[:KNOWN]
    many = [world.memory(f"話{number}", entities=[f"名{number}"]) for number in range(KNOWN_IN_CALL + 5)]
    named = [
        world.memory(f"続き{number}", entities=[f"名{number}"], compared=False) for number in range(KNOWN_IN_CALL + 5)
    ]
    assert len(sides(named, candidates(Window.get_by_id(named[-1].window_id), named)).earlier) == KNOWN_IN_CALL
    assert len(many) > KNOWN_IN_CALL


# --- what is decided -------------------------------------------------------------------------------------------------


def test_a_changed_value_supersedes_the_old_one(world: World, model: ScriptedModel) -> None:
    old, new = pair(world)
    model.script = [decisions(("N1", "supersedes", "K1"))]
    assert compare(world) == 1
    assert (again(old).status, again(old).superseded_by) == ("superseded", new.id)
    assert again(new).status == "active"
    assert again(old).outdated  # the index must learn of it
    assert world.queue.taken() == [Hint("index", "home")]
    world.indexed()
    assert world.points() == {old.id: "superseded", new.id: "active"}


def test_a_repetition_is_absorbed_and_the_old_one_gains_its_turns(world: World, model: ScriptedModel) -> None:
    old, new = pair(world)
    turns = sources_of(old) + sources_of(new)
    model.script = [decisions(("N1", "repeats", "K1"))]
    compare(world)
    assert (again(new).status, again(new).superseded_by) == ("superseded", old.id)
    assert (again(old).status, sources_of(old), again(old).said_at) == ("active", turns, at("02 10:00"))


@pytest.mark.parametrize("decision", [("N1", "new", "K1"), ("N1", "new", None), ("N1", "supersedes", None)])
def test_what_is_new_leaves_both(world: World, model: ScriptedModel, decision: Any) -> None:
    old, new = pair(world)
    model.script = [decisions(decision)]
    compare(world)
    assert (again(old).status, again(new).status) == ("active", "active")
    assert world.queue.taken() == []


def test_from_a_to_b_and_back_to_a_leaves_a_as_a_new_memory(world: World, model: ScriptedModel) -> None:
    first = world.memory("車は赤だ。", entities=["車"], said=at("01 10:00"))
    model.script = [decisions(("N1", "supersedes", "K1"))] * 2
    second = world.memory("車は青だ。", entities=["車"], said=at("02 10:00"), compared=False)
    compare(world)
    third = world.memory("車は赤だ。", entities=["車"], said=at("03 10:00"), compared=False)
    compare(world)
    assert [(again(m).status, again(m).superseded_by) for m in (first, second, third)] == [
        ("superseded", second.id), ("superseded", third.id), ("active", None),
    ]  # fmt: skip
    assert first.id != third.id
    assert [memory["summary"] for memory in model.prompts[1]["known"]] == ["車は青だ。"]


def test_what_was_said_earlier_never_retires_what_was_said_later(world: World, model: ScriptedModel) -> None:
    later, earlier = pair(world, said=at("01 09:00"))
    model.script = [decisions(("N1", "supersedes", "K1"))]
    compare(world)
    assert (again(later).status, again(earlier).status) == ("active", "superseded")
    assert again(earlier).superseded_by == later.id
    (prompt,) = model.prompts  # what was said later is the new one for the model too, whatever was made first
    assert [line["summary"] for line in prompt["new"]] == [later.summary]
    assert [line["summary"] for line in prompt["known"]] == [earlier.summary]


def test_each_new_memory_is_set_against_its_own_candidates_only(world: World, model: ScriptedModel) -> None:
    car = world.memory("車は赤だ。", entities=["車"], said=at("01 10:00"))
    cat = world.memory("猫はミケだ。", entities=["猫"], said=at("01 10:00"))
    turns = [world.turn(text, session="new", state="kept") for text in ("車は青", "猫はタマ")]
    window = world.window(turns, compared=False)
    for turn, summary, name in zip(turns, ("車は青だ。", "猫はタマだ。"), ("車", "猫"), strict=True):
        segment = Segment(turn_ids=[1], keep=True, summary=summary, topic=summary, entities=[name])
        make_memory(segment, [turn], window, world.clock.now(), ZONE)
    Memory.update(outdated=False, neighbours=[]).execute()
    shown: dict[str, str] = {}

    def script(request: Any) -> Answer:
        pair = json.loads(request["messages"][1]["content"])
        shown.update({line["summary"]: line["id"] for side in pair.values() for line in side})
        crossed = [(shown["車は青だ。"], "supersedes", shown["猫はミケだ。"])]
        return decisions(*crossed, (shown["猫はタマだ。"], "supersedes", shown["猫はミケだ。"]))

    model.script = script
    compare(world)
    assert (again(car).status, again(cat).status) == ("active", "superseded")
    assert Memory.get_by_id(again(cat).superseded_by).summary == "猫はタマだ。"


@pytest.mark.parametrize(
    "decision",
    [("N9", "supersedes", "K1"), ("N1", "supersedes", "K9"), ("K1", "supersedes", "N1"), ("N1", "repeats", "mem_x")],
)
def test_labels_that_were_not_given_are_ignored(world: World, model: ScriptedModel, decision: Any) -> None:
    old, new = pair(world)
    model.script = [decisions(decision)]
    assert compare(world) == 1
    assert (again(old).status, again(new).status) == ("active", "active")


def test_a_memory_is_retired_once_and_retires_nothing_afterwards(world: World, model: ScriptedModel) -> None:
    old, new = pair(world)
    other = world.memory("富士通の話。", entities=["富士通"], said=at("01 10:00"))
    Window.update(compared=True).execute()
    last = world.memory("富士通の新しい話。", entities=["富士通"], said=at("05 10:00"), compared=False)
    world.indexed()
    labels = {memory.id: f"K{n}" for n, memory in enumerate(candidates(last.window, [again(last)])[last.id], 1)}
    model.script = [
        decisions(
            ("N1", "repeats", labels[old.id]),
            ("N1", "supersedes", labels[new.id]),
            ("N1", "supersedes", labels[other.id]),
        )
    ]
    compare(world)
    assert [again(m).status for m in (old, new, other, last)] == ["active", "active", "active", "superseded"]


def test_a_memory_that_was_retired_meanwhile_is_left_alone(world: World, model: ScriptedModel, database: Any) -> None:
    old, new = pair(world)

    def script(_: Any) -> Answer:
        with database.connection_context():
            Memory.update(status="forgotten").where(Memory.id == old.id).execute()
        return decisions(("N1", "repeats", "K1"))

    model.script = script
    compare(world)
    assert (again(old).status, again(new).status) == ("forgotten", "active")


# --- order, indexing, failures ---------------------------------------------------------------------------------------


def test_windows_are_compared_in_order(world: World, model: ScriptedModel) -> None:
    pair(world)
    third = world.memory("富士通のPCは14万円だった。", entities=["富士通"], said=at("03 10:00"), compared=False)
    model.script = lambda request: decisions(("N1", "supersedes", "K1"))
    assert compare(world) == 2
    assert summaries() == [third.summary]
    assert [prompt["new"][0]["summary"] for prompt in model.prompts] == [NEW, third.summary]


def test_a_window_waits_until_its_memories_are_indexed_and_holds_back_the_next(
    world: World, model: ScriptedModel
) -> None:
    _, new = pair(world)
    world.memory("ユーザーの富士通のPCは14万円だった。", entities=["富士通"], compared=False)
    world.indexed()
    Memory.update(outdated=True).where(Memory.id == new.id).execute()
    assert world.comparing.compare("home") == 0
    assert model.asked == []
    assert next_uncompared("home").id == new.window_id  # type: ignore[union-attr]


def test_bad_answers_five_times_keep_the_memories_as_new(world: World, model: ScriptedModel) -> None:
    old, new = pair(world)
    model.script = lambda _: BAD
    for attempt in range(1, 5):
        assert compare(world) == 0
        assert Window.get_by_id(new.window_id).compare_attempts == attempt
        assert compare(world) == 0  # not before its time
        world.clock.set(Owner.get_by_id("home").retry_at)
    assert compare(world) == 1
    assert len(model.asked) == 5 * 2
    assert Window.get_by_id(new.window_id).compared
    assert (again(old).status, again(new).status) == ("active", "active")
    assert (Owner.get_by_id("home").delays, Owner.get_by_id("home").retry_at) == (0, None)


def test_a_bad_window_does_not_stop_the_next(world: World, model: ScriptedModel) -> None:
    _, new = pair(world)
    Window.update(compare_attempts=4).where(Window.id == new.window_id).execute()
    third = world.memory("富士通のPCは14万円だった。", entities=["富士通"], said=at("03 10:00"), compared=False)
    model.script = [BAD, BAD, decisions(("N1", "supersedes", "K1"))]
    assert compare(world) == 2
    assert third.summary in summaries()


def test_a_model_that_is_down_costs_only_delays(world: World, model: ScriptedModel) -> None:
    old, new = pair(world)
    model.script = lambda _: error(503, "down")
    waits = []
    for _ in range(10):
        assert compare(world) == 0
        owner = Owner.get_by_id("home")
        waits.append((owner.retry_at - world.clock.now()).total_seconds())
        world.clock.set(owner.retry_at)
    assert waits == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]
    assert Window.get_by_id(new.window_id).compare_attempts == 0
    model.script = [decisions(("N1", "supersedes", "K1"))] * 20
    model.asked.clear()
    assert compare(world) == 1
    assert again(old).status == "superseded"


def test_of_two_workers_one_compares_an_owner(world: World, model: ScriptedModel, database: Any) -> None:
    pair(world)
    second: list[int] = []

    def script(_: Any) -> Answer:
        with database.connection_context():
            second.append(world.comparing.compare("home"))
        return decisions(("N1", "supersedes", "K1"))

    model.script = script
    assert compare(world) == 1
    assert second == [0]
    assert len(model.asked) == 1


def test_a_worker_that_lost_its_lease_decides_nothing(world: World, model: ScriptedModel, database: Any) -> None:
    old, new = pair(world)

    def script(_: Any) -> Answer:
        with database.connection_context():
            Lease.update(holder="another worker").execute()
        return decisions(("N1", "supersedes", "K1"))

    model.script = script
    with pytest.raises(Conflict):
        compare(world)
    assert (again(old).status, again(new).status) == ("active", "active")
    assert not Window.get_by_id(new.window_id).compared


def test_comparing_again_changes_nothing(world: World, model: ScriptedModel) -> None:
    pair(world)
    model.script = [decisions(("N1", "supersedes", "K1"))]
    compare(world)
    before = list(Memory.select().where(~Memory.outdated).tuples())
    assert compare(world) == 0
    assert list(Memory.select().where(Memory.id.in_([row[0] for row in before])).tuples()) == before
    assert len(model.asked) == 1


LABELS = st.sampled_from(["N1", "N2", "K1", "K2", "K3", "", "x"])
DECISIONS = st.lists(
    st.fixed_dictionaries(
        {"id": LABELS, "decision": st.sampled_from(["new", "supersedes", "repeats"]), "known": LABELS | st.none()}
    ),
    max_size=6,
).map(lambda items: json.dumps({"decisions": items}))


@given(st.text() | DECISIONS, st.permutations(["01", "02", "03", "04"]))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_answer_whatever_loses_a_fact(world: World, model: ScriptedModel, answer: str, days: list[str]) -> None:
    owner = f"o{Owner.select().count()}"
    made = [
        world.memory(f"{OLD}{n}", entities=["PC"], said=at(f"{day} 10:00"), owner=owner, compared=n < 3)
        for n, day in enumerate(days)
    ]
    model.script = lambda _: content(answer)
    for _ in range(5):
        compare(world, owner)
        world.clock.advance(minutes=15)
    assert next_uncompared(owner) is None
    rows = [again(memory) for memory in made]
    active = {row.id for row in rows if row.status == "active"}
    assert active
    for row in rows:
        followed = row
        for _ in rows:  # every retired one leads to an active one, without going round
            if followed.status == "superseded":
                followed = Memory.get_by_id(followed.superseded_by)
        assert followed.id in active
