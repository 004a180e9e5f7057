"""What OpenAIChat makes of refusals and failures; "row" as in docs/chat-models.md."""

import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.exceptions import ContentRefused, PermanentError, TransientError
from tests.contract.chatting import (
    KEY,
    SAID,
    YES,
    ask,
    chatting,
)
from tests.scripted import Answer, drip, error, hang, raw, reset, slow


@pytest.mark.parametrize(
    "body",
    [
        {"errors": {"message": "the model is on holiday", "code": 7}},
        {"error": {"message": "the model is on holiday", "type": "odd"}},
        {"error": "the model is on holiday"},
        {"detail": [{"loc": ["body"], "msg": "the model is on holiday", "input": "secret words"}]},
        {"message": "the model is on  holiday\n"},
    ],
)
def test_row_3_every_shape_of_error_body_gives_the_same_clear_message(body: Any) -> None:
    with chatting([error(400, body)]) as (chat, _), pytest.raises(PermanentError) as caught:
        ask(chat)
    assert "STACKMEM_CHAT_EXTRA_BODY (HTTP 400: the model is on holiday)." in str(caught.value)


def test_row_3_an_error_inside_a_success_counts_as_the_error_it_is() -> None:
    rate = {"error": {"message": "slow down", "code": 429}}
    with chatting([raw(rate), raw({"error": "down"}), raw({"errors": {"code": 401}})]) as (chat, _):
        with pytest.raises(TransientError, match="over its rate"):
            ask(chat)
        with pytest.raises(TransientError, match="HTTP 500: down"):
            ask(chat)
        with pytest.raises(PermanentError, match="_API_KEY"):
            ask(chat)


@pytest.mark.parametrize(
    "answer",
    [
        error(400, {"errors": {"message": "Model id : qwen3 , has no provider supported"}}),
        error(404, 'model "qwen3" not found, try pulling it first'),
        error(404, {"error": {"message": "The model `qwen3` does not exist.", "code": 404}}),
        error(400, "registry.ollama.ai/library/qwen3 does not support tools: model without tools, not supported"),
    ],
)
def test_row_4_a_retired_model_is_permanent_and_names_the_setting(answer: Answer) -> None:
    with chatting([answer], setting_prefix="STACKMEM_MEMORY") as (chat, server):
        with pytest.raises(PermanentError, match="STACKMEM_MEMORY_MODEL"):
            ask(chat, purpose="turn")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        error(402, "Insufficient Balance"),
        error(429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}),
        error(429, "余额不足或无可用资源包,请充值。"),
        error(400, {"error": {"message": "Access denied.", "code": "Arrearage"}}),
    ],
)
def test_row_5_no_balance_is_permanent_and_not_tried_again(answer: Answer) -> None:
    with chatting([answer]) as (chat, server):
        with pytest.raises(PermanentError, match=r"wants to be paid.*STACKMEM_CHAT_API_KEY"):
            ask(chat, purpose="turn")
        assert len(server.requests) == 1


def test_row_5_a_rate_limit_is_transient_and_keeps_its_retry_after() -> None:
    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    waits = ["12", in_an_hour, "soon", "-3", "inf"]
    kept = []
    with chatting([error(429, "Too many requests", Retry_After=wait) for wait in waits]) as (chat, _):
        for _ in waits:
            with pytest.raises(TransientError, match="over its rate") as caught:
                ask(chat)
            kept.append(caught.value.retry_after_s)
    assert kept == [12, pytest.approx(3600, abs=60), None, 0, None]


def test_row_5_a_live_turn_does_not_wait_longer_than_half_of_its_time() -> None:
    with chatting([error(429, "Too many requests", Retry_After="11"), YES]) as (chat, server):
        with pytest.raises(TransientError, match="over its rate"):
            ask(chat, purpose="turn", s=20)
        assert len(server.requests) == 1


def test_row_6_a_real_completion_finds_the_bad_key_that_the_list_of_models_does_not() -> None:
    import openai

    with chatting([error(401, f"Incorrect API key provided: {KEY}")]) as (chat, server):
        with openai.OpenAI(base_url=server.base_url, api_key="bad", max_retries=0) as client:
            assert client.models.list().data
        with pytest.raises(PermanentError, match="STACKMEM_CHAT_API_KEY"):
            ask(chat)


# --- refusals and failures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "data_inspection_failed", "message": "Input data may contain inappropriate content."}},
        {"errors": {"message": "<400> InternalError.Algo.DataInspectionFailed: Input text data may contain ..."}},
        {"error": {"code": "content_filter", "message": "The response was filtered"}},
    ],
)
def test_row_22_words_that_the_service_will_not_read_have_an_error_of_their_own(body: Any) -> None:
    with chatting([error(400, body)]) as (chat, server):
        with pytest.raises(ContentRefused, match="will not read these words"):
            ask(chat, purpose="turn")
        assert len(server.requests) == 1


