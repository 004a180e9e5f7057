"""An embedder that is still loading keeps nobody waiting who does not need it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.exceptions import PermanentError, TransientError
from stackmem.index_handle import IndexHandle
from stackmem.loading import LOADING, Loading
from stackmem.models import ToolTrace
from stackmem.speaking import Speech
from stackmem.status import status
from stackmem.thinking import Deadline
from tests.fakes import LateEmbedder, MemoryIndexStore
from tests.scripted import call, say
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, World

CAT = "ユーザーの猫の名前はモモだ。"
ASK = call("search_memory", {"query": "猫の名前"})
FAULT = PermanentError("The model has no weights.")


@pytest.fixture
def late(embedder: UseEmbedder) -> Iterator[LateEmbedder]:
    late = LateEmbedder(embedder)
    yield late
    late.loaded.set()  # its thread ends


@pytest.fixture
def world(database: Any, embedder: UseEmbedder, late: LateEmbedder, chat: OpenAIChat) -> World:
    """A store with one memory in its index, started again: the embedder is not loaded yet."""
    before = World(embedder, OfflineChat())
    before.memory(CAT)
    before.indexed()
    return World(late, chat, store=before.store, clock=before.clock)


def test_a_turn_without_a_search_does_not_wait_for_the_embedder(world: World, model: ScriptedModel) -> None:
    world.work.start()
    model.script = [say("やあ")]
    assert world.say("こんにちは").reply == "やあ"
    assert world.index.reasons() == [LOADING]


def test_a_search_before_the_embedder_is_loaded_waits_half_of_the_turns_time_and_tells_the_model(
    world: World, model: ScriptedModel
) -> None:
    model.script = [ASK, say("まだ思い出せないんだ。少し待ってね")]
    said = world.turn("猫の名前は？", state="open", reply="")
    thought = world.thinker.think(said, Deadline(3.0), Speech(None, 100))
    assert thought.reply is not None
    assert thought.reply.reply == "まだ思い出せないんだ。少し待ってね"
    ((_, result, _),) = thought.calls
    assert result.content == {"error": result.note, "candidates": [], "count": 0}
    assert "the embedder is still loading" in result.note


def test_a_search_goes_on_when_the_embedder_comes_in_time(
    world: World, late: LateEmbedder, model: ScriptedModel
) -> None:
    def answer(request: Any) -> Any:
        late.loaded.set()
        return say("モモだよ") if request["messages"][-1]["role"] == "tool" else ASK

    model.script = answer
    turn = world.say("猫の名前は？")
    assert len(turn.memory_ids) == 1
    assert ToolTrace.get().note == ""


def test_an_embedder_that_cannot_be_loaded_is_told_and_tried_again(world: World, late: LateEmbedder) -> None:
    late.fault = FAULT
    for tries in (1, 2):
        result = world.recall.call("home", None, "search_memory", {"query": "猫の名前"})
        assert result.content["error"] == f"Memories cannot be searched: {FAULT}"
        assert late.loads == tries
    assert world.index.reasons() == [f"The embedder does not load: {FAULT}"]
    late.fault = None
    late.loaded.set()
    assert world.recall.call("home", None, "search_memory", {"query": "猫の名前"}).content["count"] == 1
    assert world.index.reasons() == []


def test_status_says_what_searches_wait_for(world: World, late: LateEmbedder) -> None:
    def reasons() -> Any:
        return status("home", world.index, "memory", world.clock.now(), ZONE)["reasons"]

    assert reasons() == []  # a command that needs no vectors loads nothing
    world.work.start()
    assert reasons() == [LOADING]
    late.loaded.set()
    assert reasons() == []


def test_several_who_wait_load_once(late: LateEmbedder) -> None:
    loading = Loading(late)
    first = loading.begin()
    assert first is not None
    assert loading.begin() is first
    with pytest.raises(TransientError, match="still loading"):
        loading.wait(0)
    late.loaded.set()
    loading.wait()
    assert (loading.begin(), late.loads) == (None, 1)


def test_a_process_without_the_index_loads_nothing(world: World, late: LateEmbedder) -> None:
    handle = IndexHandle(None, late)
    assert handle.reasons() == []
    replace(world.work, index=handle).start()
    assert late.loads == 0
    assert IndexHandle(MemoryIndexStore(), late).reasons() == []
