"""A server and commands over an index on a Qdrant server (a stand-in on the wire)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.qdrant_standin import QdrantStandin
from tests.running import RunningServer, command, json_of

KEY = "secret-key"


@pytest.fixture
def standin() -> Iterator[QdrantStandin]:
    with QdrantStandin(KEY) as standin:
        yield standin


def test_memories_live_on_the_server_and_commands_find_them(home: Path, standin: QdrantStandin) -> None:
    shared = {"index_url": f"{standin.url}#robot", "index_api_key": KEY}
    with RunningServer(home, **shared) as server:
        server.say("うちの猫の名前はミケっていうの", "s")
        server.post("/v1/sessions/s/close")
        index = server.settle()["index"]
        assert (index["kind"], index["points"]) == ("server", 1)
        assert server.say("うちの猫の名前、なんだったっけ", "t")["searched"]
        assert KEY not in server.said()
        assert standin.url in server.said()
    assert json_of(home, "memories", "search", "猫", **shared)["count"] == 1  # alone, while nothing runs
    assert json_of(home, "reindex", **shared) == {"points": 1}
    assert json_of(home, "doctor", "--deep", **shared)["drift"]["points"] == 1
    assert [each.name.split(".")[0] for each in standin.client.get_collections().collections] == ["robot"]


def test_a_server_that_is_away_is_said_in_one_sentence(home: Path, standin: QdrantStandin) -> None:
    done = command(home, "memories", "search", "猫", index_url="http://127.0.0.1:9")
    assert done.returncode == 1
    assert "check STACKMEM_INDEX_URL" in done.stderr.splitlines()[-1]
    done = command(home, "memories", "search", "猫", index_url=standin.url, index_api_key="wrong")
    assert done.returncode == 1
    assert "STACKMEM_INDEX_API_KEY" in done.stderr
