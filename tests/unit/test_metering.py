"""What a meter is told, and what Prometheus reads of it."""

from pathlib import Path
from typing import Any

import pytest

from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.adapters.prometheus_meter import PrometheusMeter
from stackmem.backlog import backlog
from stackmem.circuit import FIRST_S, SLOW_S, Circuit
from stackmem.database import open_database
from stackmem.exceptions import PermanentError, TransientError
from stackmem.metering import MeteredChat, NoMeter
from stackmem.models import Session
from stackmem.persona import tools
from stackmem.ports import ChatAnswer, ChatRequest
from stackmem.witness import PATIENCE, absent, seen
from tests.fakes import FixedClock
from tests.scripted import ScriptedServer, call, content, error, say
from tests.unit.world import World

ASKED = ChatRequest([{"role": "user", "content": "やあ"}], "turn", 5.0)


def value(meter: PrometheusMeter, name: str, **labels: str) -> float:
    return meter.registry.get_sample_value(name, labels) or 0.0


def metered(server: ScriptedServer, meter: Any) -> MeteredChat:
    return MeteredChat(OpenAIChat(server.base_url, "key", "qwen"), meter)


def test_an_answered_call_counts_with_its_tokens() -> None:
    meter = PrometheusMeter()
    with ScriptedServer([content("a"), content("b")]) as server:
        chat = metered(server, meter)
        assert chat.name == "qwen"
        chat.complete(ASKED)
        assert isinstance(list(chat.stream(ASKED))[-1], ChatAnswer)
    assert value(meter, "stackmem_model_seconds_count", purpose="turn", outcome="answered") == 2
    assert value(meter, "stackmem_model_tokens_total", purpose="turn", kind="prompt") == 22
    assert value(meter, "stackmem_model_tokens_total", purpose="turn", kind="completion") == 14


def test_a_failed_call_counts_as_one_and_by_its_type() -> None:
    meter = PrometheusMeter()
    with ScriptedServer([error(401, "no"), error(401, "no")]) as server:
        chat = metered(server, meter)
        with pytest.raises(PermanentError):
            chat.complete(ASKED)
        with pytest.raises(PermanentError):
            list(chat.stream(ASKED))
    assert value(meter, "stackmem_model_seconds_count", purpose="turn", outcome="failed") == 2
    assert value(meter, "stackmem_errors_total", where="model", kind="PermanentError") == 2


def test_a_stream_that_is_given_up_is_no_failure() -> None:
    meter = PrometheusMeter()
    with ScriptedServer([content("あいうえおかきくけこ")]) as server:
        stream = metered(server, meter).stream(ASKED)
        assert isinstance(next(stream), str)
        stream.close()  # type: ignore[attr-defined]
    assert value(meter, "stackmem_model_seconds_count", purpose="turn", outcome="failed") == 0


@pytest.mark.parametrize("meter", [PrometheusMeter(), NoMeter()])
def test_a_turn_is_counted_and_nothing_of_its_words(tmp_path: Path, embedder: Any, meter: Any) -> None:
    database = open_database(f"sqlite:///{tmp_path}/x.db")
    with ScriptedServer([call("search_memory", {"query": "猫"}), say("はい"), error(401, "no")]) as server:
        with database.connection_context():
            world = World(embedder, metered(server, meter))
            object.__setattr__(world.conversation, "meter", meter)
            assert not world.say("覚えてる？").degraded
            assert world.say("もしもし").degraded
        database.close()
    if isinstance(meter, PrometheusMeter):
        assert value(meter, "stackmem_turn_seconds_count") == 2
        assert value(meter, "stackmem_degraded_turns_total") == 1
        assert value(meter, "stackmem_turn_part_seconds_count", part="model") == 2
        assert value(meter, "stackmem_tool_seconds_count", tool="search_memory") == 1
        labels = {text for family in meter.registry.collect() for s in family.samples for text in s.labels.values()}
        assert not any("猫" in text or "覚えてる" in text for text in labels)


def test_every_tool_has_its_own_line() -> None:
    meter = PrometheusMeter()
    for tool in tools("ja"):
        meter.spent("tool", tool["function"]["name"], 5.0)
        assert value(meter, "stackmem_tool_seconds_count", tool=tool["function"]["name"]) == 1
    meter.spent("tool", "猫", 5.0)
    assert value(meter, "stackmem_tool_seconds_count", tool="unknown") == 1


def test_the_backlog_counts_what_waits_of_all_owners(world: World) -> None:
    now = world.clock.now()
    assert backlog(now).oldest_pending_s == backlog(now).index_lag_s == 0
    assert not any(backlog(now).waiting.values())
    world.turns(3, "a")
    world.turn("やあ", session="b", owner="mari")
    world.memory("猫はミケ", compared=False)
    world.clock.advance(seconds=90)
    found = backlog(world.clock.now())
    assert found.turns == {"open": 0, "pending": 4, "kept": 1, "skipped": 0, "failed": 0}
    assert found.memories == {"active": 1, "superseded": 0, "forgotten": 0}
    assert found.waiting == {"look": 2, "index": 1, "compare": 1, "job": 0}
    assert (found.oldest_pending_s, found.index_lag_s, found.delayed_sessions) == (90, 90, 0)
    world.indexed()
    Session.update(delays=1).execute()
    found = backlog(world.clock.now())
    assert (found.waiting["index"], found.index_lag_s) == (0, 0)
    assert found.delayed_sessions == 3


def test_a_worker_is_seen_for_a_while(world: World) -> None:
    clock: FixedClock = world.clock
    assert absent(clock.now()) == ["live", "batch"]
    for _ in range(2):
        seen("live", clock.now())
        assert absent(clock.now()) == ["batch"]
        clock.advance(seconds=PATIENCE["live"].total_seconds() + 1)
        assert absent(clock.now()) == ["live", "batch"]


def test_a_circuit_says_why_it_is_open() -> None:
    now = 0.0

    def slow(_: Any) -> Any:
        nonlocal now
        now += SLOW_S
        return error(500, "down")

    with ScriptedServer(slow) as server:
        circuit = Circuit(OpenAIChat(server.base_url, "key", "qwen"), lambda: now)
        assert circuit.reason() == ""
        with pytest.raises(TransientError):
            circuit.complete(ASKED)
    assert "did not answer" in circuit.reason()
    now += FIRST_S
    assert circuit.reason() == ""
