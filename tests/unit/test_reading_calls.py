"""Tool calls and replies are read in every shape that models write them in (rows 9 to 13 and 25)."""

import json
from typing import Any

import pytest

from stackmem.reading import RawReply, offered_name, read_arguments, read_reply, read_tool_calls

OFFERED = ("search_memory", "read_memory_source")
CALL = {"name": "search_memory", "arguments": {"query": "富士通のPC"}}
CALL_TEXT = json.dumps(CALL, ensure_ascii=False)
READ_CALL = ("search_memory", {"query": "富士通のPC"})
GOOD = RawReply("こんにちは", "happy", "nod")
GOOD_TEXT = '{"reply": "こんにちは", "emotion": "happy", "action": "nod"}'


# --- tool calls ------------------------------------------------------------------------------------------------------

XML_CALL = "<function=search_memory>\n<parameter=query>\n富士通のPC\n</parameter>\n</function>"


@pytest.mark.parametrize(
    "content",
    [
        f"<tool_call>\n{CALL_TEXT}\n</tool_call>",
        f"<tool_call>{CALL_TEXT}",
        f"<tool_call>```json\n{CALL_TEXT}\n```</tool_call>",
        f"<tool_call>{CALL_TEXT[:-1]}</tool_call>",
        CALL_TEXT,
        f"```json\n{CALL_TEXT}\n```",
        f"[{CALL_TEXT}]",
        f"調べますね。\n{CALL_TEXT}",
        json.dumps({"type": "function", "function": CALL}),
        json.dumps({"tool_calls": [{"id": "x", "function": CALL}]}),
        json.dumps({"name": "search_memory", "parameters": CALL["arguments"]}),
        json.dumps({"name": "search_memory", "arguments": json.dumps(CALL["arguments"])}),
        json.dumps({"name": " Ｓｅａｒｃｈ_memory", "arguments": CALL["arguments"]}),
        XML_CALL,
        f"<tool_call>\n{XML_CALL}\n</tool_call>",
        '<function name="search_memory"><parameter name="query">富士通のPC</parameter></function>',
        '<function=search_memory>{"query": "富士通のPC"}</function>',
    ],
)
def test_a_call_in_content_is_read_in_every_shape(content: str) -> None:
    _, calls = read_tool_calls(content, OFFERED)
    assert calls == [READ_CALL]


def test_several_calls_are_read_in_order() -> None:
    second = {"name": "read_memory_source", "arguments": {"memory_ids": ["mem_1"]}}
    both = [READ_CALL, ("read_memory_source", {"memory_ids": ["mem_1"]})]
    texts = [CALL_TEXT, json.dumps(second)]
    assert read_tool_calls("\n".join(texts), OFFERED) == ("", both)
    assert read_tool_calls(f"[{', '.join(texts)}]", OFFERED) == ("", both)
    assert read_tool_calls("".join(f"<tool_call>{text}</tool_call>" for text in texts), OFFERED) == ("", both)
    assert read_tool_calls(f"<tool_call>{texts[0]}\n{texts[1]}</tool_call>", OFFERED) == ("", both)


def test_text_around_marked_calls_remains() -> None:
    remaining, calls = read_tool_calls(f"調べます。<tool_call>{CALL_TEXT}</tool_call> 少し待って", OFFERED)
    assert (remaining, calls) == ("調べます。 少し待って", [READ_CALL])


def test_lists_in_xml_parameters_are_read_and_numbers_stay_text() -> None:
    content = (
        '<function=search_memory><parameter=entities>["PC"]</parameter><parameter=query>2024</parameter></function>'
    )
    assert read_tool_calls(content, OFFERED)[1] == [("search_memory", {"entities": ["PC"], "query": "2024"})]


def test_arguments_that_cannot_be_read_are_none() -> None:
    assert read_tool_calls('<tool_call>{"name": "search_memory", "arguments": [1]}</tool_call>', OFFERED)[1] == [
        ("search_memory", None)
    ]
    broken = '<tool_call>("name": "search_memory", arguments</tool_call>'
    assert read_tool_calls(broken, OFFERED)[1] == [("search_memory", None)]


def test_a_call_of_a_tool_that_was_not_offered_is_no_call() -> None:
    other = '{"name": "play_music", "arguments": {}}'
    assert read_tool_calls(other, OFFERED) == (other, [])
    assert read_tool_calls(f"<tool_call>{other}</tool_call>", OFFERED) == ("", [])
    assert read_tool_calls(CALL_TEXT, ()) == (CALL_TEXT, [])


def test_a_call_inside_thinking_is_no_call() -> None:
    assert read_tool_calls(f"<think><tool_call>{CALL_TEXT}</tool_call></think>はい", OFFERED) == ("はい", [])
    assert read_tool_calls(f"<think>{CALL_TEXT}", OFFERED) == ("", [])


