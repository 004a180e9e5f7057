"""A robot with a model of its own: ``stackmem up`` runs a GGUF file, here one that talks rubbish."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.running import RunningServer, command, llamas_of, until
from tests.tiny_gguf import write_model

pytestmark = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra `local` is not installed")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("local")
    write_model(folder / "tiny.gguf")
    (folder / "home").mkdir()
    # Relative: of the working directory.
    with RunningServer(folder / "home", chat_base_url="gguf:tiny.gguf", gguf_threads="1") as server:
        yield server


def llama_of(server: RunningServer) -> int:
    (found,) = until(lambda: llamas_of(server.process.pid), "llama.cpp runs")
    return int(found)


def test_rubbish_is_still_a_valid_reply(local: RunningServer) -> None:
    until(lambda: local.get("/readyz") == (200, {"ready": True, "reasons": []}), "all is loaded")
    for mode in range(3):
        answer = local.say(f"おはよう、{mode}回目", "morning")
        assert answer["reply"]
        assert (answer["emotion"], answer["action"]) == ("neutral", "none") or not answer["degraded"]
        assert answer["model"] == "tiny"
    assert "tiny at gguf:" in local.said()


def test_the_model_ends_with_its_server_however_that_ends(local: RunningServer) -> None:
    killed = llama_of(local)
    local.kill()
    until(lambda: not Path(f"/proc/{killed}").exists(), "llama.cpp ends too")
    local.start()
    stopped = llama_of(local)
    until(lambda: local.status()["reasons"] == [], "the model is loaded again")
    assert local.stop() == 0
    assert not Path(f"/proc/{stopped}").exists()


def test_a_command_without_a_server_runs_it_too(home: Path) -> None:
    model = write_model(home.parent / "tiny.gguf")
    done = command(home, "chat", "--json", stdin="おはよう\n", chat_base_url=f"gguf:{model}", memory_model="offline")
    assert done.returncode == 0, done.stderr
    assert "Loading the chat model" in done.stderr
    assert json.loads(done.stdout)["model"] == "tiny"
