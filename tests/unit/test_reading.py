"""What a chat model wrote is read whatever its shape; nothing it writes can raise."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.reading import read_json, read_reply, read_tool_calls, strip_thinking
from stackmem.text import clean_json

OFFERED = ("search_memory", "read_memory_source")
CALL_TEXT = '{"name": "search_memory", "arguments": {"query": "富士通のPC"}}'
GOOD_TEXT = '{"reply": "こんにちは", "emotion": "happy", "action": "nod"}'

# Texts made of the pieces that the readers look for break them sooner than any others.
PIECES = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        ":",
        ",",
        "\\",
        '\\"',
        "\n",
        " ",
        "```",
        "```json\n",
        "<think>",
        "</think>",
        "(",
        ")",
    ]
    + ["<tool_call>", "</tool_call>", "<function=search_memory>", "</function>", "<parameter=query>", "</parameter>"]
    + ['"name"', '"search_memory"', '"arguments"', '"reply"', '"emotion"', "null", "1", "1e999", "NaN", "あ", "“", "//"]
    + ["\ud800", "\x00", CALL_TEXT, GOOD_TEXT]
)
TEXTS = st.one_of(
    st.text(), st.lists(PIECES, max_size=60).map("".join), st.binary().map(lambda raw: raw.decode("latin-1"))
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "日本"]), inner, max_size=3),
    max_leaves=8,
)


# --- thinking --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>うーん</think>はい", "はい"),
        ("はい<think>まだ考え中", "はい"),
        ("<think>まだ考え中", ""),
        ("テンプレートが開いた考え</think>\n\nはい", "はい"),
        ("<think>a<think>b</think>c</think>はい", "はい"),
        ("<think>the tag <think> opens</think>はい", "はい"),
        ("はい、<THINK>x</THINK>そうです", "はい、そうです"),
        ("<thinking>x</thinking>はい", "はい"),
        ("考えない答え", "考えない答え"),
    ],
)
def test_thinking_is_stripped_closed_unclosed_nested_or_never_opened(text: str, left: str) -> None:
    assert strip_thinking(text) == left


# --- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1, 2]", [1, 2]),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```{"a": 1}```', {"a": 1}),
        ('はい：\n```json\n{"a": 1}\n```\n以上です。', {"a": 1}),
        ('Sure! {"a": {"b": "}"}} Hope it helps.', {"a": {"b": "}"}}),
        ('[1] を見て {"a": 1}', {"a": 1}),
        ('x [{"a": 1}, {"a": 2}] y', [{"a": 1}, {"a": 2}]),
        ('{} then {"a": 1}', {"a": 1}),
        ("ids: [1, 2, 3].", [1, 2, 3]),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('"ただの文"', "ただの文"),
        ('<think>{"a": 0}</think>{"a": 1}', {"a": 1}),
        ('{"a": "途中で切れた', {"a": "途中で切れた"}),
        ('{"a": {"b": 1}', {"a": {"b": 1}}),
        ("{'a': 'x', }", {"a": "x"}),
        ('{a: "x"}', {"a": "x"}),
        ('{"a": "彼は"すごい"と言った", "tags": [1]}', {"a": '彼は"すごい"と言った', "tags": [1]}),
        ('{"a": 1}} extra', {"a": 1}),
        ('[{"a": 1, "b": 2, {"a": 3}]', [{"a": 1, "b": 2}, {"a": 3}]),
        ('{"a": NaN, "b": 1e999}', {"a": None, "b": None}),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
    ],
)
def test_json_is_found_plain_fenced_quoted_embedded_or_broken(text: str, value: Any) -> None:
    assert read_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "こんにちは",
        "今日は{晴れ}です",
        "前回[の]話",
        "{name}さん",
        "{",
        '<think>{"a": 1}',
        '{"a": (' + '"{"' * 40_000,
    ],
)
def test_a_text_without_json_gives_none(text: str) -> None:
    assert read_json(text) is None


@pytest.mark.parametrize("text", ["[" * 900 + "]" * 900, "[" * 100_000, '{"a":' * 5000])
def test_json_nested_hundreds_deep_gives_none(text: str) -> None:
    assert read_json(text) is None


def test_a_number_too_long_for_python_does_not_raise() -> None:
    assert read_json('{"n": ' + "9" * 5000 + "}") == {"n": "9" * 5000}
    assert read_json("9" * 5000) is None


@given(VALUES.filter(lambda value: isinstance(value, dict | list)))
def test_sound_json_is_read_as_it_is_even_fenced_or_quoted(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert read_json(text) == clean_json(value)
    assert read_json(f"```json\n{text}\n```") == clean_json(value)
    assert read_json(json.dumps(text)) == clean_json(value)


# --- any text --------------------------------------------------------------------------------------------------------


@given(TEXTS)
def test_any_text_gives_a_reply_that_a_database_takes(text: str) -> None:
    reply = read_reply(text)
    for part in (reply.reply, reply.emotion, reply.action):
        assert type(part) is str
        part.encode()
        assert "\x00" not in part


@given(TEXTS)
def test_no_text_makes_read_json_raise_and_what_it_gives_is_json(text: str) -> None:
    json.dumps(read_json(text), allow_nan=False, ensure_ascii=False).encode()


@given(TEXTS, st.sampled_from([OFFERED, ()]))
def test_no_text_makes_read_tool_calls_raise_and_only_offered_names_come_out(
    text: str, offered: tuple[str, ...]
) -> None:
    remaining, calls = read_tool_calls(text, offered)
    assert isinstance(remaining, str)
    assert all(name in offered and (arguments is None or isinstance(arguments, dict)) for name, arguments in calls)


UNITS = [
    "{",
    "[ {",
    '{"',
    '{"a":',
    '{"a" ',
    '{"a":1} ',
    "```json\n",
    "<think>",
    '<tool_call>{"name":"s"',
    "<function=a>",
    "あ",
]


@pytest.mark.parametrize("start", ["", '{"reply": "'])
@pytest.mark.parametrize("unit", UNITS)
def test_a_megabyte_of_garbage_is_read_in_seconds(start: str, unit: str) -> None:
    text = start + unit * (1_000_000 // len(unit))
    began = time.process_time()
    read_reply(text)
    read_tool_calls(text, OFFERED)
    assert time.process_time() - began < 20  # measured: below 1 second; json-repair alone needs minutes