@pytest.mark.parametrize("content", ["こんにちは", GOOD_TEXT, '{"name": "タマ"}', '{"tool_calls": [1]}', "[[1], 2]"])
def test_content_that_is_no_call_remains(content: str) -> None:
    assert read_tool_calls(content, OFFERED) == (content, [])


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        (None, {}),
        ("", {}),
        (" null ", {}),
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": {"b": 1}', {"a": {"b": 1}}),
        ('{"a": 1} これで探します', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ("[1]", None),
        ("富士通", None),
        (7, None),
    ],
)
def test_arguments_are_repaired_or_none(raw: Any, arguments: Any) -> None:
    assert read_arguments(raw) == arguments


@pytest.mark.parametrize(
    "name", ["search_memory", " search_memory\n", "Search_Memory", "functions.search_memory", '"search_memory"']
)
def test_a_name_close_to_an_offered_one_means_it(name: str) -> None:
    assert offered_name(name, OFFERED) == "search_memory"


@pytest.mark.parametrize("name", ["search", "", None, 3])
def test_another_name_means_nothing(name: Any) -> None:
    assert offered_name(name, OFFERED) is None


# --- replies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        GOOD_TEXT,
        f"```json\n{GOOD_TEXT}\n```",
        f"はい、どうぞ：{GOOD_TEXT}",
        f"{GOOD_TEXT}\n以上です。",
        f"[{GOOD_TEXT}]",
        json.dumps(GOOD_TEXT),
        f"<think>挨拶だ</think>{GOOD_TEXT}",
        GOOD_TEXT[:-1],
        GOOD_TEXT.replace('"', "'"),
        GOOD_TEXT.replace("}", ', "mood": 3, "motion": {"servo": 90}}'),
        json.dumps({"reply": GOOD_TEXT}),
        json.dumps({"reply": f"```json\n{GOOD_TEXT}\n```", "emotion": 1}),
        json.dumps({"response": " こんにちは ", "emotion": "happy", "action": " nod"}),
        json.dumps({"reply": ["こん", "にちは", 3], "emotion": "happy", "action": "nod"}),
    ],
)
def test_a_reply_is_read_in_every_shape(content: str) -> None:
    assert read_reply(content) == GOOD


@pytest.mark.parametrize(
    ("content", "reply"),
    [
        ("こんにちは", "こんにちは"),
        ("```\nこんにちは\n```", "こんにちは"),
        ("```こんにちは```", "こんにちは"),
        ('"こんにちは"', "こんにちは"),
        ("{name}さん、今日は[1]晴れ", "{name}さん、今日は[1]晴れ"),
        ('設定は {"port": 80} です', '設定は {"port": 80} です'),
        ("42", "42"),
        ("[[笑]]そうだね", "[[笑]]そうだね"),
    ],
)
def test_plain_text_is_the_reply(content: str, reply: str) -> None:
    assert read_reply(content) == RawReply(reply, "", "")


def test_a_reply_cut_off_in_the_middle_is_spoken_as_far_as_it_goes() -> None:
    assert read_reply('{"reply": "昨日は雨だったけど、今日は').reply == "昨日は雨だったけど、今日は"


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ('{"emotion": "happy"}', RawReply("", "happy", "")),
        ('{"reply": 42, "emotion": ["x"], "action": null}', RawReply("42", "", "")),
        ('{"reply": true}', RawReply("", "", "")),
        ('{"reply": {"a": 1}}', RawReply("", "", "")),
        ('{"reply": "[笑] やあ"}', RawReply("[笑] やあ", "", "")),
        ('{"emo', RawReply("", "", "")),
        ("", RawReply("", "", "")),
        ("{}", RawReply("", "", "")),
    ],
)
def test_missing_keys_and_wrong_types_are_empty(content: str, wanted: RawReply) -> None:
    assert read_reply(content) == wanted


@pytest.mark.parametrize(
    "content",
    [
        CALL_TEXT,
        f"[{CALL_TEXT}]",
        f"```json\n{CALL_TEXT}\n```",
        f"<tool_call>{CALL_TEXT}</tool_call>",
        f"<tool_call>{CALL_TEXT}",
        XML_CALL,
        json.dumps({"reply": CALL_TEXT}),
        json.dumps({"reply": f"[{CALL_TEXT}]"}),
        '{"name": "play_music", "arguments": {}}',
        f"調べますね {CALL_TEXT}",
    ],
)
def test_what_looks_like_a_tool_call_is_not_spoken(content: str) -> None:
    assert read_reply(content).reply == ""
