"""The habits of model servers seen in the wild, each through the real ``openai`` client against a scripted server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stackmem.adapters.openai_chat import ContentRefused, OpenAIChat
from stackmem.exceptions import PermanentError, SettingsError, StackmemError, TransientError
from stackmem.persona import tools
from stackmem.ports import ChatAnswer, ChatRequest
from tests.scripted import Answer, ScriptedServer, call, calls, content, drip, error, hang, raw, reset, say, slow

TOOLS = tools("ja")
SCHEMA = {"type": "object", "properties": {"segments": {"type": "array"}}}
ASK = [{"role": "system", "content": "JSON で答えます"}, {"role": "user", "content": "猫の名前は？"}]
KEY = "sk-secret-key-123"


def request(messages: Any = ASK, timeout_s: float = 10, **more: Any) -> ChatRequest:
    return ChatRequest(messages, more.pop("purpose", "turn"), timeout_s, **more)


class Talk:
    """An adapter over a scripted server."""

    def __init__(self, script: Any, **options: Any):
        self.server = ScriptedServer(script).__enter__()
        self.chat = OpenAIChat(self.server.base_url, KEY, "qwen3", **options)

    def ask(self, **more: Any) -> ChatAnswer:
        return self.chat.complete(request(**more))

    @property
    def sent(self) -> list[Any]:
        return [each.json for each in self.server.requests]

    def close(self) -> None:
        self.chat.close()
        self.server.__exit__(None, None, None)


@pytest.fixture
def talks() -> Iterator[Any]:
    begun: list[Talk] = []

    def begin(*script: Answer, **options: Any) -> Talk:
        begun.append(Talk(list(script), **options))
        return begun[-1]

    yield begin
    for talk in begun:
        talk.close()


def fails(talk: Talk, kind: type[StackmemError], **more: Any) -> str:
    with pytest.raises(kind) as caught:
        talk.ask(**more)
    assert KEY not in str(caught.value)
    return str(caught.value)


def test_an_answer_comes_with_its_tokens(talks: Any) -> None:
    talk = talks(say("ミケだよ"))
    answer = talk.ask()
    assert json.loads(answer.content)["reply"] == "ミケだよ"
    assert answer.tool_calls == ()
    assert talk.sent[0]["model"] == "qwen3"
    assert "tools" not in talk.sent[0]
    assert talk.server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_thinking_is_off_and_another_way_is_found_where_that_key_is_refused(talks: Any) -> None:
    talk = talks(error(400, "Unrecognized request argument: enable_thinking"), say("a"), say("b"))
    talk.ask()
    talk.ask()
    assert talk.sent[0]["enable_thinking"] is False
    assert talk.sent[1]["chat_template_kwargs"] == {"enable_thinking": False}
    assert "enable_thinking" not in talk.sent[1]
    assert "chat_template_kwargs" in talk.sent[2]  # remembered


def test_an_extra_body_of_the_user_is_sent_as_it_is(talks: Any) -> None:
    talk = talks(say("a"), extra_body={"top_k": 20})
    talk.ask()
    assert talk.sent[0]["top_k"] == 20
    assert "enable_thinking" not in talk.sent[0]


@pytest.mark.parametrize("choices", [None, []])
def test_no_choices_are_asked_again_without_a_response_format(talks: Any, choices: Any) -> None:
    talk = talks(raw({"choices": choices}), content("{}"))
    assert talk.ask(json_schema=SCHEMA, purpose="remember").content == "{}"
    assert talk.sent[0]["response_format"]["type"] == "json_schema"
    assert "response_format" not in talk.sent[1]


def test_no_choices_twice_are_a_transient_error(talks: Any) -> None:
    talk = talks(raw({"choices": []}), raw({"choices": None}), raw({"choices": []}))
    fails(talk, TransientError)


@pytest.mark.parametrize("key", ["errors", "error"])
def test_both_shapes_of_an_error_give_the_same_message(talks: Any, key: str) -> None:
    said = fails(talks(error(400, {key: {"message": "bad thing"}})), PermanentError)
    assert "bad thing" in said


def test_a_retired_model_names_the_setting(talks: Any) -> None:
    talk = talks(error(400, "Model id: qwen3, has no provider supported"))
    assert "STACKMEM_CHAT_MODEL" in fails(talk, PermanentError)
    assert len(talk.sent) == 1


@pytest.mark.parametrize(
    ("status", "words"), [(402, "pay"), (429, "insufficient balance"), (403, "account in arrears")]
)
def test_no_balance_is_permanent(talks: Any, status: int, words: str) -> None:
    talk = talks(error(status, words), say("a"))
    fails(talk, PermanentError)
    assert len(talk.sent) == 1


def test_a_rate_limit_is_waited_for_and_asked_again(talks: Any) -> None:
    talk = talks(error(429, "slow down", Retry_After="0"), say("a"))
    assert "a" in talk.ask().content


def test_a_long_rate_limit_is_transient_and_keeps_its_time(talks: Any) -> None:
    talk = talks(error(429, "slow down", Retry_After="60"))
    with pytest.raises(TransientError) as caught:
        talk.ask()
    assert caught.value.retry_after_s == 60


@pytest.mark.parametrize(("status", "setting"), [(401, "API_KEY"), (404, "BASE_URL"), (422, "EXTRA_BODY")])
def test_a_refusal_names_what_to_change(talks: Any, status: int, setting: str) -> None:
    talk = talks(error(status, f"no {KEY}"), setting_prefix="STACKMEM_MEMORY")
    assert f"STACKMEM_MEMORY_{setting}" in fails(talk, PermanentError)


def test_tools_are_offered_as_auto_and_without_a_response_format(talks: Any) -> None:
    talk = talks(call("search_memory", {"query": "猫"}))
    answer = talk.ask(tools=TOOLS, json_schema=SCHEMA)
    assert answer.tool_calls[0].arguments == {"query": "猫"}
    assert talk.sent[0]["tool_choice"] == "auto"
    assert "response_format" not in talk.sent[0]


@pytest.mark.parametrize(
    "arguments", ['{"query": "猫"', '```json\n{"query": "猫"}\n```', '{"query": "猫"} ok?', "{'query': '猫'}"]
)
def test_broken_arguments_are_repaired(talks: Any, arguments: str) -> None:
    assert talks(call("search_memory", arguments)).ask(tools=TOOLS).tool_calls[0].arguments == {"query": "猫"}


def test_null_arguments_are_an_empty_object_and_go_back_as_one(talks: Any) -> None:
    talk = talks(calls(("search_memory", None)), say("a"))
    (made,) = talk.ask(tools=TOOLS).tool_calls
    assert made.arguments == {}
    function = {"name": made.name, "arguments": None}
    talk.ask(
        messages=[
            *ASK,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": made.id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": made.id, "content": "{}"},
        ]
    )
    echoed = talk.sent[1]["messages"][2]
    assert echoed["tool_calls"][0]["function"]["arguments"] == "{}"
    assert echoed["content"] == ""


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "search_memory", "arguments": {"query": "猫"}}\n</tool_call>',
        '{"name": "search_memory", "arguments": {"query": "猫"}}',
        '```json\n{"name": "search_memory", "arguments": {"query": "猫"}}\n```',
        '[{"name": "search_memory", "arguments": {"query": "猫"}}]',
        "<function=search_memory>\n<parameter=query>\n猫\n</parameter>\n</function>",
    ],
)
def test_a_call_written_as_content_is_a_call(talks: Any, text: str) -> None:
    answer = talks(content(text)).ask(tools=TOOLS)
    assert [(made.name, made.arguments) for made in answer.tool_calls] == [("search_memory", {"query": "猫"})]
    assert answer.content == ""


def test_a_call_of_a_tool_that_was_not_offered_is_none(talks: Any) -> None:
    assert talks(call("delete_memory", {"id": 1})).ask(tools=TOOLS).tool_calls == ()
    assert talks(content('{"name": "search_memory", "arguments": {}}')).ask().tool_calls == ()


def test_an_answer_in_the_reasoning_is_used_but_thinking_is_not_spoken(talks: Any) -> None:
    answer = '{"reply": "ミケ", "emotion": "happy", "action": "nod"}'
    assert talks(content(None, reasoning_content=f"<think>えーと</think>{answer}")).ask().content == answer
    assert talks(content(None, reasoning_content="えーと、猫の名前は…")).ask().content == ""


@pytest.mark.parametrize(
    "text",
    ['<think>{"name": "search_memory", "arguments": {}}</think>はい', '<think><tool_call>{"name": "search_memory"}'],
)
def test_a_call_inside_thinking_is_not_made(talks: Any, text: str) -> None:
    answer = talks(content(text)).ask(tools=TOOLS)
    assert answer.tool_calls == ()
    assert "think" not in answer.content


def test_several_system_messages_become_one_that_stands_first(talks: Any) -> None:
    talk = talks(say("a"))
    talk.ask(
        messages=[
            {"role": "user", "content": "x"},
            {"role": "system", "content": "一"},
            {"role": "system", "content": "二"},
        ]
    )
    assert [message["role"] for message in talk.sent[0]["messages"]] == ["system", "user"]
    assert talk.sent[0]["messages"][0]["content"] == "一\n\n二"


def test_every_call_keeps_its_result_and_none_stands_alone(talks: Any) -> None:
    talk = talks(say("a"))
    made = {"id": "1", "type": "function", "function": {"name": "search_memory", "arguments": "{}"}}
    talk.ask(
        messages=[
            {"role": "tool", "tool_call_id": "0", "content": "orphan"},
            {"role": "assistant", "content": "", "tool_calls": [made, made | {"id": "2"}]},
            {"role": "tool", "tool_call_id": "1", "content": "found"},
            {"role": "user", "content": "x"},
        ]
    )
    sent = talk.sent[0]["messages"]
    assert [message["role"] for message in sent] == ["assistant", "tool", "user"]
    assert [each["id"] for each in sent[0]["tool_calls"]] == ["1"]


def test_arguments_go_as_an_object_where_the_template_wants_one(talks: Any) -> None:
    made = {"id": "1", "type": "function", "function": {"name": "search_memory", "arguments": '{"query": "猫"}'}}
    history = [
        *ASK,
        {"role": "assistant", "content": "", "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "1", "content": "{}"},
    ]
    talk = talks(error(500, "Can only get item pairs from a mapping."), say("a"))
    talk.ask(messages=history)
    shapes = [sent["messages"][2]["tool_calls"][0]["function"]["arguments"] for sent in talk.sent]
    assert shapes == ['{"query": "猫"}', {"query": "猫"}]


def test_a_refused_sentence_is_told_apart(talks: Any) -> None:
    talk = talks(
        error(400, {"error": {"code": "DataInspectionFailed", "message": "Input may contain inappropriate content"}})
    )
    fails(talk, ContentRefused)


def test_a_format_that_is_refused_is_left_out(talks: Any) -> None:
    refusal = error(400, "response_format json_schema is not supported")
    talk = talks(refusal, refusal, content("{}"), content("{}"))
    assert talk.ask(json_schema=SCHEMA, purpose="remember").content == "{}"
    assert [sent.get("response_format", {}).get("type") for sent in talk.sent] == ["json_schema", "json_object", None]


@pytest.mark.parametrize("answer", [reset(), error(500, "down"), error(503, "busy"), raw(b"<html>"), raw(b"not json")])
def test_a_server_that_breaks_is_an_error_of_one_sentence(talks: Any, answer: Answer) -> None:
    said = fails(talks(answer, answer, answer), StackmemError, purpose="remember")
    assert "127.0.0.1" in said
    assert "\n" not in said


def test_a_live_turn_is_tried_once_more(talks: Any) -> None:
    talk = talks(error(500, "down"), say("a"))
    assert "a" in talk.ask().content


@pytest.mark.parametrize("answer", [hang(), drip(b" " * 1000, 0.05), slow(30, say("a"))])
def test_the_deadline_holds_however_the_server_dawdles(talks: Any, answer: Answer) -> None:
    assert "in time" in fails(talks(answer), TransientError, timeout_s=0.3)


def test_a_server_that_is_not_there_is_transient() -> None:
    with ScriptedServer([]) as gone:
        address = gone.base_url
    chat = OpenAIChat(address, "", "m")
    with pytest.raises(TransientError, match="STACKMEM_CHAT_BASE_URL"):
        chat.complete(request())
    chat.close()


@pytest.mark.parametrize(("address", "key"), [("no address", ""), ("http://x/v1", "鍵")])
def test_an_address_or_key_that_cannot_be_used_is_a_wrong_setting(address: str, key: str) -> None:
    with pytest.raises(SettingsError):
        OpenAIChat(address, key, "m")