def test_row_22_an_answer_held_back_by_a_filter_is_the_same_error() -> None:
    held_back = {"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}
    with chatting([raw(held_back)]) as (chat, _), pytest.raises(ContentRefused):
        ask(chat)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_row_23_a_server_that_fails_is_transient(status: int) -> None:
    with chatting([error(status, "out of order", Retry_After="7")]) as (chat, server):
        with pytest.raises(TransientError, match=f"HTTP {status}: out of order") as caught:
            ask(chat)
        assert caught.value.retry_after_s == 7
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "setting"),
    [
        (error(401, "no"), "API_KEY"),
        (error(403, "no"), "API_KEY"),
        (error(400, "Incorrect API key"), "API_KEY"),
        (error(404, {"detail": "Not Found"}), "BASE_URL"),
        (error(405, ""), "BASE_URL"),
        (raw(b"<!doctype html><p>Welcome"), "BASE_URL"),
        (Answer(404, b"<html>nginx</html>"), "BASE_URL"),
        (Answer(304, b""), "BASE_URL"),
        (error(422, "temperature is odd"), "EXTRA_BODY"),
        (Answer(400, b"plain words"), "EXTRA_BODY"),
    ],
)
def test_row_23_a_refusal_is_permanent_and_names_the_setting_to_change(answer: Answer, setting: str) -> None:
    with chatting([answer], setting_prefix="STACKMEM_JUDGE") as (chat, server):
        with pytest.raises(PermanentError, match=f"STACKMEM_JUDGE_{setting}") as caught:
            ask(chat, purpose="turn")
        assert len(server.requests) == 1
    assert "<" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_row_23_an_unreachable_server_is_transient_and_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    chat = OpenAIChat(f"http://user:password@127.0.0.1:{port}/v1", KEY, "qwen3")
    with pytest.raises(TransientError, match=f"127.0.0.1:{port} cannot be reached.*STACKMEM_CHAT_BASE_URL") as caught:
        ask(chat)
    chat.close()
    assert "password" not in str(caught.value)


def test_row_23_a_connection_reset_in_the_middle_of_the_body_is_transient() -> None:
    with chatting([reset(), YES]) as (chat, _):
        with pytest.raises(TransientError, match="broke off"):
            ask(chat)
        assert ask(chat).content == SAID


@pytest.mark.parametrize("body", [b'{"choices": [{"mess', b"", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_row_23_a_broken_body_is_transient(body: bytes) -> None:
    with chatting([raw(body)]) as (chat, _), pytest.raises(TransientError):
        ask(chat)


def test_a_body_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackmem.adapters.openai_chat._BODY_LIMIT", 1000)
    with chatting([raw(b" " * 5000)]) as (chat, _), pytest.raises(TransientError):
        ask(chat)


@pytest.mark.parametrize("answer", [hang(), drip(b" " * 10_000, 0.05), slow(60, YES)], ids=["hang", "drip", "slow"])
def test_row_23_no_call_lasts_longer_than_its_deadline(answer: Answer) -> None:
    with chatting([answer]) as (chat, _):
        began = time.monotonic()
        with pytest.raises(TransientError, match="did not answer in time"):
            ask(chat, s=0.5, purpose="turn")
        assert 0.4 < time.monotonic() - began < 2


def test_a_deadline_that_is_over_asks_nothing() -> None:
    with chatting([YES]) as (chat, server):
        with pytest.raises(TransientError, match="in time"):
            ask(chat, s=0)
        assert server.requests == []


@pytest.mark.parametrize("answer", [hang(), drip(b" " * 10_000, 0.01)], ids=["hang", "drip"])
def test_nothing_goes_on_behind_a_call_that_was_given_up(answer: Answer) -> None:
    with chatting([answer]) as (chat, server):
        with pytest.raises(TransientError):
            ask(chat, s=2.5)
        for thread in threading.enumerate():
            if thread.name == "chat":
                thread.join(10)
        assert "chat" not in {thread.name for thread in threading.enumerate()}
        assert not server.stopping.is_set()  # it was the call that ended, not the server that ended it


@pytest.mark.parametrize(
    "problem", [error(500, "down"), reset(), raw({"choices": None}), error(429, "", Retry_After="0")]
)
def test_a_failure_in_a_live_turn_is_tried_once_more_where_there_is_time(problem: Answer) -> None:
    with chatting([problem, YES]) as (chat, server):
        assert ask(chat, purpose="turn").content == SAID
        assert len(server.requests) == 2
    with chatting([problem, problem, YES]) as (chat, server):
        with pytest.raises(TransientError):
            ask(chat, purpose="turn")
        assert len(server.requests) == 2


def test_a_failure_in_a_live_turn_is_not_tried_again_where_less_than_half_of_the_time_is_left() -> None:
    with chatting([slow(0.6, error(500, "down")), YES]) as (chat, server):
        with pytest.raises(TransientError, match="down"):
            ask(chat, purpose="turn", s=1)
        assert len(server.requests) == 1


def test_a_failure_in_the_background_is_left_to_the_queue() -> None:
    with chatting([error(500, "down"), YES]) as (chat, server):
        with pytest.raises(TransientError):
            ask(chat, purpose="judge")
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_the_key_is_in_no_error_and_in_none_of_its_causes(status: int) -> None:
    echo = "x" * 295 + f" your key {KEY} is odd"  # where the message is cut, too
    with chatting([error(status, echo)]) as (chat, _), pytest.raises((PermanentError, TransientError)) as caught:
        ask(chat)
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "sk-very" not in repr(shown)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    assert KEY not in repr(vars(chat)["_complaints"])
