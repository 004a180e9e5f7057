"""What OpenAIChat makes of streams, of good servers and of odd ones."""

import threading
import time
from typing import Any

import pytest

from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.circuit import Circuit
from stackmem.exceptions import ContentRefused, PermanentError, TransientError
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest, ToolCall
from tests.contract.chatting import CALL_TEXT, HELLO, KEY, READ, SAID, SEARCH, YES, ask, bodies, chatting, native
from tests.scripted import DONE, Answer, call, content, delta, drip, error, hang, raw, sse

USAGE = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}
END = (delta(finish_reason="stop"), USAGE, DONE)


def request(*, tools: Any = (SEARCH, READ), s: float = 20, purpose: Any = "turn", **more: Any) -> ChatRequest:
    return ChatRequest(HELLO, purpose, s, tools=tools, **more)


def streamed(chat: ChatModel, **more: Any) -> tuple[list[str], ChatAnswer]:
    """Return the pieces and the answer; the answer comes once, and last."""
    *pieces, answer = chat.stream(request(**more))
    assert isinstance(answer, ChatAnswer)
    assert all(isinstance(piece, str) and piece for piece in pieces)
    return [str(piece) for piece in pieces], answer


def stream_of(answer: Answer, **more: Any) -> tuple[list[str], ChatAnswer]:
    with chatting([answer]) as (chat, _):
        return streamed(chat, **more)


# --- a good server ---------------------------------------------------------------------------------------------------


def test_a_stream_gives_the_content_in_pieces_then_the_answer_that_complete_gives() -> None:
    with chatting([YES, YES]) as (chat, server):
        pieces, answer = streamed(chat)
        assert len(pieces) > 5
        assert "".join(pieces) == SAID
        assert answer == ask(chat, tools=[SEARCH, READ]) == ChatAnswer(SAID, (), 11, 7)
        first, second = bodies(server)
    assert first == second | {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("more", [{"tools": ()}, {"tools": (), "json_schema": {"type": "object"}}, {}])
def test_a_streamed_request_differs_from_a_whole_one_in_streaming_alone(more: Any) -> None:
    with chatting([YES, YES]) as (chat, server):
        streamed(chat, **more)
        chat.complete(request(**more))
        first, second = bodies(server)
    assert {key: first[key] for key in first if "stream" not in key} == second


def test_a_piece_is_there_before_the_server_has_sent_the_rest() -> None:
    rest = threading.Event()
    with chatting([sse(delta("こん"), rest, delta("にちは"), *END)]) as (chat, _):
        items = chat.stream(request())
        assert next(items) == "こん"
        rest.set()
        assert list(items) == ["にちは", ChatAnswer("こんにちは", (), 11, 7)]


@pytest.mark.parametrize("model", [OfflineChat(), Circuit(OfflineChat())])
def test_every_model_streams_the_answer_that_it_completes(model: ChatModel) -> None:
    pieces, answer = streamed(model)
    assert answer == model.complete(request())
    assert "".join(pieces) in ("", answer.content)


# --- shapes of streams -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        (b": ping\n\n", delta("は"), b":\n\n", delta("い"), b"\n\n: ping\n", *END),
        (b"event: message\nid: 1\nretry: 5\n", delta("は"), {"choices": []}, delta("い"), *END),
        (delta("は", role="assistant"), delta(""), delta(None), {"choices": None}, delta("い"), *END),
        (delta("はい", finish_reason="stop"), USAGE),  # no [DONE], and the end of the connection
        (delta("はい"), USAGE, DONE),  # no reason to finish
        (delta("は"), b"data: {half a chunk\n\n", b"data: 5\n\ndata: [1]\n\n", delta("い"), *END),
        (delta("はい"), *END, delta("何か")),
        ({"choices": [{"delta": {"content": "はい"}}]}, {"choices": [{"index": 1, "delta": {"content": "x"}}]}, *END),
        ({"choices": [5, {"index": 0, "delta": None}, {"index": 0, "message": {"content": "はい"}}]}, *END),
        (delta("は") | {"usage": {"prompt_tokens": 11, "completion_tokens": 1}}, delta("い"), *END),
        (b'data:{"choices":[{"delta":{"content":"', "は".encode()[:1], "は".encode()[1:] + b'"}}]}\r\n\r\n',
         b'data: {"choices": [{"delta": {"content": "\xe3\x81\x84"}}]}\r\n\r\n', *END),
        (b" \n", b"da", b"ta: ", b'{"choices":[{"delta":{"content":"\\u306f\\u3044"}}]}\n\n', *END),
        (delta("はい"), delta(finish_reason="stop"), USAGE, b"data: [DONE]"),
    ],
)  # fmt: skip
def test_every_shape_of_stream_gives_the_same(parts: Any) -> None:
    pieces, answer = stream_of(sse(*parts))
    assert ("".join(pieces), answer) == ("はい", ChatAnswer("はい", (), 11, 7))


