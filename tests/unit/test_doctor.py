"""Every check of the doctor tries its part for real, and says what to do."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import peewee
import pytest
from click.testing import CliRunner
from playhouse.pool import PooledDatabase

from stackmem import doctor
from stackmem.bootstrap import Runtime, build
from stackmem.cli import common, main
from stackmem.config import load_settings
from stackmem.doctor import checks, examine, tried
from stackmem.findings import Finding
from stackmem.models import Lease, Memory, Session, Turn
from stackmem.ports import Fingerprint, Vector
from stackmem.reindexing import reindex
from stackmem.surroundings import files_under
from stackmem.witness import seen
from tests import shapes
from tests.fakes import FixedClock
from tests.scripted import Answer, ScriptedServer, call, error, say, speech, transcript
from tests.services import Postgres, RabbitMQ, Redis, required

SEARCH = call("search_memory", {"query": "猫の名前"})

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
        if isinstance(runtime.database, PooledDatabase):  # closing gave the index back, over one more connection
            runtime.database.close_all()


def found(runtime: Runtime, name: str) -> tuple[str, str]:
    finding = tried(checks()[name], runtime)
    return finding.state, finding.sentence


def test_all_defaults_pass_every_check_or_are_noted(built: Built) -> None:
    states = {check["name"]: check["state"] for check in examine(built())}
    assert states == {
        "settings": "ok", "clock": "ok", "disk": "ok", "database": "ok", "index": "ok", "embedder": "ok",
        "chat model": "note", "memory model": "note", "judge model": "note", "ears": "note", "voice": "note",
        "broker": "ok",
    }  # fmt: skip
    assert (
        found(built(owns_index=False), "judge model")[1]
        == "No turn is judged: only those that a chat model answers are."
    )
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
    with ScriptedServer(lambda asked: SEARCH if "tools" in asked else say("やあ")) as server:
        runtime = built(chat_base_url=server.base_url, chat_model="qwen", memory_model="big", judge_model="wise")
        findings = {check["name"]: check for check in examine(runtime)}
        assert {findings[name]["state"] for name in ("chat model", "memory model", "judge model")} == {"ok"}
        assert findings["memory model"]["sentence"].startswith("big answered in ")
        assert {request.json["model"] for request in server.requests if request.json} == {"qwen", "big", "wise"}


def test_without_a_model_of_their_own_memories_are_the_chat_models(built: Built) -> None:
    with ScriptedServer(lambda _: say("やあ")) as server:
        runtime = built(chat_base_url=server.base_url, chat_model="qwen")
        assert found(runtime, "memory model") == ("ok", "Memories are made by the chat model.")
        assert found(runtime, "judge model") == ("ok", "Turns are judged by the chat model.")
        assert server.requests == []
    assert found(built(owns_index=False, judge_calls_per_day=0), "judge model")[0] == "ok"


@pytest.mark.parametrize(
    ("mode", "answer", "state", "words"),
    [
        ("native", say("ミケだよ"), "note", "did not call search_memory: if it never does"),
        ("auto", say("ミケだよ"), "ok", "qwen answered in"),
        ("json", say("ミケだよ"), "ok", "qwen answered in"),
        ("native", error(400, "this model does not support tools"), "failed", "set STACKMEM_TOOL_MODE=json"),
        ("auto", error(400, "this model does not support tools"), "note", "STACKMEM_TOOL_MODE=json"),
    ],
)
def test_the_model_that_talks_is_asked_what_it_must_look_up(
    built: Built, mode: str, answer: Answer, state: str, words: str
) -> None:
    with ScriptedServer(lambda _: answer) as server:
        now, sentence = found(built(chat_base_url=server.base_url, chat_model="qwen", tool_mode=mode), "chat model")
    assert (now, words in sentence) == (state, True), sentence


def test_ears_and_voice_are_tried(built: Built) -> None:
    def answering(asked: Any) -> Answer:
        return speech() if asked and "voice" in asked else transcript("language None<asr_text>")

    with ScriptedServer(answering) as server:
        runtime = built(asr_base_url=server.base_url, tts_base_url=server.base_url)
        assert found(runtime, "ears")[0] == "ok"
        assert found(runtime, "voice")[0] == "ok"
    assert [found(runtime, name)[0] for name in ("ears", "voice")] == ["failed", "failed"]


def test_words_heard_in_silence_are_noted(built: Built) -> None:
    with ScriptedServer(lambda _: transcript("ご視聴ありがとうございました")) as server:
        state, sentence = found(built(asr_base_url=server.base_url), "ears")
    assert (state, "「ご視聴ありがとうございました」" in sentence) == ("note", True)


def test_a_point_that_is_not_found_fails_with_the_remedy(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = built()
    reindex(runtime.index)
    assert found(runtime, "index")[0] == "ok"
    current = runtime.index.current
    assert current
    assert list(current.scan()) == []
    monkeypatch.setattr(type(current), "upsert", lambda self, points: None)  # a disk that swallows what it is given
    assert found(runtime, "index") == (
        "failed", "A point that was written is not found: `stackmem reindex` makes the index anew.",
    )  # fmt: skip


@pytest.mark.parametrize(("minutes", "word"), [(30, "30 min ahead of the model's server"), (-9, "9 min behind")])
def test_a_clock_that_differs_from_the_models_server_is_noted(built: Built, minutes: int, word: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:  # 501 for everything, with its time
        threading.Thread(target=server.serve_forever).start()
        runtime = built(chat_base_url=f"http://127.0.0.1:{server.server_port}/v1", chat_model="qwen")
        assert found(runtime, "clock")[0] == "ok"
        runtime.clock = FixedClock(datetime.now(UTC) + timedelta(minutes=minutes))
        state, sentence = found(runtime, "clock")
        server.shutdown()
    assert (state, word in sentence, "timedatectl" in sentence) == ("note", True, True), sentence
    assert found(runtime, "clock")[0] == "ok"  # the server is away: its own check tells


def test_a_clock_that_went_back_is_noted(built: Built, world_turn: Callable[[datetime], None]) -> None:
    runtime = built()
    world_turn(runtime.clock.now() + timedelta(minutes=61))
    state, sentence = found(runtime, "clock")
    assert (state, "61 min later than that: the clock has gone back" in sentence) == ("note", True)


@pytest.fixture
def world_turn() -> Callable[[datetime], None]:
    def insert(at: datetime) -> None:
        session = Session.create(owner="home", name="s", seq=1, named=True, started_at=at, received_at=at)
        Turn.create(
            uid="u", session=session, ordinal=0, owner="home", at=at, received_at=at, user="猫", state="skipped"
        )

    return insert


@pytest.mark.parametrize(("free", "state"), [(99_000_000, "failed"), (500_000_000, "note"), (2_000_000_000, "ok")])
def test_a_disk_that_is_nearly_full_is_told(
    built: Built, monkeypatch: pytest.MonkeyPatch, free: int, state: str
) -> None:
    runtime = built()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    now, sentence = found(runtime, "disk")
    assert (now, "a full disk takes no turn" in sentence) == (state, state != "ok")


@pytest.mark.parametrize("kind", [Redis, RabbitMQ])
def test_a_message_goes_to_the_broker_and_back(built: Built, kind: type[Redis] | type[RabbitMQ]) -> None:
    required(kind)
    runtime = built(owns_index=False, broker_url=shapes.running(kind).url())
    state, sentence = found(runtime, "broker")
    assert (state, "no worker has been seen on live and batch" in sentence) == ("note", True), sentence
    assert "guest" not in sentence
    for queue in ("live", "batch"):
        seen(queue, runtime.clock.now())
    assert found(runtime, "broker")[0] == "ok"


def test_a_broker_that_is_away_fails_with_the_setting(built: Built) -> None:
    for url in ("amqp://guest:geheim@127.0.0.1:9//", "redis://:geheim@127.0.0.1:9/0"):
        state, sentence = found(built(owns_index=False, broker_url=url), "broker")
        assert (state, "check STACKMEM_BROKER_URL" in sentence, "geheim" in sentence) == ("failed", True, False)


@pytest.mark.parametrize("shift_s", [0, 600])
def test_the_databases_clock_is_looked_at(
    built: Built, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, shift_s: int
) -> None:
    runtime = built(database_url=postgres_server.create(f"doctor{shift_s}"))
    runtime.clock = FixedClock(datetime.now(UTC) + timedelta(seconds=shift_s))
    state, sentence = found(runtime, "clock")
    assert (state, "10 min ahead of the database's server" in sentence) == (
        ("note", True) if shift_s else ("ok", False)
    )


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


def test_beside_a_web_process_that_cannot_be_asked_all_but_its_index_is_tried(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "LOCK_WAIT", 0)
    monkeypatch.setenv("STACKMEM_HOME", str(tmp_path / "home"))
    built()  # as under waitress-serve: it owns the index, and leaves no key
    done = CliRunner().invoke(main, ["doctor", "--json"])
    found = {check["name"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    assert (done.exit_code, found["index"], found["database"]) == (0, "note", "ok")


def test_what_is_deleted_while_a_folder_is_walked_through_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    found = []
    for path in files_under(tmp_path):
        found.append(path.parent.name)
        shutil.rmtree(tmp_path / ("b" if path.parent.name == "a" else "a"))
    assert len(found) == 1
