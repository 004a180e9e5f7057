"""``stackmem embed-server``: the embedder as a process of its own, and a stackmem that uses it."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from stackmem.adapters.openai_embedder import OpenAIEmbedder
from stackmem.adapters.use_embedder import UseEmbedder
from tests.running import RunningServer, command, environment, json_of, request, until

TEXTS = ["うちの猫の名前はミケっていうの", "", "RTX 3050 Ti", "a" * 5000, "NUL \x00 and 😀"]


@contextmanager
def embed_server(home: Path, *arguments: str, **settings: str) -> Iterator[str]:
    """Run the command on a free port while the block lasts; yield its address once it is loaded."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stackmem", "embed-server", "--port", "0", *arguments],
        env=environment(home, **settings),
        cwd=home.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout:
        try:
            line = process.stdout.readline()
            url = re.search(r"(http://\S+)/v1/embeddings", line)
            assert url is not None, line
            assert request("GET", f"{url[1]}/healthz")[0] == 200
            until(lambda: request("GET", f"{url[1]}/readyz")[0] == 200, "the model is loaded")
            yield url[1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("embed") / "home"
    home.mkdir()
    with embed_server(home) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_the_vectors_are_the_embedders_own_to_the_bit(url: str) -> None:
    embedder = OpenAIEmbedder(f"{url}/v1", "any", "whatever", 512, timeout_s=30)
    expected = UseEmbedder().embed_documents([text.replace("\x00", "\ufffd") for text in TEXTS])
    assert embedder.embed_documents(TEXTS) == pytest.approx(expected, abs=1e-6)
    assert embedder.embed_queries(TEXTS[:1]) == pytest.approx(expected[:1], abs=1e-6)
    embedder.close()


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
def test_the_openai_client_reads_both_encodings(client: openai.OpenAI, encoding_format: Any) -> None:
    answer = client.embeddings.create(model="m", input=["猫", "犬"], encoding_format=encoding_format, dimensions=512)
    assert (answer.object, answer.model, [item.index for item in answer.data]) == ("list", "use", [0, 1])
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
    if encoding_format == "float":
        assert len(answer.data[0].embedding) == 512
        assert np.linalg.norm(answer.data[0].embedding) == pytest.approx(1, abs=1e-5)


def test_one_text_is_one_vector_and_the_model_is_listed(client: openai.OpenAI) -> None:
    one = client.embeddings.create(model="m", input="猫").data[0].embedding
    again = client.embeddings.create(model="m", input=["犬", "猫"]).data[1].embedding
    assert one == again
    assert [model.id for model in client.models.list()] == ["use"]


@pytest.mark.parametrize(
    ("body", "status", "parameter"),
    [
        ({"input": []}, 400, "input"),
        ({}, 400, "input"),
        ({"input": [1, 2, 3]}, 400, "input"),
        ({"input": [[1, 2], [3]]}, 400, "input"),
        ({"input": {"a": 1}}, 400, "input"),
        ({"input": ["x"] * 2049}, 400, "input"),
        ({"input": "x", "encoding_format": "int8"}, 400, "encoding_format"),
        ({"input": "x", "dimensions": 256}, 400, "dimensions"),
        ([1], 400, None),
        (b"{", 400, None),
        (b"x" * (17 * 1024 * 1024), 413, None),
    ],
)
def test_a_wrong_request_is_told_in_openais_shape(url: str, body: Any, status: int, parameter: str | None) -> None:
    got, answer = request("POST", f"{url}/v1/embeddings", body)
    assert got == status
    assert (answer["error"]["type"], answer["error"]["param"]) == ("invalid_request_error", parameter)
    assert answer["error"]["message"].endswith(".")


def test_an_unknown_address_or_method_is_told_in_openais_shape(url: str) -> None:
    for method, path, status in (("GET", "/v1/nothing", 404), ("GET", "/v1/embeddings", 405)):
        got, answer = request(method, url + path)
        assert (got, set(answer["error"])) == (status, {"message", "type", "param", "code"})


def test_what_came_through_a_proxy_needs_a_devices_token(tmp_path: Path) -> None:
    home = tmp_path / "home"
    token = json_of(home, "devices", "add", "laptop")["token"]
    with embed_server(home) as url:
        body, far = {"input": "x"}, {"X-Forwarded-For": "192.0.2.7"}
        status, answer = request("POST", f"{url}/v1/embeddings", body, far)
        assert (status, answer["error"]["type"]) == (401, "authentication_error")
        assert request("POST", f"{url}/v1/embeddings", body, far | {"Authorization": f"Bearer {token}"})[0] == 200


def test_a_stackmem_remembers_and_finds_through_it(url: str, home: Path) -> None:
    settings = {
        "embedder": "openai", "embedding_base_url": f"{url}/v1", "embedding_model": "use", "embedding_dim": "512",
        "embedding_timeout_s": "30",
    }  # fmt: skip
    with RunningServer(home, **settings) as server:
        server.say("うちの猫の名前はミケっていうの", "s")
        server.post("/v1/sessions/s/close")
        assert (
            server.settle()["index"] | {"embedder": "openai-use", "dim": 512, "points": 1} == server.status()["index"]
        )
        assert "ミケ" in server.say("うちの猫の名前、なんだったっけ", "t")["reply"]


def test_a_turn_is_answered_while_the_embedder_is_down(home: Path) -> None:
    settings = {
        "embedder": "openai", "embedding_base_url": "http://127.0.0.1:9/v1", "embedding_model": "m",
        "embedding_dim": "64",
    }  # fmt: skip
    with RunningServer(home, **settings) as server:
        answer = server.say("うちの猫の名前、なんだったっけ", "s")
        _, turn = server.get(f"/v1/turns/{answer['turn_id']}")
        assert answer["reply"]
        assert answer["searched"]
        assert "cannot be reached" in json.dumps(turn["trace"], ensure_ascii=False)


def test_what_it_cannot_serve_is_said_in_one_line(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = command(home, "embed-server", "--port", "0", embedder="openai")
    assert (done.returncode, "STACKMEM_EMBEDDER is wrong" in done.stderr) == (1, True)
    done = command(home, "embed-server", "--host", "0.0.0.0", "--port", "0")
    assert (done.returncode, "Not started" in done.stderr) == (1, True)