def test_a_last_line_without_an_end_counts() -> None:
    assert stream_of(sse(delta("は"), b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}')) == (
        ["は", "x"],
        ChatAnswer("はx"),
    )


def test_a_character_cut_into_two_surrogates_is_whole_and_a_lone_half_is_replaced() -> None:
    pieces, answer = stream_of(sse(delta("a\ud83d"), delta("\ude00b"), delta("\ude00\ud83d"), *END))
    assert pieces == ["a", "😀b", "\ufffd"]
    assert answer.content == "a😀b\ufffd\ufffd"


@pytest.mark.parametrize("answer", [raw({"choices": [{"message": {"content": "はい"}}]}), sse(delta("はい"), *END)])
def test_a_server_that_answers_the_other_way_than_asked_is_understood(answer: Answer) -> None:
    with chatting([answer, answer]) as (chat, _):
        assert streamed(chat)[1].content == "はい"
        assert chat.complete(request()).content == "はい"


def test_thinking_beside_the_content_is_no_piece_and_is_noticed() -> None:
    thinking = sse(delta(reasoning_content="挨拶"), delta(None, reasoning="だ"), delta(SAID), *END)
    with chatting([thinking, YES]) as (chat, server):
        assert streamed(chat) == ([SAID], ChatAnswer(SAID, (), 11, 7))
        streamed(chat)
        assert ["chat_template_kwargs" in body for body in bodies(server)] == [False, True]


def test_an_answer_in_reasoning_alone_is_the_answer_without_pieces() -> None:
    assert stream_of(sse(delta(reasoning_content=SAID[:9]), delta(reasoning_content=SAID[9:]), *END)) == (
        [],
        ChatAnswer(SAID, (), 11, 7),
    )


# --- tool calls ------------------------------------------------------------------------------------------------------

ARGUMENTS = '{"query": "PC"}'


