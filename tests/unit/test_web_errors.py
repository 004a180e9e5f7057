"""What goes wrong inside is one sentence outside; and what the terminal says about addresses."""

import logging
import socket
from types import SimpleNamespace
from typing import Any

import peewee
import pytest
from flask import Flask

from stackmem.config import load_settings
from stackmem.exceptions import Busy, Conflict, InvalidInput, NotFound, TransientError
from web import banner as banners
from web import problems
from web.banner import banner, is_loopback, lan_address, local_url


def answer_to(error: Exception) -> Any:
    """Return the answer of an app whose only address fails like this."""
    app = Flask("test")
    problems.register(app)

    def fail() -> str:
        raise error

    app.add_url_rule("/x", view_func=fail)
    return app.test_client().get("/x")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInput("Not so."), 400),
        (NotFound(), 404),
        (Conflict(), 409),
        (TransientError(), 503),
        (Busy(), 503),
        (peewee.OperationalError("database is locked"), 503),
        (peewee.InterfaceError("closed"), 503),
        (ZeroDivisionError("secret"), 500),
    ],
)
def test_every_error_is_a_problem_of_one_sentence(error: Exception, status: int, caplog: Any) -> None:
    caplog.set_level(logging.CRITICAL)
    answer = answer_to(error)
    assert answer.status_code == status
    assert answer.content_type == "application/problem+json"
    assert set(answer.json) == {"type", "title", "status", "detail"}
    assert answer.json["detail"].endswith(".")
    assert "secret" not in answer.text
    assert "locked" not in answer.text


def test_a_sentence_with_half_a_character_still_goes_out() -> None:
    assert answer_to(InvalidInput("\ud800?")).json["detail"] == "�?"


@pytest.mark.parametrize(
    ("address", "loopback", "url"),
    [
        ("127.0.0.1", True, "http://127.0.0.1:1"),
        ("127.9.9.9", True, "http://127.9.9.9:1"),
        ("::1", True, "http://[::1]:1"),
        ("0.0.0.0", False, "http://127.0.0.1:1"),
        ("::", False, "http://[::1]:1"),
        ("192.168.1.7", False, "http://192.168.1.7:1"),
        ("fe80::1%eth0", False, "http://[fe80::1%eth0]:1"),
    ],
)
def test_this_machine_knows_how_to_reach_what_it_listens_on(address: str, loopback: bool, url: str) -> None:
    assert is_loopback((address, 1)) == loopback
    assert local_url((address, 1)) == url


def said(monkeypatch: pytest.MonkeyPatch, lan: str | None, address: str, *, insecure: bool = False, **more: Any) -> str:
    monkeypatch.setattr(banners, "lan_address", lambda: lan)
    index = SimpleNamespace(kind="edge", embedder=SimpleNamespace(fingerprint="use-512"))
    chat = SimpleNamespace(name="qwen3" if more else "offline")
    runtime: Any = SimpleNamespace(index=index, persona=SimpleNamespace(name="X"), chat=chat)
    return banner(load_settings(**more), runtime, (address, 8765), insecure=insecure)


def test_the_terminal_says_where_the_robot_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "http://192.168.1.7:8765/v1/turns" in said(monkeypatch, "192.168.1.7", "0.0.0.0")
    assert "http://192.168.1.7:8765/kai" in said(monkeypatch, "192.168.1.7", "0.0.0.0")
    assert "http://192.168.1.9:8765/v1/turns" in said(monkeypatch, "192.168.1.7", "192.168.1.9")
    assert "its address will be http://192.168.1.7:8765/v1/turns" in said(monkeypatch, "192.168.1.7", "127.0.0.1")
    assert "this machine's address" in said(monkeypatch, None, "0.0.0.0")
    assert "its address will be" not in said(monkeypatch, None, "127.0.0.1")
    assert "no token is asked for" in said(monkeypatch, None, "0.0.0.0", insecure=True)


def test_the_terminal_says_which_model_answers_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"chat_base_url": "http://127.0.0.1:8080/v1", "chat_model": "qwen3", "chat_api_key": "sk-secret"}
    database = {"database_url": "postgresql://me:secret@host/db", "broker_url": "amqp://me:secret@host//"}
    text = said(monkeypatch, None, "127.0.0.1", **settings, **database)
    assert "model     qwen3 at http://127.0.0.1:8080/v1" in text
    assert "secret" not in text


def test_without_a_network_there_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreachable(socket.socket):
        def connect(self, *_: object) -> None:
            raise OSError("Network is unreachable")

    monkeypatch.setattr(banners.socket, "socket", Unreachable)
    assert lan_address() is None
