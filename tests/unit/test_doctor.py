"""Every check of the doctor tries its part for real, and says what to do."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import peewee
import pytest

from stackmem import doctor
from stackmem.bootstrap import Runtime, build
from stackmem.config import load_settings
from stackmem.doctor import Finding, examine
from stackmem.models import Lease, Memory
from stackmem.ports import Fingerprint, Vector
from stackmem.reindexing import reindex
from tests.scripted import ScriptedServer, error, say

Built = Callable[..., Runtime]


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Built]:
    """Build a runtime with these settings, connected in this thread."""
    runtimes = []

    def build_one(owns_index: bool = True, **settings: Any) -> Runtime:
        runtime = build(load_settings(home=tmp_path / "home", **settings), owns_index=owns_index, lock_wait_s=0)
        runtime.database.connect()
        runtimes.append(runtime)
        return runtime

    yield build_one
    for runtime in runtimes:
        runtime.database.close()
        runtime.close()


def found(runtime: Runtime, name: str) -> tuple[str, str]:
    (check,) = (check for check in examine(runtime) if check["name"] == name)
    return check["state"], check["sentence"]


def test_all_defaults_pass_every_check_or_are_noted(built: Built) -> None:
    states = {check["name"]: check["state"] for check in examine(built())}
    assert states == {
        "settings": "ok", "database": "ok", "index": "ok", "embedder": "ok", "chat model": "note",
        "memory model": "note",
    }  # fmt: skip
    assert not Lease.select().exists()


def test_an_unknown_setting_is_noted(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKMEM_HOMME", "/x")
    assert found(built(), "settings") == ("note", "STACKMEM_HOMME is not a setting; did you mean STACKMEM_HOME?")


def test_an_index_that_must_be_rebuilt_is_noted(built: Built, world_rows: Callable[[], None]) -> None:
    runtime = built()
    assert found(runtime, "index") == ("ok", "It is made at the first start.")
    world_rows()
    assert found(runtime, "index")[0] == "note"
    assert "stackmem reindex" in found(runtime, "index")[1]
    reindex(runtime.index)
    assert found(runtime, "index") == ("ok", "edge, vectors of use-512, 0 memories wait for it.")


@pytest.fixture
def world_rows() -> Callable[[], None]:
    def insert() -> None:
        at = "2026-07-23T01:00:00+00:00"
        times = dict.fromkeys(("occurred_at", "occurred_from", "occurred_to", "said_at", "created_at"), at)
        Memory.insert(
            id="mem_" + "0" * 26, owner="home", topic="猫", summary="猫", memory_type="episode", outdated=False,
            **{name: Memory._meta.fields[name].python_value(value) for name, value in times.items()},
        ).execute()  # fmt: skip

    return insert


def test_a_process_that_does_not_own_the_index_says_so(built: Built) -> None:
    assert found(built(owns_index=False), "index") == ("note", "The index belongs to another process.")


def test_an_embedder_that_is_down_fails_with_its_own_sentence(built: Built) -> None:
    away = {"embedding_base_url": "http://127.0.0.1:9/v1", "embedding_model": "m", "embedding_dim": 64}
    state, sentence = found(built(embedder="openai", **away), "embedder")
    assert state == "failed"
    assert "check STACKMEM_EMBEDDING_BASE_URL" in sentence


def test_the_models_are_asked_for_one_word(built: Built) -> None:
    with ScriptedServer(lambda _: say("やあ")) as server:
        runtime = built(chat_base_url=server.base_url, chat_model="qwen", memory_model="big")
        assert found(runtime, "chat model")[0] == "ok"
        assert found(runtime, "memory model")[1].startswith("big answered in ")
        assert {request.json["model"] for request in server.requests} == {"qwen", "big"}


def test_without_a_model_of_their_own_memories_are_the_chat_models(built: Built) -> None:
    with ScriptedServer(lambda _: say("やあ")) as server:
        runtime = built(chat_base_url=server.base_url, chat_model="qwen")
        assert found(runtime, "memory model") == ("ok", "Memories are made by the chat model.")
        assert len(server.requests) == 1


def test_a_key_that_is_refused_fails_with_the_setting(built: Built) -> None:
    with ScriptedServer(lambda _: error(401, "no such key")) as server:
        state, sentence = found(built(chat_base_url=server.base_url, chat_model="qwen"), "chat model")
    assert (state, "STACKMEM_CHAT_API_KEY" in sentence) == ("failed", True)


def test_a_database_that_takes_nothing_fails_with_its_words(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Runtime) -> Finding:
        raise peewee.OperationalError("database or disk is full")

    monkeypatch.setitem(doctor.CHECKS, "database", full)
    assert found(built(), "database") == ("failed", "The database did not take it: database or disk is full.")


class Int8:
    """An embedder whose precision was never measured."""

    fingerprint, floor = Fingerprint("qwen3", 64, precision="int8"), 0.0

    def load(self) -> None:
        pass

    def ready(self) -> bool:
        return True

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        return np.ones((len(texts), 64), np.float32) / 8

    embed_queries = embed_documents


def test_a_precision_that_was_never_measured_is_noted(built: Built) -> None:
    runtime = built()
    runtime.index.embedder = Int8()
    state, sentence = found(runtime, "embedder")
    assert (state, "run `stackmem bench embed`" in sentence) == ("note", True)
