"""What leaves an answer for speech while it still comes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.exceptions import TransientError
from stackmem.ports import ChatAnswer, ChatRequest
from stackmem.reading import read_reply, strip_thinking
from stackmem.speaking import ReplyDecoder, Speech
from stackmem.text import clean, cut_at_sentence

REQUEST = ChatRequest([], "turn", 1.0)
TWO = "おはよう。いい天気だね。"
CALL = '{"name": "search_memory", "arguments": {"query": "本。本を読む。"}}'


def form(reply: str, **more: Any) -> str:
    return json.dumps({**more, "reply": reply, "emotion": "happy", "action": "nod"}, ensure_ascii=False)


def left(content: str, limit: int = 360, **more: Any) -> list[str]:
    """Return what leaves an answer that comes a character at a time."""
    decoder = ReplyDecoder(limit, **more)
    return [sentence for piece in content for sentence in decoder.feed(piece)]


# --- what leaves, and when -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        form(TWO),
        json.dumps({"reply": TWO}),  # every character as \uXXXX
        f"```json\n{form(TWO)}\n```",
        f"```\n{form(TWO)}",
        f"\n  {form(TWO)}",
        f"<think>まず挨拶。そうだ。</think>\n\n{form(TWO)}",
        f"<think>\n</think><thinking>a{form('違う。違う。')}</thinking>{form(TWO)}",
        f"挨拶だ。{form('違う。') * 30}返そう。</think>{form(TWO)}",
        f"</think>{form(TWO)}",
        form(TWO, search=None),
        form(TWO, emotion="sad", action="none"),
        '{"reply"  :\n"' + TWO + '" , "emotion": "happy"',
    ],
)
def test_the_sentences_of_a_reply_leave_one_by_one(content: str) -> None:
    assert left(content) == ["おはよう。", "いい天気だね。"]


def test_a_sentence_leaves_as_soon_as_the_character_behind_it_is_there() -> None:
    decoder = ReplyDecoder(360)
    assert decoder.feed('{"reply": "おはよう。') == []
    assert decoder.feed("い") == ["おはよう。"]
    assert decoder.feed('い天気"') == []
    assert decoder.feed(', "emotion"') == []
    assert decoder.feed(":") == ["いい天気"]  # the reply is over, the answer is not
    assert decoder.feed(' "happy"}' + form("もう一つ。うん。")) == []


@pytest.mark.parametrize(
    "content",
    [
        CALL,
        f"```json\n{CALL}\n```",
        f"[{CALL}]",
        f"<tool_call>{CALL}</tool_call>",
        "<function=search_memory><parameter=query>本。本を読む。</parameter></function>",
        f"調べるね。待ってね。<tool_call>{CALL}</tool_call>",
        f"<think>そうだ。調べよう。{form(TWO)}",
        f"そうだ。<think>調べよう。</think>{form(TWO)}",
        "そうだ。調べよう。うん。",  # thinking whose end may come, or words before a call
        f'{{"name": "search_memory", {form(TWO)[1:]}',
        f'{{"search": {{"query": "本"}}, {form(TWO)[1:]}',
        form(CALL),
        form(f"[{CALL}]"),
        form(f"```\n{CALL}\n。\n```"),
        form(""),
        form(" \n "),
        json.dumps(form(TWO)),
        '{"emotion": "' + "x" * 600 + f'", {form(TWO)[1:]}',
        "{'reply': '" + TWO + "'}",
    ],
)
def test_nothing_leaves_what_may_be_a_call_or_thinking_or_is_of_another_shape(content: str) -> None:
    assert left(content) == []


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (form(TWO, search=None), ["おはよう。", "いい天気だね。"]),
        (form(TWO, search={"query": "本"}), []),
        (form(TWO, search="本"), []),
        ('{"reply": "' + TWO + '", "search": null}', []),  # it may still become a search
        (form("", search=None), []),
    ],
)
def test_where_the_json_says_whether_to_search_nothing_leaves_before_it_says_no(
    content: str, wanted: list[str]
) -> None:
    assert left(content, after_search=True) == wanted


@pytest.mark.parametrize(
    ("string", "wanted"),
    [
        (r"\u3042\u3002\ud83d\ude00\u3002a", ["あ。", "😀。", "a"]),
        (r"a\nb\tc\n\n\"d\" \\ \/", ["a", "\nb\tc", '\n\n"d" \\ /']),
        (r"い\u0000。う", ["い\ufffd。", "う"]),
        (r"あ。い\ud83d。う。え", ["あ。"]),  # half a character: what follows waits for the end
        (r"あ。い\x。う。え", ["あ。"]),
        ("あ。<think>い。う。</think>え。", ["あ。"]),
        ("あ。</THINK>い。う。", ["あ。"]),
        (r"あ。<tool_call>{\"name\": 1。}い。う", ["あ。"]),
        ("1 < 2。a<b。", ["1 < 2。", "a<b。"]),
        ("あ。い\nう。え", ["あ。"]),
        ('あ。彼は"はい"と。言った。', ["あ。"]),  # quotation marks that are not escaped
        ("  あ。 い。 ", ["あ。", " い。"]),
    ],
)
def test_escapes_are_read_and_what_is_no_json_waits_for_the_end(string: str, wanted: list[str]) -> None:
    assert left('{"reply": "' + string + '"}') == wanted


def test_no_more_than_the_limit_leaves_and_it_ends_with_a_sentence() -> None:
    text = "123456789。" * 5
    assert left(form(text), limit=25) == ["123456789。"] * 2
    assert left(form(text), limit=20) == ["123456789。"] * 2
    assert left(form(text), limit=9) == []
    assert left(form("文の終わりがない" * 9), limit=20) == []
    assert left(form("12345。6" + " " * 9), limit=8) == ["12345。", "6"]  # white space at the end does not count


# --- one turn --------------------------------------------------------------------------------------------------------


class Streaming:
    """A model that streams these pieces, then this answer, or fails."""

    name = "streaming"

    def __init__(self, *items: str | ChatAnswer | Exception):
        self.items = items

    def complete(self, request: ChatRequest) -> ChatAnswer:
        raise AssertionError("a turn that speaks is streamed")

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


def heard(content: str, cuts: list[int], limit: int) -> tuple[list[str], int, str]:
    """Return the sentences handed over, how many of them before the end, and what is stored."""
    edges = [0, *sorted({cut % (len(content) + 1) for cut in cuts}), len(content)]
    pieces = [content[start:end] for start, end in zip(edges, edges[1:], strict=False) if start < end]
    said: list[str] = []
    speech = Speech(said.append, limit)
    answer = speech.ask(Streaming(*pieces, ChatAnswer(strip_thinking(content))), REQUEST)
    early = len(said)
    stored = speech.stored(clean(read_reply(answer.content).reply).strip())
    assert stored.startswith("".join(said))
    speech.finish(stored)
    return said, early, stored


FRAGMENTS = st.sampled_from(
    ['{"reply": "', '"', '", "emotion": "happy"}', "}", "{", "<think>", "</think>", "<tool_call>", "</tool_call>", CALL]
    + [
        "```json\n",
        "```",
        "あ。",
        "い！？",
        "Hi. ",
        "\n",
        "\\n",
        "\\ud83d",
        "\\ude00",
        "\\u3042",
        "\\",
        '\\"',
        " ",
        ",",
    ]
    + ['"search": null, ', '"emotion": "sad", ', form(TWO), "とても長い文", "。」"]
)
CONTENT = st.lists(FRAGMENTS | st.text(max_size=4), max_size=14).map("".join)
CUTS = st.lists(st.integers(0, 400), max_size=20)


@given(CONTENT, CUTS, st.integers(1, 40))
def test_what_is_handed_over_is_the_stored_reply_whatever_the_model_writes(
    content: str, cuts: list[int], limit: int
) -> None:
    said, _, stored = heard(content, cuts, limit)
    assert "".join(said) == stored
    assert len(stored) <= limit


@given(CONTENT.filter(lambda text: "think>" not in text), CUTS, st.sampled_from(["", "<think>"]))
def test_no_thinking_is_ever_spoken(thinking: str, cuts: list[int], opening: str) -> None:
    opening = "<think>" if '{"reply": "' in thinking else opening  # an answer's beginning is taken for the answer
    said, _, stored = heard(f"{opening}{thinking}</think>{form(TWO)}", cuts, 100)
    assert (said, stored) == (["おはよう。", "いい天気だね。"], TWO)


@given(CONTENT, CUTS, st.integers(1, 40), st.booleans())
def test_pieces_of_any_size_give_the_same_sentences(
    content: str, cuts: list[int], limit: int, after_search: bool
) -> None:
    whole = ReplyDecoder(limit, after_search=after_search).feed(content)
    assert left(content, limit, after_search=after_search) == whole


REPLY = st.text(st.sampled_from("あ漢aB1 。！？!?.」\"'\n\\{}[]<>😀\ud83d\x00　"), max_size=40)


@given(REPLY, CUTS, st.booleans(), st.sampled_from(["", "<think>そう。</think>", "```json\n"]))
def test_streaming_changes_no_reply_in_the_form_asked_for(
    reply: str, cuts: list[int], ascii_only: bool, before: str
) -> None:
    content = clean(before + json.dumps({"reply": reply, "emotion": "happy"}, ensure_ascii=ascii_only))
    _, _, stored = heard(content, cuts, 100)
    assert stored == cut_at_sentence(clean(read_reply(strip_thinking(content)).reply).strip(), 100)


@given(st.lists(st.sampled_from(["あ。", "いろは！", "Hi. ", "「え？」"]), min_size=2, max_size=8).map("".join), CUTS)
def test_every_sentence_of_a_usual_reply_leaves_before_the_end(reply: str, cuts: list[int]) -> None:
    said, early, stored = heard(form(reply), cuts, 200)
    assert (early, stored) == (len(said), reply.strip())


def test_without_a_listener_nothing_is_streamed() -> None:
    class Whole(Streaming):
        def complete(self, request: ChatRequest) -> ChatAnswer:
            return ChatAnswer("はい")

    speech = Speech(None, 100)
    assert speech.ask(Whole(), REQUEST).content == "はい"
    assert (speech.stored("とても長い。" * 50)[-1], speech.said) == ("。", "")
    speech.finish("はい")


def test_a_failure_after_something_was_said_leaves_that() -> None:
    said: list[str] = []
    speech = Speech(said.append, 100)
    with pytest.raises(TransientError):
        speech.ask(Streaming('{"reply": "おはよう。い', TransientError()), REQUEST)
    assert (said, speech.stored("")) == (["おはよう。"], "おはよう。")
    speech.finish("おはよう。")
    assert said == ["おはよう。"]


@pytest.mark.parametrize(
    ("first", "second", "stored"),
    [
        ("調べるね。", "13万円。だよ", "調べるね。13万円。だよ"),
        ("Let me look.", "It was. OK", "Let me look. It was. OK"),
    ],
)
def test_what_was_said_before_a_tool_call_stays_in_front_of_the_reply(first: str, second: str, stored: str) -> None:
    said: list[str] = []
    speech = Speech(said.append, 100)
    speech.ask(Streaming(form(first), ChatAnswer(form(first))), REQUEST)
    assert said == [first]
    speech.ask(Streaming(form(second), ChatAnswer(form(second))), REQUEST)
    assert "".join(said) == speech.stored(second) == stored
    speech.ask(Streaming(ChatAnswer("")), REQUEST)
    assert speech.stored("") == stored


def test_a_reading_that_differs_in_the_end_does_not_take_back_what_was_said() -> None:
    twice = '{"reply": "一つ目。だ", "emotion": "happy", "reply": "二つ目。"}'
    assert read_reply(twice).reply == "二つ目。"
    assert heard(twice, [], 100) == (["一つ目。", "だ"], 2, "一つ目。だ")


def test_a_listener_that_fails_hears_no_more_and_the_turn_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    def fails(sentence: str) -> None:
        calls.append(sentence)
        raise OSError("the loudspeaker is gone")

    speech = Speech(fails, 100)
    speech.ask(Streaming(form(TWO), ChatAnswer(form(TWO))), REQUEST)
    assert calls == ["おはよう。"]
    assert speech.stored(TWO) == TWO
    speech.finish(TWO)
    assert calls == ["おはよう。"]
    assert "could not be handed over" in caplog.text
