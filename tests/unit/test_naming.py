"""Names: one key for all spellings, the one said most often shown, aliases that widen a search and merge nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem import listing, shapes
from stackmem.exceptions import InvalidInput, NotFound
from stackmem.models import Alias, Memory, Session
from stackmem.naming import add_alias, aliases, note_aliases, remove_alias, spellings, widen, widened_query
from stackmem.text import entity_key
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, World, keep, segments, summaries


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rtx3050ti", "ＲＴＸ ３０５０ Ｔｉ"),
        ("RTX-3050Ti", "RTX‐3050‑Ti"),
        ("RTX−3050〜Ti", "RTXー3050ｰTi"),
        ("サーバー", "サーバ"),
        ("ｻｰﾊﾞｰ", "サーバー"),
        ("コンピューター", "コンピュータ"),
        ("ﾌｼﾞﾂｳ", "フジツウ"),
        ("MacBook　Pro", "macbook pro"),
        ("Ｃ＋＋", "c++"),
        ("スターバックス・コーヒー", "スターバックスコーヒー"),
    ],
)
def test_spellings_of_one_name_meet(one: str, other: str) -> None:
    assert entity_key(one) == entity_key(other) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [("ビール", "ビル"), ("カード", "カド"), ("コーヒー", "コーヒ豆"), ("RTX3050", "RTX3060"), ("C", "C++")],
)
def test_different_names_do_not(one: str, other: str) -> None:
    assert entity_key(one) != entity_key(other)


@pytest.mark.parametrize(
    "name", ["김민준", "Müller", "Ωmega", "Žižek", "محمد", "प्रिया", "ไทย", "🐱ミケ", "みけ", "李", "ß"]
)
def test_names_in_any_script_survive(world: World, name: str) -> None:
    assert entity_key(name)
    memory = world.memory(f"{name}に会った。", f"{name}に会ったよ", entities=[name])
    assert shapes.memory_lines([memory], ZONE)[0]["entities"] == [name]
    assert listing.newest("home", {"entity": name}, 5, ZONE)["count"] == 1


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("ＲＴＸ ３０５０を買った。RTX-3050だよ、RTX-3050", "rtx3050", {"ＲＴＸ ３０５０": 1, "RTX-3050": 2}),
        ("サーバーとサーバ", "サーバ", {"サーバー": 1, "サーバ": 1}),
        ("ビルでビール", "ビル", {"ビル": 1}),
        ("This title is about Ti", "ti", {"Ti": 1}),
        ("バイオリンとﾊﾞｲｵﾘﾝ", "バイオリン", {"バイオリン": 1, "ﾊﾞｲｵﾘﾝ": 1}),
        ("ミケランジェロ", "ミケ", {}),
        ("うちのミケ、かわいい", "ミケ", {"ミケ": 1}),
        ("富士通のPC", "富士通", {"富士通": 1}),
        ("", "x", {}),
        ("x", "", {}),
    ],
)
def test_spellings_are_found_in_talk(text: str, name: str, said: dict[str, int]) -> None:
    assert spellings(text, entity_key(name)) == said


@given(st.text(max_size=60), st.text(max_size=8))
def test_any_text_can_be_searched_for_any_name(text: str, name: str) -> None:
    key = entity_key(name)
    for form in spellings(f"{text}、{name}。", key):
        assert entity_key(form) == key


def entities(world: World) -> list[list[str]]:
    return [line["entities"] for line in listing.newest("home", {}, 9, ZONE)["memories"]]


def test_the_spelling_said_most_often_is_shown(world: World) -> None:
    world.memory("RTX3050を買った。", "rtx3050を買った", entities=["RTX3050"], said=world.clock.advance(minutes=1))
    assert entities(world) == [["rtx3050"]]  # as it was said, not as the model wrote it
    world.memory(
        "RTX3050は静か。",
        "RTX-3050は静か",
        "RTX-3050いいね",
        entities=["rtx 3050"],
        said=world.clock.advance(minutes=1),
    )
    assert entities(world) == [["RTX-3050"], ["RTX-3050"]]
    world.memory(
        "別人。", "ＲＴＸ３０５０ ＲＴＸ３０５０ ＲＴＸ３０５０ ＲＴＸ３０５０", entities=["RTX3050"], owner="mari"
    )
    assert entities(world) == [["RTX-3050"], ["RTX-3050"]]
    world.indexed()
    found = world.recall.call("home", None, "search_memory", {"query": "RTX3050"}).content["candidates"]
    assert {tuple(candidate["entities"]) for candidate in found} == {("RTX-3050",)}


def test_an_alias_is_taken_only_where_one_turn_says_both_names(world: World, model: ScriptedModel) -> None:
    world.turn("富士通って英語でFujitsuって書くんだよ")
    world.turn("NECもいいよね")
    Session.update(ended_at=world.clock.now()).execute()
    more = {
        "aliases": [
            ["富士通", "Ｆｕｊｉｔｓｕ"],
            ["NEC", "日本電気"],
            ["Fujitsu", "富士通"],
            ["富士通", "富士通"],
            ["", "x"],
        ]
    }
    model.script = [segments(keep([1, 2], "富士通の話。") | more)]
    world.settle()
    (row,) = aliases("home")
    assert {row.name, row.other_name} == {"富士通", "Ｆｕｊｉｔｓｕ"}
    assert row.turn == 1
    assert aliases("mari") == []


def test_an_alias_widens_a_search_and_merges_nothing(world: World) -> None:
    world.memory("富士通のPCは13万円。", entities=["富士通", "PC"])
    world.memory("Fujitsuのプリンタがある。", entities=["Fujitsu"])
    world.memory("シャープのテレビ。", entities=["シャープ"])
    world.indexed()

    def found(owner: str = "home", **given: Any) -> set[str]:
        result = world.recall.call(owner, None, "search_memory", {"query": "富士通のPCとFujitsuのプリンタ", **given})
        return {candidate["summary"] for candidate in result.content["candidates"]}

    assert found(entities=["富士通"]) == {"富士通のPCは13万円。"}
    add_alias("home", "富士通", "Fujitsu", world.clock.now())
    both = {"富士通のPCは13万円。", "Fujitsuのプリンタがある。"}
    for name in ("富士通", "ＦＵＪＩＴＳＵ"):
        assert found(entities=[name]) == both
        assert listing.newest("home", {"entity": name}, 5, ZONE)["count"] == 2
    assert sorted(map(tuple, entities(world))) == [("Fujitsu",), ("シャープ",), ("富士通", "PC")]
    assert Memory.select().where(Memory.status == "active").count() == 3
    remove_alias("home", "Fujitsu", "富士通")
    assert found(entities=["富士通"]) == {"富士通のPCは13万円。"}
    with pytest.raises(NotFound, match="not known as two names"):
        remove_alias("home", "Fujitsu", "富士通")


def test_aliases_reach_over_several_steps_and_stay_with_their_owner(world: World) -> None:
    add_alias("home", "ボブ", "Bob", world.clock.now())
    add_alias("home", "Bob", "Robert", world.clock.now())
    add_alias("mari", "Robert", "田中", world.clock.now())
    assert widen("home", ["ボブ"]) == {"bob": "Bob", "robert": "Robert"}
    assert widen("home", ["bob", "ボブ"]) == {"robert": "Robert"}
    assert widen("home", ["x"]) == {}
    assert widened_query("home", "ボブの誕生日") == "ボブの誕生日 Bob Robert"
    assert widened_query("home", "ボブとRobertの誕生日") == "ボブとRobertの誕生日 Bob"
    assert widened_query("home", "誕生日") == "誕生日"
    assert widened_query("someone", "ボブ") == "ボブ"


def test_a_person_adds_an_alias_once_and_outlives_the_turn_that_said_it(world: World) -> None:
    turn = world.turn("ミケの本名はミケランジェロ")
    note_aliases("home", [("ミケ", "ミケランジェロ")], [turn], world.clock.now())
    assert Alias.get().turn == turn.id
    for pair in (("ミケ", "ミケランジェロ"), ("ミケランジェロ", "ミケ")):
        add_alias("home", *pair, world.clock.now())
    (row,) = aliases("home")
    assert row.turn is None


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        (("", "x"), "one of them a letter"),
        (("・", "x"), "one of them a letter"),
        (("a" * 81, "x"), "1 to 80 characters"),
        (("サーバー", "サーバ"), "are one name already"),
        (("Ｒ-１", "r1"), "are one name already"),
    ],
)
def test_a_wrong_alias_is_refused_in_one_sentence(world: World, pair: tuple[str, str], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        add_alias("home", *pair, world.clock.now())
    assert aliases("home") == []


def test_owners_names_never_meet(world: World) -> None:
    world.memory("富士通のPC。", entities=["富士通"])
    add_alias("mari", "富士通", "Fujitsu", world.clock.now())
    assert listing.newest("home", {"entity": "Fujitsu"}, 5, ZONE)["count"] == 0
    assert summaries("mari") == []
