"""A GGUF file's model: llama.cpp itself, in a process of its own, asked through the same client as any server."""

import json
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from stackmem.adapters import llama_server
from stackmem.adapters.llama_chat import LlamaChat
from stackmem.adapters.llama_server import LOADING, LlamaServer, check_model
from stackmem.exceptions import SettingsError, TransientError
from stackmem.ports import ChatAnswer, ChatRequest
from tests.running import PATIENCE, llamas_of, until
from tests.tiny_gguf import write_model

needs_llama = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra `local` is not installed")
MESSAGES = [{"role": "system", "content": "短く答える。"}, {"role": "user", "content": "こんにちは"}]
SCHEMA = {
    "type": "object",
    "properties": {"keep": {"type": "boolean"}, "kind": {"enum": ["event", "fact"]}},
    "required": ["keep", "kind"],
    "additionalProperties": False,
}
REMEMBER = ChatRequest(MESSAGES, "remember", PATIENCE, json_schema=SCHEMA)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def llama(model: Path) -> Iterator[LlamaServer]:
    server = LlamaServer(model, context=1024, threads=1)
    yield server
    server.close()


def kept(answer: ChatAnswer) -> bool:
    return set(json.loads(answer.content)) == {"keep", "kind"}


@needs_llama
def test_a_file_answers_in_the_wanted_shape_and_streams(llama: LlamaServer) -> None:
    chat = LlamaChat(llama, "tiny")
    answer = chat.complete(REMEMBER)  # waits for the loading
    assert kept(answer)
    assert answer.prompt_tokens > len("こんにちは") * 3  # of a vocabulary of bytes
    *pieces, whole = chat.stream(REMEMBER)
    assert isinstance(whole, ChatAnswer)
    assert "".join(map(str, pieces)).strip() == whole.content.strip()
    assert llama.reason() == ""
    chat.close()
    assert kept(chat.complete(REMEMBER))  # which opens new connections
    chat.close()


@needs_llama
def test_a_turn_does_not_wait_for_the_loading_and_is_told_why(llama: LlamaServer) -> None:
    assert llama.reason() == ""  # nobody has asked for it yet
    with pytest.raises(TransientError, match=LOADING):
        LlamaChat(llama, "tiny").complete(ChatRequest(MESSAGES, "turn", 10))
    assert llama.reason() == LOADING


@needs_llama
def test_who_has_no_key_is_refused(llama: LlamaServer, model: Path) -> None:
    other = LlamaServer(model, context=1024)  # of another user of this machine, never started
    llama.api_key, key = other.api_key, llama.api_key
    with pytest.raises(Exception, match="refused the key"):
        LlamaChat(llama, "tiny").complete(REMEMBER)
    llama.api_key = key


@needs_llama
def test_a_process_that_dies_is_started_again(llama: LlamaServer) -> None:
    chat = LlamaChat(llama, "tiny")
    first = llama.address(PATIENCE)
    (child,) = llamas_of(os.getpid())
    os.kill(child, signal.SIGKILL)
    until(llama.reason, "its end is noticed")
    assert llama.reason().startswith("The chat model does not run: llama.cpp ended (SIGKILL) and is started again")
    with pytest.raises(TransientError, match="started again"):
        chat.complete(REMEMBER)
    until(lambda: not llama.reason(), "it runs again")
    assert llama.address() != first
    assert kept(chat.complete(REMEMBER))
    chat.close()


@needs_llama
def test_it_ends_when_it_is_closed_loaded_or_not(llama: LlamaServer, model: Path) -> None:
    loading = LlamaServer(model, context=1024)
    for server, wait_s in ((llama, PATIENCE), (loading, 0)):
        try:
            server.address(wait_s)
        except TransientError:
            until(lambda: llamas_of(os.getpid()), "its process is there")
        server.close()
        assert llamas_of(os.getpid()) == []
        with pytest.raises(TransientError, match="The chat model was stopped"):
            server.address()


@needs_llama
def test_a_file_that_llama_cannot_load_is_said_in_its_own_words(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    check_model(broken)  # looks at its beginning only
    server = LlamaServer(broken, context=1024)
    with pytest.raises(TransientError, match=r"does not run: llama\.cpp cannot load broken\.gguf: .*gguf"):
        server.address(PATIENCE)
    server.close()


def test_a_process_that_cannot_be_started_is_a_reason_too(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    server = LlamaServer(model, context=1024)
    with pytest.raises(TransientError, match=r"llama\.cpp could not be started"):
        server.address(PATIENCE)
    server.close()


def test_what_is_no_model_is_refused_with_the_remedy(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    for path, sentence in (
        (tmp_path / "none.gguf", "cannot be read (No such file or directory); give the path of a GGUF file"),
        (tmp_path, "cannot be read (Is a directory)"),
        (tmp_path / "text.gguf", "is no GGUF file; give the path of one"),
    ):
        with pytest.raises(SettingsError) as caught:
            check_model(path)
        assert str(caught.value).startswith(f"STACKMEM_CHAT_BASE_URL is wrong: {path} {sentence}")
    monkeypatch.setattr(llama_server, "find_spec", lambda module: None)
    with pytest.raises(SettingsError, match=r"pip install -e '.\[local\]'`, or give a server's address"):
        check_model(model)
