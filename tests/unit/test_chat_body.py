"""A request of OpenAI's chat completions, read: fields, what is new in it, and what nobody said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.chat_body import MODELS, Pair, Talk, read_body, read_talk, text_of
from stackmem.exceptions import BadParameter
from stackmem.front_ends import is_task, unwrap


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def talk(words: str, system: str = "", *pairs: Pair) -> Talk:
    return Talk(system, pairs, (words,))


# --- fields ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "raw"), [("stackmem-raw", True), ("stackmem", False), ("gpt-4o", False), (None, False), (3, False)]
)
def test_only_one_name_means_the_model_behind(model: Any, raw: bool) -> None:
    body = read_body({"messages": [user("やあ")], "model": model})
    assert (body.is_raw, body.model in MODELS) == (raw, True)


def test_what_is_not_understood_is_left_out() -> None:
    odd = {"n": None, "stream": None, "stream_options": "x", "response_format": "text", "logit_bias": {}, "stop": "。"}
    body = read_body({"messages": [user("やあ")], "max_tokens": -1, "user": "", **odd})
    assert (body.stream, body.include_usage, body.max_tokens, body.json_schema, body.user) == (
        False, False, None, None, None
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}, {"type": "array"}),
        ({"type": "json_schema"}, None),
        ({"type": "text"}, None),
    ],
)
def test_a_response_format_is_read(given: Any, schema: Any) -> None:
    assert read_body({"messages": [user("x")], "response_format": given}).json_schema == schema


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, ["a", "b"]),
        ("auto", ["a", "b"]),
        ("required", ["a", "b"]),
        ("none", []),
        ({"type": "function", "function": {"name": "b"}}, ["b"]),
        ({"type": "function", "function": {"name": "z"}}, ["a", "b"]),
        ({"type": "allowed_tools", "allowed_tools": {"tools": [{"function": {"name": "a"}}]}}, ["a"]),
        ({"type": "allowed_tools", "allowed_tools": {"tools": 3}}, ["a", "b"]),
    ],
)
def test_a_choice_of_tools_leaves_those_that_may_be_called(choice: Any, names: list[str]) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "ab"]
    body = read_body({"messages": [user("x")], "tools": tools, "tool_choice": choice})
    assert [tool["function"]["name"] for tool in body.tools] == names


@pytest.mark.parametrize(
    ("more", "parameter"),
    [
        ({"n": 3}, "n"),
        ({"functions": [{}]}, "functions"),
        ({"tools": "x"}, "tools"),
        ({"max_completion_tokens": True}, "max_completion_tokens"),
        ({"messages": [{"role": "assistant", "content": "", "tool_calls": ["x"]}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": "x"}]}]}, "messages[0].tool_calls"),
    ],
)
def test_a_wrong_field_is_named(more: Any, parameter: str) -> None:
    with pytest.raises(BadParameter) as caught:
        read_body({"messages": [user("x")], **more})
    assert caught.value.parameter == parameter


WORDS = st.sampled_from(
    ["", " ", "やあ", "\ud800\x00", "### Task:", "text", "none", "type", "function", "name", "tools"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"])},
        optional={
            "content": JSON | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": JSON}), max_size=2),
            "tool_calls": JSON,
            "name": JSON,
        },
    ),
    max_size=6,
)
FIELDS = (
    "messages",
    "model",
    "n",
    "stream",
    "stream_options",
    "user",
    "tools",
    "tool_choice",
    "max_tokens",
    "functions",
)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.none() | MESSAGES)
def test_any_json_is_read_or_refused_in_one_sentence(body: dict[str, Any], messages: Any) -> None:
    if messages is not None:
        body["messages"] = messages
    try:
        new = read_talk(read_body(body).messages)
    except BadParameter as exc:
        refused = str(exc)
    else:
        refused = ""
    if refused:
        assert refused.endswith(".")
        return
    assert new.words.strip()
    assert all(pair.user or pair.reply for pair in new.pairs)
    is_task(new)
    assert unwrap(new.words)[0]


# --- what is new -----------------------------------------------------------------------------------------------------


def test_messages_in_a_row_belong_together() -> None:
    read = read_talk(
        [
            assistant("なにか話して"), {"role": "system", "content": " 短く。 "}, user("ねえ"), user("聞いて"),
            assistant("うん"), assistant("なに？"), user("猫がね"), user(" "), user([{"type": "text", "text": "寝た"}]),
            {"role": "developer", "content": [{"type": "text", "text": "絵文字なし。"}]},
        ]
    )  # fmt: skip
    assert read.system == "短く。\n\n絵文字なし。"
    assert [(pair.user, pair.reply) for pair in read.pairs] == [("", "なにか話して"), ("ねえ\n聞いて", "うん\nなに？")]
    assert read.pairs[1].may_be == ["ねえ\n聞いて", "聞いて"]
    assert (read.new, read.words) == (("猫がね", "寝た"), "猫がね\n寝た")


def test_too_many_words_at_once_are_refused() -> None:
    with pytest.raises(BadParameter, match="longer than 300,000 characters"):
        read_talk([user("あ" * 300_001)])


def test_of_many_messages_in_a_row_a_turn_holds_all_or_the_last_few() -> None:
    pair = Pair(tuple(map(str, range(1000))), "")
    assert len(pair.may_be) == 9
    assert (pair.may_be[0], pair.may_be[-1]) == (pair.user, "999")


def test_a_front_end_may_send_more_than_a_name_of_its_user() -> None:
    assert read_body({"messages": [user("x")], "user": {"id": "u1", "email": "x"}}).user is None


def test_calls_and_empty_messages_are_no_replies() -> None:
    read = read_talk(
        [
            user("天気"),
            assistant("調べるね", tool_calls=[{"id": "c"}]),
            assistant(None),
            assistant("晴れ"),
            user("へえ"),
        ]
    )
    assert [(pair.user, pair.reply) for pair in read.pairs] == [("天気", "晴れ")]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("やあ", "やあ"),
        (["やあ", {"type": "input_text", "text": "ねえ"}, {"type": "image_url"}, {"type": "text"}, 3], "やあ\nねえ"),
    ],
)
def test_text_of_any_content(content: Any, text: str) -> None:
    assert text_of(user(content)) == text


# --- front-ends ------------------------------------------------------------------------------------------------------

AROUND = "### Task:\nRespond to the user query using the provided context, incorporating inline citations.\n\n"
TASKS = [
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.",
    "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history",
    "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next",
    "### Task:\nAnalyze the chat history to determine the necessity of generating search queries",
    "### Task:\nYou are an autocompletion system. Continue the text in `<text>`",
    "Your task is to reflect the speaker's likely facial expression through a fitting emoji.",
    "Provide a concise, 5-word-or-less title for the conversation, using title case conventions.",
    "Please generate a concise, 5-word-or-less title for the conversation",
    "Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A concise title",
    "Please generate a four to five word title summarizing our conversation without any lead-in",
    "Based on the chat history, give this conversation a name.\nKeep it short - 10 characters max",
    "Summarize the discussion briefly in 200 words or less to use as a prompt for future context.",
    "Give this conversation a short title.",
    "Summarize this conversation as a title of five words",
    "Summarize the conversation in 5 words or fewer:\nUser: hi",
    "Create a concise, 3-5 word phrase as a header for the following query",
    "以下の会話の内容を表す短いタイトルを10文字以内で付けてください。\nユーザー: 猫",
    "使用四到五个字直接返回这句话的简要主题，不要解释",
    "4～5文字でこの文章の簡潔な主題を返してください。",
]


@pytest.mark.parametrize("text", TASKS)
def test_a_front_ends_task_is_told_from_talk(text: str) -> None:
    assert is_task(talk(text))
    assert is_task(talk(f"  {text}", "設定", Pair(("やあ",), "うん")))


@pytest.mark.parametrize(
    "system",
    [
        "You are a helpful assistant that creates concise, descriptive titles for conversations.",
        "You are an assistant skilled in conversation. You need to summarize the user's conversation into a title",
        "你是一名擅长会话的助理，你需要将用户的会话总结为 10 个字以内的标题",
        "あなたは会話からタイトルを生成するアシスタントです。",
    ],
)
def test_instructions_that_make_titles_are_a_task(system: str) -> None:
    assert is_task(talk("user: 猫を飼ってる", system))


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("タイトルを考えて", ""),
        ("タスクを三つ教えて", ""),
        ("Suggest a title for my novel", ""),
        ("その本のタイトル、なんだっけ", "あなたはゲームのタイトルに詳しいロボットです。"),
        ("Do you remember the title?", "You are a friendly robot. You like books and their titles."),
        ("Task: clean the room", ""),
        ("Summarize our conversation of yesterday", ""),
        ("次の会話では映画の話をしよう", ""),
        ("この会話、楽しいね", ""),
        (f"{AROUND}<context>x</context>\n猫は？", ""),
    ],
)
def test_talk_is_no_task(text: str, system: str) -> None:
    assert not is_task(talk(text, system))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{AROUND}<context>\n会議は3時\n</context>\n\n会議は何時？", "会議は何時？"),
        (f"{AROUND}<context>\nx\n</context>\n<user_query>\n会議は何時？\n</user_query>\n", "会議は何時？"),
        (f"{AROUND}<context>\n会議は3時\n</context>\n", None),
        ("会議は<context>何時？", None),
    ],
)
def test_what_a_front_end_puts_around_is_taken_off(text: str, said: str | None) -> None:
    words, around = unwrap(text)
    assert words == (said or text)
    assert bool(around) == bool(said)
