"""What OpenAIChat sends, and how it lives; "row" as in docs/chat-models.md."""

import subprocess
import sys
import threading
from typing import Any

import pytest

from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.exceptions import PermanentError, SettingsError, TransientError
from stackmem.ports import ChatAnswer
from tests.contract.chatting import (
    HELLO,
    KEY,
    READ,
    SAID,
    SCHEMA,
    SEARCH,
    YES,
    ask,
    ask_with_tools,
    bodies,
    chatting,
    native,
    sent_for,
)
from tests.scripted import Answer, ScriptedServer, content, error, raw, say

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
    history = [{"role": "assistant", "content": "", "tool_calls": [native("c1", "search_memory")]}]
    history += [{"role": "tool", "tool_call_id": "c1", "content": "{}"}]
    with chatting([YES]) as (chat, server):
        ask(chat, messages=[*HELLO, *history])
        assert set(bodies(server)[0]) == {"model", "messages", "enable_thinking"}


def test_row_18_every_tool_result_follows_its_call_and_every_call_has_its_result() -> None:
    both = [native("a", "search_memory"), native("b", "search_memory")]
    sent = sent_for(
        [
            {"role": "tool", "tool_call_id": "lost", "content": "no call before it"},
            {"role": "assistant", "content": "調べます", "tool_calls": both},
            {"role": "tool", "tool_call_id": "b", "content": "B"},
            {"role": "user", "content": "それで？"},
            {"role": "assistant", "content": None, "tool_calls": [native("c", "search_memory")]},
            {"role": "user", "content": "もしもし"},
        ]
    )
    assert [message["role"] for message in sent] == ["assistant", "tool", "user", "user"]
    assert [wanted["id"] for wanted in sent[0]["tool_calls"]] == ["b"]
    assert sent[1]["tool_call_id"] == "b"


def test_row_19_content_is_never_null_and_no_text_breaks_the_request() -> None:
    history = [{"role": "assistant", "content": None, "tool_calls": [native("c1", "search_memory")]}]
    history += [{"role": "tool", "tool_call_id": "c1", "content": None}, {"role": "user", "content": "\ud800\x00"}]
    sent = sent_for(history)
    assert [message["content"] for message in sent] == ["", "", "\ufffd\ufffd"]


def test_pictures_of_a_user_stay_as_they_are() -> None:
    picture = [{"type": "image_url", "image_url": {"url": "data:,x"}}]
    assert sent_for([{"role": "user", "content": picture}])[0]["content"] == picture


HISTORY = [
    *HELLO,
    {"role": "assistant", "content": "", "tool_calls": [native("c1", "search_memory", {"query": "PC"})]},
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


# --- the rest --------------------------------------------------------------------------------------------------------


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
