"""OpenAIChat keeps the contract of ChatModel with every server seen in the wild; "row" as in docs/chat-models.md."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from stackmem.adapters.openai_chat import ContentRefused, OpenAIChat
from stackmem.exceptions import PermanentError, SettingsError, TransientError
from stackmem.ports import ChatAnswer, ChatRequest, ToolCall
from tests.scripted import (
    Answer,
    Script,
    ScriptedServer,
    call,
    calls,
    content,
    drip,
    error,
    hang,
    raw,
    reset,
    say,
    slow,
)

KEY = "sk-very-secret"
SEARCH = {"type": "function", "function": {"name": "search_memory", "parameters": {"type": "object"}}}
READ = {"type": "function", "function": {"name": "read_memory_source", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"keep": {"type": "boolean"}}}
HELLO = [{"role": "system", "content": "You are a robot. Answer in JSON."}, {"role": "user", "content": "こんにちは"}]
SAID = '{"reply": "はい", "emotion": "neutral", "action": "none"}'
YES = say("はい")
CALL_TEXT = '{"name": "search_memory", "arguments": {"query": "PC"}}'


@contextmanager
def chatting(script: Script, **options: Any) -> Iterator[tuple[OpenAIChat, ScriptedServer]]:
    with ScriptedServer(script) as server:
        chat = OpenAIChat(server.base_url, KEY, "qwen3", **options)
        try:
            yield chat, server
        finally:
            chat.close()


def ask(
    chat: OpenAIChat, *, messages: Any = HELLO, purpose: Any = "remember", s: float = 20, **more: Any
) -> ChatAnswer:
    return chat.complete(ChatRequest(messages=messages, purpose=purpose, timeout_s=s, **more))


def ask_with_tools(chat: OpenAIChat, **more: Any) -> ChatAnswer:
    return ask(chat, tools=[SEARCH, READ], **more)


def answer_to(answer: Answer, **more: Any) -> ChatAnswer:
    """Return what the adapter makes of one answer of a server, tools offered."""
    with chatting([answer]) as (chat, _):
        return ask_with_tools(chat, **more)


def sent_for(messages: Any, **more: Any) -> Any:
    """Return the messages that reach the server."""
    with chatting([YES]) as (chat, server):
        ask(chat, messages=messages, **more)
        return server.requests[0].json["messages"]


def bodies(server: ScriptedServer) -> list[Any]:
    return [request.json for request in server.requests]


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_a_plain_request_holds_model_messages_and_thinking_off_and_nothing_else() -> None:
    with chatting([YES]) as (chat, server):
        assert ask(chat) == ChatAnswer(SAID, (), 11, 7)
        assert bodies(server) == [{"model": "qwen3", "messages": HELLO, "enable_thinking": False}]
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert chat.name == "qwen3"


def test_row_1_a_server_that_refuses_enable_thinking_is_asked_in_its_own_way_from_then_on() -> None:
    def script(body: Any) -> Answer:
        refused = [
            {"type": "extra_forbidden", "loc": ["body", "enable_thinking"], "msg": "Extra inputs are not permitted"}
        ]
        return error(400, {"detail": refused}) if "enable_thinking" in body else YES

    with chatting(script) as (chat, server):
        ask(chat)
        ask(chat)
        first, second, third = bodies(server)
    assert first["enable_thinking"] is False
    assert second["chat_template_kwargs"] == third["chat_template_kwargs"] == {"enable_thinking": False}
    assert "enable_thinking" not in second


def test_row_1_a_server_that_knows_neither_key_gets_neither() -> None:
    def script(body: Any) -> Answer:
        unknown = {"enable_thinking", "chat_template_kwargs"} & set(body)
        return error(400, f"Unrecognized request argument supplied: {unknown}") if unknown else YES

    with chatting(script) as (chat, server):
        ask(chat)
        ask(chat)
        assert [set(body) - {"model", "messages"} for body in bodies(server)[2:]] == [set(), set()]
        assert len(server.requests) == 4


def test_row_1_a_server_that_insists_on_enable_thinking_is_found_again_after_it_thought_aloud() -> None:
    def script(body: Any) -> Answer:
        if "enable_thinking" not in body:
            return error(400, "parameter.enable_thinking must be set to false for non-streaming calls")
        return content(SAID, reasoning_content="えーと")

    with chatting(script) as (chat, server):
        for _ in range(3):
            assert ask(chat).content == SAID
        assert ["enable_thinking" in body for body in bodies(server)] == [True, False, False, True, True]


@pytest.mark.parametrize("thinking", [content(f"<think>うーん</think>{SAID}"), content(SAID, reasoning="うーん")])
def test_row_1_a_server_that_ignores_enable_thinking_is_asked_the_other_way_the_next_time(thinking: Answer) -> None:
    with chatting([thinking, thinking, YES]) as (chat, server):
        for _ in range(3):
            assert ask(chat).content == SAID
        sent = bodies(server)
    assert "enable_thinking" in sent[0]
    assert all("chat_template_kwargs" in body for body in sent[1:])


def test_row_1_an_empty_thinking_block_is_no_thinking() -> None:
    with chatting([content(f"<think>\n\n</think>\n\n{SAID}"), YES]) as (chat, server):
        ask(chat)
        ask(chat)
        assert all("enable_thinking" in body for body in bodies(server))


def test_row_1_the_users_own_extra_body_is_sent_exactly_and_never_changed() -> None:
    with chatting([YES, error(400, "unknown parameter: top_k (thinking)")], extra_body={"top_k": 5}) as (chat, server):
        ask(chat)
        with pytest.raises(PermanentError, match="STACKMEM_CHAT_EXTRA_BODY"):
            ask(chat)
        assert [set(body) for body in bodies(server)] == [{"model", "messages", "top_k"}] * 2
    with chatting([YES], extra_body={}) as (chat, server):
        ask(chat)
        assert set(bodies(server)[0]) == {"model", "messages"}


@pytest.mark.parametrize("choices", [None, [], [None], [{"message": None}]])
def test_row_2_an_answer_without_choices_is_asked_once_more_without_response_format(choices: Any) -> None:
    with chatting([raw({"choices": choices}), YES, YES]) as (chat, server):
        assert ask(chat, json_schema=SCHEMA).content == SAID
        ask(chat, json_schema=SCHEMA)
        formats = [body.get("response_format", {}).get("type") for body in bodies(server)]
    assert formats == ["json_schema", None, "json_object"]


def test_row_2_an_answer_without_choices_again_is_transient() -> None:
    with chatting([raw({"choices": None})] * 2) as (chat, server):
        with pytest.raises(TransientError, match="sent no answer"):
            ask(chat, json_schema=SCHEMA)
        assert len(server.requests) == 2
    with chatting([raw({"choices": None})]) as (chat, server), pytest.raises(TransientError, match="no answer"):
        ask(chat)


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


def test_row_7_json_object_is_tried_where_a_schema_is_refused_then_no_format_at_all() -> None:
    def script(body: Any) -> Answer:
        kind = body.get("response_format", {}).get("type")
        return error(400, f"'messages' must contain the word 'json' for {kind}") if kind else YES

    with chatting(script) as (chat, server):
        ask(chat, json_schema=SCHEMA)
        ask(chat, json_schema=SCHEMA)
        sent = bodies(server)
    assert sent[0]["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    assert sent[1]["response_format"] == {"type": "json_object"}
    assert [("response_format" in body) for body in sent[2:]] == [False, False]


def test_row_8_tools_come_with_tool_choice_auto_and_without_a_response_format() -> None:
    with chatting([YES, YES]) as (chat, server):
        ask_with_tools(chat, json_schema=SCHEMA, max_tokens=99)
        ask(chat, max_tokens=99)
        with_tools, without = bodies(server)
    assert with_tools["tool_choice"] == "auto"
    assert with_tools["tools"] == [SEARCH, READ]
    assert with_tools["max_tokens"] == without["max_tokens"] == 99
    assert "response_format" not in with_tools
    assert not {"tools", "tool_choice"} & set(without)


# --- tool calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"query": "PC"}',
        '```json\n{"query": "PC"}\n```',
        '{"query": "PC"',
        '{"query": "PC"} 探します',
        "{'query': 'PC',}",
    ],
)
def test_row_9_malformed_arguments_are_repaired(text: str) -> None:
    (wanted,) = answer_to(call("search_memory", text)).tool_calls
    assert (wanted.name, wanted.arguments) == ("search_memory", {"query": "PC"})


def test_row_9_arguments_beyond_repair_are_none_and_the_call_stays() -> None:
    answer = answer_to(calls(("search_memory", "富士通"), ("read_memory_source", "[1]")))
    assert [(wanted.name, wanted.arguments) for wanted in answer.tool_calls] == [
        ("search_memory", None),
        ("read_memory_source", None),
    ]


def test_row_10_no_arguments_are_empty_ones_and_are_echoed_as_an_object() -> None:
    nothing = {"id": "c1", "type": "function", "function": {"name": "search_memory", "arguments": None}}
    (wanted,) = answer_to(content(None, tool_calls=[nothing])).tool_calls
    assert wanted == ToolCall("c1", "search_memory", {})
    result = {"role": "tool", "tool_call_id": "c1", "content": "{}"}
    echoed = sent_for([*HELLO, {"role": "assistant", "content": None, "tool_calls": [nothing]}, result])
    assert echoed[2]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("text", [f"<tool_call>\n{CALL_TEXT}\n</tool_call>", f"はい。<tool_call>{CALL_TEXT}"])
def test_row_11_a_marked_call_in_the_content_is_a_tool_call(text: str) -> None:
    answer = answer_to(content(text))
    assert [(wanted.name, wanted.arguments) for wanted in answer.tool_calls] == [("search_memory", {"query": "PC"})]
    assert "tool_call" not in answer.content
    assert answer.tool_calls[0].id


@pytest.mark.parametrize("text", [CALL_TEXT, f"```json\n{CALL_TEXT}\n```", f"[{CALL_TEXT}]"])
def test_row_12_a_bare_call_in_the_content_is_a_tool_call_where_its_tool_was_offered(text: str) -> None:
    answer = answer_to(content(text))
    assert [(wanted.name, wanted.arguments) for wanted in answer.tool_calls] == [("search_memory", {"query": "PC"})]
    assert answer.content == ""
    other = text.replace("search_memory", "play_music")
    assert answer_to(content(other)) == ChatAnswer(other, (), 11, 7)


def test_row_13_an_xml_call_in_the_content_is_a_tool_call() -> None:
    answer = answer_to(content("<function=search_memory><parameter=query>PC</parameter></function>"))
    assert [(wanted.name, wanted.arguments) for wanted in answer.tool_calls] == [("search_memory", {"query": "PC"})]
    assert answer.content == ""


def test_rows_11_to_13_nothing_is_a_call_where_no_tools_were_offered() -> None:
    with chatting([content(CALL_TEXT), call("search_memory", {"query": "PC"})]) as (chat, _):
        assert ask(chat) == ChatAnswer(CALL_TEXT, (), 11, 7)
        assert ask(chat) == ChatAnswer("", (), 11, 7)


def test_a_native_call_stands_above_the_same_call_in_the_content() -> None:
    both = content(
        f"<tool_call>{CALL_TEXT}</tool_call>", tool_calls=[_native("c1", "search_memory", '{"query": "本"}')]
    )
    assert answer_to(both) == ChatAnswer("", (ToolCall("c1", "search_memory", {"query": "本"}),), 11, 7)


def _native(identifier: Any, name: Any, arguments: Any = "{}") -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_call_of_an_unknown_tool_is_dropped_and_a_close_name_is_corrected() -> None:
    names = ["play_music", " Search_Memory", None, "ｓｅａｒｃｈ_memory"]
    odd = [_native(f"c{number}", name) for number, name in enumerate(names)]
    answer = answer_to(content("", tool_calls=[*odd, "search_memory", {"function": None}]))
    assert answer.tool_calls == (ToolCall("c1", "search_memory", {}), ToolCall("c3", "search_memory", {}))


def test_missing_and_repeated_call_ids_become_unique_in_the_whole_conversation() -> None:
    earlier = {"role": "assistant", "content": "", "tool_calls": [_native("call_0", "search_memory")]}
    result = {"role": "tool", "tool_call_id": "call_0", "content": "{}"}
    wanted = [_native(identifier, "search_memory") for identifier in ("call_0", "call_1", "call_1", None, "", 5)]
    answer = answer_to(content("", tool_calls=wanted), messages=[*HELLO, earlier, result])
    ids = [one.id for one in answer.tool_calls]
    assert len({*ids, "call_0"}) == 7
    assert ids[1] == "call_1"
    assert all(ids)


# --- thinking --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reasoning", "spoken"),
    [
        (SAID, SAID),
        (f"<think>挨拶だ</think>{SAID}", SAID),
        (f"挨拶だ</think>{SAID}", SAID),
        (f"```json\n{SAID}\n```", f"```json\n{SAID}\n```"),
        ("挨拶だ。短く返そう。", ""),
        (f"こう返そう: {SAID} いや、", ""),
        ("<think>挨拶だ", ""),
        (3, ""),
    ],
)
def test_row_14_an_answer_in_reasoning_content_is_used_and_thinking_is_never_spoken(
    reasoning: Any, spoken: str
) -> None:
    assert answer_to(content(None, reasoning_content=reasoning)).content == spoken


def test_row_14_a_call_in_reasoning_content_is_not_executed() -> None:
    assert answer_to(content(None, reasoning_content=f"<tool_call>{CALL_TEXT}</tool_call>")).tool_calls == ()


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        (f"<think>挨拶だ</think>\n\n{SAID}", SAID),
        (f"挨拶だ</think>{SAID}", SAID),
        ("<think>挨拶だ", ""),
        (f"<think><tool_call>{CALL_TEXT}</tool_call></think>{SAID}", SAID),
        (f"<think>{CALL_TEXT}", ""),
    ],
)
def test_row_15_thinking_is_stripped_and_a_call_inside_is_not_executed(text: str, spoken: str) -> None:
    assert answer_to(content(text)) == ChatAnswer(spoken, (), 11, 7)


# --- messages --------------------------------------------------------------------------------------------------------


def test_row_16_there_is_one_system_message_and_it_is_first() -> None:
    parts = [{"type": "text", "text": "三"}, {"type": "text", "text": "四"}]
    sent = sent_for(
        [
            {"role": "user", "content": "やあ"},
            {"role": "system", "content": "一"},
            {"role": "developer", "content": "二"},
            {"role": "system", "content": None},
            {"role": "system", "content": parts},
        ]
    )
    assert sent == [{"role": "system", "content": "一\n\n二\n\n三\n四"}, {"role": "user", "content": "やあ"}]


def test_a_request_without_a_system_message_stays_without_one() -> None:
    assert sent_for([{"role": "user", "content": "やあ"}]) == [{"role": "user", "content": "やあ"}]


def test_row_17_a_request_without_tools_has_no_tools_key_even_with_calls_in_its_history() -> None:
    history = [{"role": "assistant", "content": "", "tool_calls": [_native("c1", "search_memory")]}]
    history += [{"role": "tool", "tool_call_id": "c1", "content": "{}"}]
    with chatting([YES]) as (chat, server):
        ask(chat, messages=[*HELLO, *history])
        assert set(bodies(server)[0]) == {"model", "messages", "enable_thinking"}


def test_row_18_every_tool_result_follows_its_call_and_every_call_has_its_result() -> None:
    both = [_native("a", "search_memory"), _native("b", "search_memory")]
    sent = sent_for(
        [
            {"role": "tool", "tool_call_id": "lost", "content": "no call before it"},
            {"role": "assistant", "content": "調べます", "tool_calls": both},
            {"role": "tool", "tool_call_id": "b", "content": "B"},
            {"role": "user", "content": "それで？"},
            {"role": "assistant", "content": None, "tool_calls": [_native("c", "search_memory")]},
            {"role": "user", "content": "もしもし"},
        ]
    )
    assert [message["role"] for message in sent] == ["assistant", "tool", "user", "user"]
    assert [wanted["id"] for wanted in sent[0]["tool_calls"]] == ["b"]
    assert sent[1]["tool_call_id"] == "b"


def test_row_19_content_is_never_null_and_no_text_breaks_the_request() -> None:
    history = [{"role": "assistant", "content": None, "tool_calls": [_native("c1", "search_memory")]}]
    history += [{"role": "tool", "tool_call_id": "c1", "content": None}, {"role": "user", "content": "\ud800\x00"}]
    sent = sent_for(history)
    assert [message["content"] for message in sent] == ["", "", "\ufffd\ufffd"]


def test_pictures_of_a_user_stay_as_they_are() -> None:
    picture = [{"type": "image_url", "image_url": {"url": "data:,x"}}]
    assert sent_for([{"role": "user", "content": picture}])[0]["content"] == picture


HISTORY = [
    *HELLO,
    {"role": "assistant", "content": "", "tool_calls": [_native("c1", "search_memory", {"query": "PC"})]},
    {"role": "tool", "tool_call_id": "c1", "content": "{}"},
]


def test_row_20_arguments_go_as_an_object_where_the_server_says_so_and_from_then_on() -> None:
    def script(body: Any) -> Answer:
        arguments = body["messages"][2]["tool_calls"][0]["function"]["arguments"]
        return error(500, "Can only get item pairs from a mapping.") if isinstance(arguments, str) else YES

    with chatting(script) as (chat, server):
        assert ask(chat, messages=HISTORY).content == SAID
        assert ask(chat, messages=HISTORY).content == SAID
        sent = [body["messages"][2]["tool_calls"][0]["function"]["arguments"] for body in bodies(server)]
    assert sent == ['{"query": "PC"}', {"query": "PC"}, {"query": "PC"}]


def test_row_20_a_server_that_takes_neither_is_asked_twice_only() -> None:
    with chatting([error(500, "arguments: not a mapping")] * 3) as (chat, server):
        with pytest.raises(TransientError):
            ask(chat, messages=HISTORY)
        assert len(server.requests) == 2


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


# --- the rest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": None, "completion_tokens": "7"}, [], {"prompt_tokens": -1}]
)
def test_tokens_that_are_not_told_are_zero(usage: Any) -> None:
    whole = {"choices": [{"message": {"content": "はい"}}], "usage": usage}
    assert answer_to(raw(whole)) == ChatAnswer("はい")


def test_content_in_parts_is_joined_and_lone_surrogates_do_not_come_in() -> None:
    parts = [{"type": "text", "text": "は"}, {"type": "text", "text": "い\ud800"}, "x", {"text": None}]
    body = json.dumps({"choices": [{"message": {"content": parts, "tool_calls": {}}}]}).encode()
    assert answer_to(raw(body)).content == "はい\ufffd"


def test_several_threads_share_one_model() -> None:
    with chatting(lambda body: say(body["messages"][0]["content"])) as (chat, server):
        heard: dict[int, str] = {}

        def talk(number: int) -> None:
            heard[number] = ask(chat, messages=[{"role": "user", "content": f"<{number}>"}]).content

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(f"<{number}>" in heard[number] for number in range(8))
        assert len(server.requests) == 8


def test_a_closed_model_opens_new_connections() -> None:
    with chatting([YES, YES]) as (chat, _):
        ask(chat)
        chat.close()
        chat.close()
        assert ask(chat).content == SAID


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000/v1", "ftp://host/v1", "http://", "http://a b/v1", "http://h/v1?x=1"]
)
def test_an_address_that_is_none_stops_the_start(url: str) -> None:
    with pytest.raises(SettingsError, match="STACKMEM_CHAT_BASE_URL"):
        OpenAIChat(url, KEY, "qwen3")


@pytest.mark.parametrize("url", ["http://host:port/v1", "http://[::1/v1", "http://host:99999/v1"])
def test_an_address_with_a_bad_port_stops_the_start(url: str) -> None:
    with pytest.raises(SettingsError, match="STACKMEM_CHAT_BASE_URL"):
        OpenAIChat(url, KEY, "qwen3")


@pytest.mark.parametrize("key", ["sk secret", "sk-\nsecret", "鍵-secret"])
def test_a_key_that_is_none_stops_the_start_and_is_not_shown(key: str) -> None:
    with pytest.raises(SettingsError, match="STACKMEM_MEMORY_API_KEY") as caught:
        OpenAIChat("http://host/v1", key, "qwen3", setting_prefix="STACKMEM_MEMORY")
    assert "secret" not in str(caught.value)


def test_a_server_without_keys_needs_none() -> None:
    with ScriptedServer([YES]) as server:
        chat = OpenAIChat(server.base_url, "", "qwen3")
        assert ask(chat).content == SAID
        chat.close()


def test_the_client_is_not_loaded_before_the_first_call() -> None:
    code = "import sys, stackmem.adapters.openai_chat as chat; chat.OpenAIChat('http://h/v1', '', 'm'); "
    code += "sys.exit('openai' in sys.modules or 'httpx2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
