"""What OpenAIChat makes of the answers of servers seen in the wild; "row" as in docs/chat-models.md."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.adapters.openai_answer import read_completion
from stackmem.adapters.openai_errors import Refused
from stackmem.adapters.openai_stream import Incoming
from stackmem.exceptions import ContentRefused
from stackmem.ports import ChatAnswer, ChatRequest, ToolCall
from tests.contract.chatting import (
    CALL_TEXT,
    HELLO,
    SAID,
    SEARCH,
    answer_to,
    ask,
    chatting,
    native,
    sent_for,
)
from tests.scripted import call, calls, content, raw

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
    both = content(f"<tool_call>{CALL_TEXT}</tool_call>", tool_calls=[native("c1", "search_memory", '{"query": "本"}')])
    assert answer_to(both) == ChatAnswer("", (ToolCall("c1", "search_memory", {"query": "本"}),), 11, 7)


def test_a_call_of_an_unknown_tool_is_dropped_and_a_close_name_is_corrected() -> None:
    names = ["play_music", " Search_Memory", None, "ｓｅａｒｃｈ_memory"]
    odd = [native(f"c{number}", name) for number, name in enumerate(names)]
    answer = answer_to(content("", tool_calls=[*odd, "search_memory", {"function": None}]))
    assert answer.tool_calls == (ToolCall("c1", "search_memory", {}), ToolCall("c3", "search_memory", {}))


def test_missing_and_repeated_call_ids_become_unique_in_the_whole_conversation() -> None:
    earlier = {"role": "assistant", "content": "", "tool_calls": [native("call_0", "search_memory")]}
    result = {"role": "tool", "tool_call_id": "call_0", "content": "{}"}
    wanted = [native(identifier, "search_memory") for identifier in ("call_0", "call_1", "call_1", None, "", 5)]
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


# --- the rest ---------------------------------------------------------------------------------------------------------


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


KEYS = st.sampled_from(
    ["choices", "message", "content", "tool_calls", "function", "name", "arguments", "error", "code", "id", "text"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([CALL_TEXT, SAID]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def came(body: bytes) -> dict[str, Any]:
    """Return what a body holds."""
    incoming = Incoming()
    "".join(incoming.feed(body))
    return incoming.value()


@given(JSON, JSON, st.sampled_from(["whole", "choice", "message"]))
def test_any_json_is_an_answer_or_a_refusal(value: Any, other: Any, place: str) -> None:
    message = {"content": other, "tool_calls": value, "reasoning_content": other}
    choice = value if place == "choice" else {"message": message, "finish_reason": other}
    body = value if place == "whole" else {"choices": [choice], "usage": other}
    request = ChatRequest(HELLO, "turn", 1, tools=[SEARCH])
    try:
        answer, _ = read_completion(came(json.dumps(body).encode()), request)
    except (Refused, ContentRefused):
        return
    answer.content.encode()
    assert all(wanted.name == "search_memory" and wanted.id for wanted in answer.tool_calls)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_a_refusal(body: bytes) -> None:
    with contextlib.suppress(Refused):
        read_completion(came(body), ChatRequest(HELLO, "turn", 1))
