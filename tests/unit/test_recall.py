"""What search_memory does: filter, rank, re-read the sources. The index serves the order, the rows decide."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.editing import edit
from stackmem.index_handle import IndexHandle
from stackmem.models import MemoryVector, Session, Turn
from stackmem.ports import CommonPart, IndexFilter, IndexHit, Vector
from stackmem.ranking import Ranked, newest_first_in_ties
from stackmem.recall import Recall, ToolResult
from stackmem.search_arguments import SearchArguments, read_arguments
from tests.fakes import FixedClock
from tests.unit.world import ZONE, World, at

FUJITSU = "ユーザーは富士通のPCを13万円で買った。"
THINKPAD = "ユーザーはThinkPadのPCを8万円で買った。"
CAT = "ユーザーの猫の名前はモモだ。"
SUSHI = "ユーザーは寿司が好きだ。"


def search(world: World, query: str, owner: str = "home", session_id: int | None = None, **given: Any) -> ToolResult:
    return world.recall.call(owner, session_id, "search_memory", {"query": query, **given})


def found(result: ToolResult) -> list[str]:
    return [candidate["summary"] for candidate in result.content["candidates"] if candidate["memory_id"]]


def four(world: World) -> None:
    world.memory(FUJITSU, entities=["富士通", "PC"])
    world.memory(THINKPAD, entities=["ThinkPad", "PC"])
    world.memory(CAT, entities=["モモ"])
    world.memory(SUSHI, entities=["寿司"], memory_type="preference")
    world.indexed()


# --- what is found ---------------------------------------------------------------------------------------------------


def test_what_was_asked_for_comes_first(world: World) -> None:
    four(world)
    assert found(search(world, "富士通のPCの値段"))[0] == FUJITSU
    assert found(search(world, "猫の名前"))[0] == CAT
    assert found(search(world, "好きな食べ物は寿司"))[0] == SUSHI


def test_a_candidate_shows_what_the_model_needs_and_no_score(world: World) -> None:
    memory = world.memory(FUJITSU, entities=["富士通", "PC"], occurred_at="2026-07-01", said=at("02 20:15"))
    world.indexed()
    (candidate,) = search(world, "富士通のPC").content["candidates"]
    assert candidate == {
        "memory_id": memory.id,
        "topic": FUJITSU[:8],
        "summary": FUJITSU,
        "entities": ["富士通", "PC"],
        "memory_type": "episode",
        "occurred_at": "2026-07-01T00:00:00+09:00/2026-07-01T23:59:59+09:00",
        "said_at": "2026-07-02T20:15:00+09:00",
        "source_checked": False,
    }


def test_at_most_five_candidates_are_given(world: World) -> None:
    for number in range(8):
        world.memory(f"ユーザーは富士通のPCを{number}台買った。")
    world.indexed()
    result = search(world, "富士通のPC")
    assert (len(found(result)), result.content["count"]) == (5, 5)


def test_what_lies_under_the_floor_is_not_found_and_the_note_says_so(world: World) -> None:
    world.memory("ユーザーは昨日よく眠れなかった。")
    world.indexed()
    result = search(world, "量子コンピューターの論文")
    assert result.content == {
        "candidates": [],
        "count": 0,
        "relaxed": [],
        "note": "Nothing was found: say that you do not remember, and invent nothing.",
    }


def test_the_larger_of_summary_and_source_similarity_counts_for_the_floor(world: World) -> None:
    world.memory("買い物の話があった。", "うちの猫の名前はモモだよ")
    world.indexed()
    assert found(search(world, "猫の名前はモモ")) == ["買い物の話があった。"]


def test_nothing_stored_is_no_fault(world: World) -> None:
    assert search(world, "富士通のPC").content["count"] == 0


# --- owners and status -----------------------------------------------------------------------------------------------


def test_another_owners_memories_never_leak(world: World) -> None:
    world.memory(FUJITSU)
    world.memory(THINKPAD, owner="mari")
    world.indexed()
    world.indexed("mari")
    assert found(search(world, "PCを買った")) == [FUJITSU]
    assert found(search(world, "PCを買った", owner="mari")) == [THINKPAD]
    assert found(search(world, "PCを買った", owner="nobody")) == []


@pytest.mark.parametrize("status", ["superseded", "forgotten"])
def test_what_is_not_active_is_never_found(world: World, status: str) -> None:
    world.memory(FUJITSU, status=status)
    world.indexed()
    assert found(search(world, "富士通のPC")) == []


def test_people_may_search_whatever_its_status(world: World) -> None:
    world.memory(FUJITSU, status="superseded")
    world.memory(THINKPAD)
    world.indexed()
    found_ = world.recall.find(SearchArguments("PCを買った値段", IndexFilter("home", status=None)))
    assert {candidate.memory.summary for candidate in found_} == {FUJITSU, THINKPAD}


class Lying:
    """An index that returns every point, whatever it was asked for."""

    def __init__(self, memory_ids: Sequence[str]):
        self.memory_ids = memory_ids

    def search(self, query: Vector, where: IndexFilter, limit: int, common: CommonPart | None = None) -> list[IndexHit]:
        return [IndexHit(memory_id, 0.9, None) for memory_id in self.memory_ids]


def test_an_index_that_lies_about_owner_or_status_is_caught_by_the_rows(world: World) -> None:
    mine = world.memory(FUJITSU)
    lies = [world.memory(THINKPAD, owner="mari"), world.memory(CAT, status="superseded")]
    world.index.current = Lying([mine.id, *[memory.id for memory in lies], "mem_" + "0" * 26])  # type: ignore[assignment]
    assert found(search(world, "PC")) == [FUJITSU]


# --- filters and relaxing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ThinkPad", "ＴＨＩＮＫＰＡＤ", "think pad", ["猫", "thinkpad"]])
def test_entities_narrow_whatever_their_spelling(world: World, name: Any) -> None:
    four(world)
    result = search(world, "買ったPCの値段", entities=name if isinstance(name, list) else [name])
    assert found(result) == [THINKPAD]
    assert result.relaxed == []


def test_one_name_may_come_without_its_list(world: World) -> None:
    four(world)
    assert found(search(world, "買ったPCの値段", entities="富士通")) == [FUJITSU]


def test_the_memory_type_narrows(world: World) -> None:
    four(world)
    assert found(search(world, "ユーザーの好きなもの", memory_type="preference")) == [SUSHI]


def test_entities_are_relaxed_where_nothing_is_left(world: World) -> None:
    four(world)
    result = search(world, "PCを買った値段", entities=["Dell"])
    assert FUJITSU in found(result)
    assert result.relaxed == result.content["relaxed"] == ["entities"]
    assert "Nothing matched entities; these were found without it." in result.content["note"]


def test_the_memory_type_is_relaxed_after_the_entities(world: World) -> None:
    four(world)
    result = search(world, "富士通のPCの値段", entities=["Dell"], memory_type="decision")
    assert found(result)[0] == FUJITSU
    assert result.relaxed == ["entities", "memory_type"]
    assert "entities and memory_type" in result.note


def test_the_memory_type_is_kept_where_relaxing_the_entities_is_enough(world: World) -> None:
    four(world)
    result = search(world, "ユーザーの好きな寿司", entities=["Dell"], memory_type="preference")
    assert (found(result), result.relaxed) == ([SUSHI], ["entities"])


def test_only_the_memory_type_is_relaxed_where_no_entities_were_given(world: World) -> None:
    four(world)
    assert search(world, "富士通のPCの値段", memory_type="decision").relaxed == ["memory_type"]


@pytest.mark.parametrize("names", [[], [" "], ["-"], None, ""])
def test_names_without_a_key_narrow_nothing(world: World, names: Any) -> None:
    four(world)
    assert search(world, "富士通のPC", entities=names).relaxed == []


def test_dates_are_never_relaxed(world: World) -> None:
    four(world)
    result = search(world, "富士通のPC", entities=["富士通"], since="2020-01-01", until="2020-12-31")
    assert found(result) == []
    assert result.relaxed == ["entities"]


def test_the_owner_is_never_relaxed(world: World) -> None:
    four(world)
    assert search(world, "富士通のPC", owner="mari", entities=["富士通"], memory_type="episode").content["count"] == 0


# --- dates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "until", "hit"),
    [
        ("2025-07-01", "2025-07-31", True),  # within what it is about
        ("2025-08-31", None, True),
        ("2025-08-31", "2026-07-19", True),  # the last day of the summer
        ("2025-09-01", "2026-07-19", False),  # after it, and before it was said
        ("2026-07-20", "2026-07-20", True),  # the day it was said
        ("2026-07-20", None, True),
        (None, "2025-06-01", True),
        (None, "2025-05-31", False),
        ("2026-07-21", None, False),
    ],
)
def test_a_date_range_matches_what_it_is_about_or_when_it_was_said(
    world: World, since: str | None, until: str | None, hit: bool
) -> None:
    summer = {"occurred_from": "2025-06-01", "occurred_to": "2025-08-31"}
    world.memory("ユーザーは去年の夏に北海道へ旅行した。", said=at("20 23:30"), **summer)
    world.indexed()
    assert bool(found(search(world, "北海道への旅行", since=since, until=until))) is hit


def test_the_model_may_give_times_with_a_zone(world: World) -> None:
    world.memory(FUJITSU, said=at("20 23:30"))
    world.indexed()
    assert found(search(world, "富士通のPC", since="2026-07-20T14:00:00Z", until="2026-07-20T15:00:00Z")) == [FUJITSU]
    assert found(search(world, "富士通のPC", since="2026-07-20T15:00:00Z")) == []


# --- the order -------------------------------------------------------------------------------------------------------


def test_of_near_equals_the_newest_comes_first(world: World) -> None:
    for day in ("01", "03", "02"):
        world.memory(FUJITSU, said=at(f"{day} 10:00"))
    world.indexed()
    said = [candidate["said_at"][:10] for candidate in search(world, "富士通のPC").content["candidates"]]
    assert said == ["2026-07-03", "2026-07-02", "2026-07-01"]


def test_with_a_date_range_similarity_alone_counts(world: World) -> None:
    memories = [world.memory(FUJITSU, said=at(f"{day} 10:00")) for day in ("03", "01", "02")]
    world.indexed()
    result = search(world, "富士通のPC", since="2026-07-01")
    ids = [candidate["memory_id"] for candidate in result.content["candidates"]]
    assert ids == sorted(memory.id for memory in memories)


def test_a_clearly_better_one_stays_before_a_newer_one(world: World) -> None:
    world.memory(FUJITSU, said=at("01 10:00"))
    world.memory(CAT, said=at("20 10:00"))
    world.indexed()
    assert found(search(world, "富士通のPCを買った値段"))[0] == FUJITSU


def ranked(score: float, day: int) -> Ranked:
    return Ranked("mem_x", at(f"{day:02} 10:00"), 0.0, score)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ([], []),
        ([(0.9, 1)], [0.9]),
        ([(0.90, 1), (0.89, 2), (0.88, 3)], [0.88, 0.89, 0.90]),
        ([(0.90, 1), (0.881, 2), (0.87, 3)], [0.881, 0.90, 0.87]),  # tied to the first, not to each other
        ([(0.90, 3), (0.89, 2), (0.5, 1), (0.49, 2)], [0.90, 0.89, 0.49, 0.5]),
    ],
)
def test_a_tie_group_is_everything_near_its_first_member(
    given_: list[tuple[float, int]], expected: list[float]
) -> None:
    ordered = newest_first_in_ties([ranked(score, day) for score, day in given_], 0.0201)
    assert [item.rank_score for item in ordered] == expected


def test_below_twenty_memories_the_score_is_plain_similarity(world: World) -> None:
    four(world)
    (first, *_) = search(world, "富士通のPCの値段").hits
    assert 0 < first["rank_score"] <= 1
    assert first["rank_score"] >= first["retrieval_score"]


def test_from_twenty_memories_on_scores_are_normalised_and_words_count(world: World) -> None:
    for number in range(17):
        world.memory(f"ユーザーは{number}番目の店で働いた。")
    world.memory("ユーザーの車の番号は、な 5531 だ。")
    for summary in (FUJITSU, CAT):
        world.memory(summary)
    world.indexed()
    result = search(world, "車の番号 5531")
    assert found(result)[0] == "ユーザーの車の番号は、な 5531 だ。"
    assert result.hits[0]["rank_score"] > 1
    assert result.hits[0]["retrieval_score"] <= 1
    assert found(search(world, "猫の名前はモモ"))[0] == CAT


def test_hits_that_are_all_alike_can_be_normalised(world: World) -> None:
    for day in range(20):
        world.memory(FUJITSU, said=at(f"{day + 1:02} 10:00"))
    world.indexed()
    result = search(world, "富士通のPC")
    assert [candidate["said_at"][8:10] for candidate in result.content["candidates"]] == ["20", "19", "18", "17", "16"]
    assert {hit["rank_score"] for hit in result.hits} == {0.0}


def test_a_memory_without_sources_is_ranked_by_its_summary(world: World) -> None:
    for number in range(20):
        world.memory(f"ユーザーは{number}番目の店で働いた。")
    world.memory(CAT)
    Turn.delete().execute()
    world.indexed()
    assert MemoryVector.select().count() == 21
    assert found(search(world, "猫の名前"))[0] == CAT


# --- sources ---------------------------------------------------------------------------------------------------------


def test_one_candidate_is_given_without_its_sources_unless_asked_exactly(world: World) -> None:
    world.memory(CAT, "うちの猫、モモっていうんだ")
    world.indexed()
    plain, exact = search(world, "猫の名前"), search(world, "猫の名前", exact=True)
    assert [result.content["candidates"][0]["source_checked"] for result in (plain, exact)] == [False, True]
    assert "sources" not in plain.content["candidates"][0]
    assert exact.content["candidates"][0]["sources"][0]["user"] == "うちの猫、モモっていうんだ"
    assert [result.hits[0]["source_checked"] for result in (plain, exact)] == [False, True]
    assert plain.hits[0]["source_turn_ids"] == exact.hits[0]["source_turn_ids"] != []


@pytest.mark.parametrize("exact", ["true", 1, "no", None])
def test_exact_is_true_or_nothing(world: World, exact: Any) -> None:
    assert not read_arguments("home", {"query": "x", "exact": exact}, ZONE).exact


def test_of_several_candidates_the_first_three_are_checked(world: World) -> None:
    for number in range(5):
        world.memory(f"ユーザーは富士通のPCを{number}台買った。")
    world.indexed()
    result = search(world, "富士通のPC")
    assert [c["source_checked"] for c in result.content["candidates"]] == [True, True, True, False, False]
    assert [bool(c.get("sources")) for c in result.content["candidates"]] == [True, True, True, False, False]
    assert "ask which one is meant" in result.content["note"]


def test_what_has_lost_its_sources_is_not_called_checked(world: World) -> None:
    world.memory(CAT)
    Turn.delete().execute()
    world.indexed()
    assert search(world, "猫の名前", exact=True).content["candidates"][0]["source_checked"] is False


def test_turns_that_are_no_memory_yet_are_found_too(world: World) -> None:
    world.memory(FUJITSU)
    turn = world.turn("富士通のPC、もう壊れちゃった", session="b")
    world.indexed()
    result = search(world, "富士通のPC", session_id=world.session("now").id)
    known, waiting = result.content["candidates"]
    assert (known["summary"], waiting["not_yet_a_memory"]) == (FUJITSU, True)
    assert result.content["count"] == 2
    assert result.hits[1] == {
        "memory_id": None, "retrieval_score": None, "source_checked": True, "source_turn_ids": [turn.id],
    }  # fmt: skip


def test_the_note_does_not_say_nothing_where_a_waiting_turn_was_found(world: World) -> None:
    world.turn("富士通のPC、買ったよ", session="b")
    result = search(world, "富士通のPC", session_id=world.session("now").id)
    assert result.content["count"] == 1
    assert "note" not in result.content


def test_the_time_spent_is_measured(world: World) -> None:
    four(world)
    result = search(world, "富士通のPC")
    assert result.embed_ms > 0
    assert result.search_ms > 0


# --- wrong arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ({}, "query is missing: say in a short sentence what to look for."),
        ({"query": " "}, "query is missing: say in a short sentence what to look for."),
        ({"query": 5}, "query is missing: say in a short sentence what to look for."),
        ({"query": ["a"]}, "query is missing: say in a short sentence what to look for."),
        ({"query": "x", "memory_type": "fact"}, "memory_type is one of episode, decision, preference, or left out."),
        ({"query": "x", "memory_type": ["x"]}, "memory_type is one of episode, decision, preference, or left out."),
        ({"query": "x", "entities": 5}, "entities is a list of names."),
        ({"query": "x", "entities": [5]}, "entities is a list of names."),
        ({"query": "x", "since": "昨日"}, "'昨日' is not a time in ISO 8601, such as 2026-07-23T01:00:00+09:00."),
        ({"query": "x", "until": 5}, "'5' is not a time in ISO 8601, such as 2026-07-23T01:00:00+09:00."),
        (None, "The arguments could not be read: send one JSON object."),
    ],
)
def test_every_wrong_argument_is_answered_with_a_sentence(world: World, given_: Any, sentence: str) -> None:
    result = world.recall.call("home", None, "search_memory", given_)
    assert result.content == {"error": sentence, "candidates": [], "count": 0}
    assert result.note == sentence
    assert result.hits == []


def test_an_unknown_tool_is_answered_with_a_sentence(world: World) -> None:
    assert (
        world.recall.call("home", None, "forget_all" * 10, {}).note == f"There is no tool {('forget_all' * 10)[:40]!r}."
    )


def test_an_index_that_is_not_there_is_answered_with_a_sentence(world: World, embedder: UseEmbedder) -> None:
    recall = Recall(IndexHandle(None, embedder), ZONE)
    result = recall.call("home", None, "search_memory", {"query": "x"})
    assert result.note == "The memory index is not open in this process; answer without it, and say so."


def test_a_query_without_end_is_cut() -> None:
    arguments = read_arguments("home", {"query": "あ" * 5000}, ZONE)
    assert len(arguments.query) == 1000
    assert not arguments.dated
    assert SearchArguments("x", IndexFilter("home", until=at("01 00:00"))).dated


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["query", "entities", "memory_type", "since", "until", "exact", "memory_ids", "around", "other"]
)


@given(st.sampled_from(["search_memory", "read_memory_source", "x"]), st.none() | st.dictionaries(NAMES, JSON))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_arguments_whatever_raise(world: World, tool: str, given_: Any) -> None:
    result = world.recall.call("home", None, tool, given_)
    json.dumps(result.content)


# --- the real index, and people's search -----------------------------------------------------------------------------


@pytest.fixture
def edge(database: Any, embedder: UseEmbedder, clock: FixedClock, tmp_path: Any) -> Iterator[World]:
    store = EdgeStore(tmp_path / "index", lock_wait_s=0)
    yield World(embedder, OfflineChat(), store=store, clock=clock)
    store.close()


def test_the_embedded_index_gives_the_same_as_the_fake(edge: World, offline: World) -> None:
    four(edge)
    for memory in ("富士通のPCの値段", "猫の名前", "ユーザーの好きなもの"):
        for more in ({}, {"entities": ["ＰＣ"]}, {"memory_type": "preference"}, {"since": "2026-07-01"}):
            edge_result = search(edge, memory, **more)
            offline.index.current = edge.index.current
            assert found(search(offline, memory, **more)) == found(edge_result)
    assert found(search(edge, "PCの値段", entities=["thinkpad"])) == [THINKPAD]


def test_people_find_what_the_robot_finds_in_the_same_order(world: World) -> None:
    four(world)
    arguments = read_arguments("home", {"query": "PCを買った値段"}, ZONE)
    people = [candidate.memory.summary for candidate in world.recall.find(arguments)]
    assert people == found(search(world, "PCを買った値段"))
    assert len(world.recall.find(arguments, 1)) == 1


def test_nothing_is_written(world: World) -> None:
    four(world)
    Session.update(look_due=False).execute()
    before = list(Turn.select().tuples())
    search(world, "富士通のPC", exact=True)
    assert list(Turn.select().tuples()) == before


def test_scores_are_of_the_summary(world: World, embedder: UseEmbedder) -> None:
    world.memory(FUJITSU, topic="PC")
    world.indexed()
    query, summary = embedder.embed_queries(["富士通のPC", f"PC\n{FUJITSU}"])
    assert search(world, "富士通のPC").hits[0]["retrieval_score"] == pytest.approx(
        float(np.dot(query, summary)), abs=1e-5
    )


def test_what_a_person_corrected_is_not_contradicted_by_its_old_words(world: World) -> None:
    memory = world.memory("富士通のPCは12万円。", "富士通のPCを12万円で買った", entities=["富士通"])
    world.memory("猫はミケ。", "猫はミケだよ")
    edit("home", memory.id, {"summary": "富士通のPCは13万円。"}, world.clock.now(), ZONE)
    world.indexed()
    (first, *_) = search(world, "富士通のPCの値段", exact=True).content["candidates"]
    assert (first["summary"], first["corrected_by_hand"], first["source_checked"]) == (
        "富士通のPCは13万円。",
        True,
        False,
    )
    assert "sources" not in first
