"""Two owners who say the same of the same things: no path shows or changes what is the other's."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from stackmem import editing, forget_requests, forgetting, listing, naming
from stackmem.exceptions import NotFound
from stackmem.exporting import export_lines
from stackmem.models import Alias, ForgetRequest, Memory, Session
from tests.scripted import Answer
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, World, decisions, everything, keep, segments, skip

OWNERS = {"home": "ヒデキ", "mari": "真理"}


@pytest.fixture
def two(world: World, model: ScriptedModel) -> World:
    """Both told of a cat, corrected its age, named it twice over and asked to forget it, in sessions of one name."""

    def script(request: Any) -> Answer:
        prompt = json.loads(request["messages"][1]["content"])
        if "new" in prompt:
            return decisions(*[("N1", "supersedes", known["id"]) for known in prompt["known"]])
        who = next(name for name in OWNERS.values() if name in prompt["turns"][0]["user"])
        if "忘れて" in prompt["turns"][-1]["user"]:
            return segments(skip(1) | {"forget": "猫のミケ"})
        summary = f"{who}の猫ミケは{'6' if '6' in prompt['turns'][0]['user'] else '5'}歳。"
        return segments(keep([1], summary, entities=["ミケ", who], aliases=[["ミケ", f"{who}のねこ"]]))

    model.script = script
    texts = ("の猫ミケは5歳。ミケは{}のねこともいう", "の猫ミケは6歳。ミケは{}のねこともいう", "の猫のことは忘れて")
    for number, said in enumerate(texts):
        for owner, name in OWNERS.items():
            world.turn(name + said.format(name), session=f"cat {number}", owner=owner)
        Session.update(ended_at=world.clock.now()).execute()
        world.settle()
        world.clock.advance(days=1)
    return world


def of(owner: str, status: str = "active") -> Memory:
    return Memory.get(Memory.owner == owner, Memory.status == status)  # type: ignore[no-any-return]


def text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def search(world: World, **given: Any) -> str:
    result = world.recall.call("home", None, "search_memory", given)
    return text([result.content, result.hits])


def sources(world: World, memory: Memory) -> str:
    result = world.recall.call("home", None, "read_memory_source", {"memory_ids": [memory.id], "around": 5})
    return text([result.content, result.hits])


def test_both_have_what_they_said(two: World) -> None:
    for owner, name in OWNERS.items():
        assert of(owner).summary == f"{name}の猫ミケは6歳。"
        assert [row.summary for row in listing.history(of(owner))] == [f"{name}の猫ミケは5歳。"]
        assert [row.is_open for row in ForgetRequest.select().where(ForgetRequest.owner == owner)] == [True]


READING: dict[str, Callable[[World], Any]] = {
    "search": lambda world: search(world, query="真理の猫ミケ", exact=True),
    "search by her name": lambda world: search(world, query="猫", entities=["真理", "真理のねこ"]),
    "search by a date": lambda world: search(world, query="猫", since="2026-01-01", until="2027-01-01"),
    "sources": lambda world: sources(world, of("home")),
    "her sources": lambda world: sources(world, of("mari")),
    "the list": lambda _: text([listing.newest("home", {"status": status}, 50, ZONE) for status in listing.STATUSES]),
    "the list by her name": lambda _: text(listing.newest("home", {"entity": "真理"}, 50, ZONE)),
    "people's search": lambda world: text(listing.search(world.recall, "home", "真理の猫", {}, 50, ZONE)),
    "the history": lambda _: [row.summary for row in listing.history(of("home"))],
    "the turns of a memory": lambda _: listing.source_lines(of("home"), ZONE),
    "the export": lambda _: list(export_lines("home", ZONE)),
    "names": lambda _: [(row.name, row.other_name) for row in naming.aliases("home")],
    "a widened search": lambda _: naming.widened_query("home", "ミケ"),
    "requests": lambda _: forget_requests.request_lines("home", ZONE),
}  # fmt: skip


@pytest.mark.parametrize("path", READING)
def test_nothing_of_another_owner_is_shown(two: World, path: str) -> None:
    words = str(READING[path](two))
    hers = of("mari")
    assert f"{OWNERS['mari']}の猫ミケは" not in words
    assert "真理のねこ" not in words
    assert path == "her sources" or hers.id not in words  # there it is the id that was asked for, as unknown
    if path not in ("her sources", "the list by her name"):
        assert "ミケ" in words


WRITING: dict[str, Callable[[World], Any]] = {
    "forget": lambda world: forgetting.forget("home", [of("mari").id], world.clock.now(), turns=True, at_once=True),
    "forget her old one": lambda world: forgetting.forget("home", [of("mari", "superseded").id], world.clock.now()),
    "forget both": lambda world: forgetting.forget("home", [of("home").id, of("mari").id], world.clock.now()),
    "bring back": lambda _: forgetting.undo("home", [of("mari").id]),
    "edit": lambda world: editing.edit("home", of("mari").id, {"summary": "嘘。"}, world.clock.now(), ZONE),
    "look at": lambda _: listing.one("home", of("mari").id),
    "take back a name": lambda _: naming.remove_alias("home", "ミケ", "真理のねこ"),
    "drop a request": lambda _: forget_requests.one("home", ForgetRequest.get(ForgetRequest.owner == "mari").id),
}


@pytest.mark.parametrize("path", WRITING)
def test_nothing_of_another_owner_is_changed_and_it_is_as_if_it_were_not_there(two: World, path: str) -> None:
    before = (everything(), sorted(Alias.select().tuples()), list(ForgetRequest.select().tuples()))
    with pytest.raises(NotFound):
        WRITING[path](two)
    two.work.sweep()
    assert (everything(), sorted(Alias.select().tuples()), list(ForgetRequest.select().tuples())) == before


def test_forgetting_ones_own_leaves_the_others_twin_whole(two: World) -> None:
    def hers() -> tuple[Any, ...]:
        memories, sources, keys, *_ = everything()
        ids = {row.id for row in Memory.select().where(Memory.owner == "mari")}
        rows = [[row for row in table if row[0] in ids] for table in (memories, sources, keys)]
        return (*rows, list(export_lines("mari", ZONE)), two.points("mari"))

    before = hers()
    assert of("mari").id in two.points("mari")
    forgetting.forget("home", [of("home").id], two.clock.now(), turns=True, at_once=True)
    two.work.sweep()
    two.settle()
    assert hers() == before
    assert two.points("home") == {}
    assert "ヒデキの猫ミケ" not in "".join(export_lines("home", ZONE))
    found = two.recall.search_memory("mari", None, {"query": "猫ミケ", "entities": ["真理のねこ"]})
    assert found.content["candidates"][0]["summary"] == "真理の猫ミケは6歳。"


def test_a_person_decides_about_ones_own_names_alone(two: World) -> None:
    naming.add_alias("home", "ミケ", "みけちゃん", two.clock.now())
    assert "みけちゃん" not in naming.widened_query("mari", "ミケ")
    naming.remove_alias("home", "ミケ", "ヒデキのねこ")
    assert [{row.name, row.other_name} for row in naming.aliases("mari")] == [{"ミケ", "真理のねこ"}]