def piece(index: Any = None, identifier: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    """Return a chunk with a piece of a tool call, without the keys that are None."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    given = {"index": index, "id": identifier, "function": function or None}
    return delta(tool_calls=[{key: value for key, value in given.items() if value is not None}])


@pytest.mark.parametrize(
    "parts",
    [
        [piece(0, "c1", "search_memory", ""), piece(0, None, None, ARGUMENTS[:5]), piece(0, None, None, ARGUMENTS[5:])],
        [piece(None, "c1", "search_memory", ARGUMENTS[:5]), piece(None, None, None, ARGUMENTS[5:])],
        [piece(0, "c1", "search_", ""), piece(0, None, "memory", ARGUMENTS)],
        [piece(0, "c1", "search_memory", ARGUMENTS[:5]), piece(0, "c1", "search_memory", ARGUMENTS[5:])],
        [piece(None, "c1", "search_memory", ARGUMENTS[:5]), piece(None, "c1", "search_memory", ARGUMENTS[5:])],
        [piece(0, "c1", "search_memory"), piece(0, "other", None, ARGUMENTS[:5]), piece(0, "more", "", ARGUMENTS[5:])],
        [piece(0, "c1", "search_memory", {"query": "PC"})],
        [piece(0, "c1"), delta(tool_calls=[5, {"index": 0, "function": None}]), piece(0, None, "search_memory"),
         piece(0, None, None, ARGUMENTS)],
    ],
)  # fmt: skip
def test_a_tool_call_in_pieces_is_put_together(parts: Any) -> None:
    _, answer = stream_of(sse(*parts, delta(finish_reason="tool_calls"), USAGE, DONE))
    assert answer == ChatAnswer("", (ToolCall("c1", "search_memory", {"query": "PC"}),), 11, 7)


@pytest.mark.parametrize(
    "parts",
    [
        [piece(0, "a", "search_memory", ARGUMENTS), piece(1, "b", "read_memory_source", "{}")],
        [piece(0, "a", "search_memory", ARGUMENTS), piece(0, "b", "read_memory_source", "{}")],
        [piece(None, "a", "search_memory", ARGUMENTS), piece(None, "b", "read_memory_source", "{}")],
        [piece(None, None, "search_memory", ARGUMENTS), piece(None, None, "read_memory_source", "{}")],
        [piece(0, "a", "search_memory", ARGUMENTS[:4]), piece(1, "b", "read_memory_source", "{"),
         piece(0, None, None, ARGUMENTS[4:]), piece(1, None, None, "}")],
        [delta(tool_calls=[native("a", "search_memory", ARGUMENTS), native("b", "read_memory_source")])],
    ],
)  # fmt: skip
def test_several_calls_stay_apart(parts: Any) -> None:
    _, answer = stream_of(sse(*parts, DONE))
    assert [(wanted.name, wanted.arguments) for wanted in answer.tool_calls] == [
        ("search_memory", {"query": "PC"}),
        ("read_memory_source", {}),
    ]
    assert len({wanted.id for wanted in answer.tool_calls}) == 2


def test_no_piece_comes_after_a_tool_call_has_begun() -> None:
    parts = [delta("調べるね"), piece(0, "c1", "search_memory", ARGUMENTS), delta("見つけた"), DONE]
    pieces, answer = stream_of(sse(*parts))
    assert (pieces, answer.content, len(answer.tool_calls)) == (["調べるね"], "調べるね見つけた", 1)


@pytest.mark.parametrize("text", [CALL_TEXT, f"<tool_call>{CALL_TEXT}</tool_call>", f"```json\n{CALL_TEXT}\n```"])
def test_a_call_in_the_content_is_a_call_in_the_answer(text: str) -> None:
    _, answer = stream_of(content(text))
    assert [(wanted.name, wanted.arguments) for wanted in answer.tool_calls] == [("search_memory", {"query": "PC"})]
    assert answer.content == ""


def test_the_scripted_calls_are_the_same_streamed_or_not() -> None:
    assert stream_of(call("search_memory", {"query": "本"}))[1].tool_calls[0].arguments == {"query": "本"}


# --- refusals --------------------------------------------------------------------------------------------------------


def test_a_server_that_refuses_stream_options_is_streamed_without_them_from_then_on() -> None:
    def script(body: Any) -> Answer:
        return error(400, "Unrecognized request argument supplied: stream_options") if "stream_options" in body else YES

    with chatting(script) as (chat, server):
        assert [streamed(chat)[1] for _ in range(2)] == [ChatAnswer(SAID)] * 2  # tokens are not told
        assert ["stream_options" in body for body in bodies(server)] == [True, False, False]
        assert all(body["stream"] and "enable_thinking" in body for body in bodies(server))


@pytest.mark.parametrize(
    ("status", "words"),
    [(500, "Cannot use tools with stream"), (400, "streaming is not supported"), (400, "does not support stream")],
)
def test_a_server_that_refuses_streams_is_asked_without_from_then_on(status: int, words: str) -> None:
    with chatting(lambda body: error(status, words) if "stream" in body else YES) as (chat, server):
        assert [streamed(chat) for _ in range(2)] == [([], ChatAnswer(SAID, (), 11, 7))] * 2
        assert ["stream" in body for body in bodies(server)] == [True, False, False]
        assert not any("stream_options" in body for body in bodies(server)[1:])


def test_refused_parameters_are_changed_as_for_a_whole_answer() -> None:
    def script(body: Any) -> Answer:
        if "enable_thinking" in body:
            return error(400, "extra fields not permitted: enable_thinking")
        return error(400, "response_format json_schema is not available") if "response_format" in body else YES

    with chatting(script) as (chat, server):
        assert streamed(chat, tools=(), json_schema={"type": "object"})[1].content == SAID
        assert chat.complete(request()).content == SAID
        assert "enable_thinking" not in bodies(server)[-1]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (error(401, "no"), PermanentError, "STACKMEM_CHAT_API_KEY"),
        (error(429, "余额不足"), PermanentError, "wants to be paid"),
        (error(400, {"error": {"code": "data_inspection_failed", "message": "x"}}), ContentRefused, "these words"),
        (sse(b'data: {"error": {"message": "Incorrect key", "code": 401}}\n\n'), PermanentError, "_API_KEY"),
        (sse(b'event: error\ndata: {"code": 400, "message": "DataInspectionFailed"}\n\n'), ContentRefused, "words"),
        (sse(delta("は"), b'error: {"message": "out of memory"}\n\n'), TransientError, "out of memory"),
        (sse(delta("は"), {"errors": {"message": "slow down", "code": 429}}), TransientError, "over its rate"),
        (sse(delta(finish_reason="content_filter"), DONE), ContentRefused, "these words"),
        (raw(b"<html>hello"), PermanentError, "BASE_URL"),
    ],
)  # fmt: skip
def test_errors_before_and_inside_a_stream_are_of_the_same_types(answer: Answer, kind: Any, words: str) -> None:
    with chatting([answer]) as (chat, _), pytest.raises(kind, match=words) as caught:
        streamed(chat, purpose="judge")
    assert type(caught.value) is kind
    assert KEY not in str(caught.value)


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem",
    [
        error(500, "down"),
        sse(end="reset"),
        raw({"choices": None}),
        sse(),
        sse(DONE),
        sse(delta(role="assistant")),
    ],
)
def test_a_failure_before_the_first_piece_is_tried_once_more_in_a_live_turn(problem: Answer) -> None:
    with chatting([problem, YES]) as (chat, server):
        assert streamed(chat)[1].content == SAID
        assert len(server.requests) == 2
    with chatting([problem, YES]) as (chat, server):
        with pytest.raises(TransientError):
            streamed(chat, purpose="judge")
        assert len(server.requests) == 1


@pytest.mark.parametrize("end", ["whole", "reset"])
def test_a_stream_that_drops_in_the_middle_is_transient_and_its_pieces_are_not_said_twice(end: Any) -> None:
    rest = threading.Event()
    with chatting([sse(delta("こん"), rest, delta("に"), end=end), YES]) as (chat, server):
        items = chat.stream(request())
        assert next(items) == "こん"
        rest.set()
        with pytest.raises(TransientError, match="broke off"):
            list(items)
        assert len(server.requests) == 1
        assert streamed(chat)[1].content == SAID


def slowly() -> Answer:
    """A healthy stream, a character at a time, that would take minutes."""
    chunks = b"".join(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n' for _ in range(100))
    return drip(chunks, 0.02)


@pytest.mark.parametrize("answer", [hang(), slowly(), drip(b": ping\n\n" * 1000, 0.02)], ids=["hang", "drip", "pings"])
def test_the_deadline_is_for_the_whole_answer(answer: Answer) -> None:
    with chatting([answer]) as (chat, _):
        began = time.monotonic()
        with pytest.raises(TransientError, match="in time"):
            streamed(chat, s=1.5)
        assert 1.4 < time.monotonic() - began < 4


def test_a_stream_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackmem.adapters.openai_chat._BODY_LIMIT", 1000)
    with chatting([sse(*[delta("とても長い")] * 100)]) as (chat, _), pytest.raises(TransientError):
        streamed(chat)


def test_the_answer_is_there_at_done_and_the_connection_is_used_again() -> None:
    answered = threading.Event()
    with chatting([sse(delta("はい"), *END, answered), YES]) as (chat, server):
        assert streamed(chat)[1] == ChatAnswer("はい", (), 11, 7)
        answered.set()
        for thread in threading.enumerate():
            if thread.name == "chat":
                thread.join(20)
        assert chat.complete(request()).content == SAID
        assert (len(server.requests), server.connections) == (2, 1)


def test_an_abandoned_stream_is_closed() -> None:
    def endless(_: Any) -> Answer:
        return drip(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n' * 1000, 0.001)

    with chatting(endless) as (chat, server):
        items = chat.stream(request(s=100))
        assert next(items) == "x"
        items.close()  # type: ignore[attr-defined]
        for thread in threading.enumerate():
            if thread.name == "chat":
                thread.join(20)
        assert "chat" not in {thread.name for thread in threading.enumerate()}
        assert not server.stopping.is_set()


def test_a_deadline_that_is_over_asks_nothing() -> None:
    with chatting([YES]) as (chat, server):
        with pytest.raises(TransientError, match="in time"):
            streamed(chat, s=0)
        assert server.requests == []


def test_an_unreachable_server_is_transient() -> None:
    chat = OpenAIChat("http://127.0.0.1:9/v1", KEY, "qwen3")
    with pytest.raises(TransientError, match="cannot be reached"):
        streamed(chat)
    chat.close()
