"""The offline model's live turn: when it searches, what it answers, and that nothing makes it raise."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackmem.adapters.offline import OfflineChat
from stackmem.ports import ChatAnswer, ChatRequest

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("search_memory", "read_memory_source")]
EMOTIONS = {"neutral", "happy", "angry", "sad", "doubt", "sleepy"}
ACTIONS = {"none", "nod", "shake", "look_up", "look_down", "tilt"}


def complete(*messages: Any, tools: Any = TOOLS) -> ChatAnswer:
    return OfflineChat().complete(ChatRequest(messages, "turn", 1.0, tools))


def said(text: str, *earlier: str) -> ChatAnswer:
    history = [
        part for words in earlier for part in (user(words), {"role": "assistant", "content": '{"reply": "うん"}'})
    ]
    return complete({"role": "system", "content": "スタックチャン"}, *history, user(text))


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def after_search(question: str, *candidates: dict[str, Any]) -> dict[str, Any]:
    found = {"candidates": list(candidates), "count": len(candidates), "relaxed": [], "note": ""}
    result = {"role": "tool", "tool_call_id": "1", "content": json.dumps(found, ensure_ascii=False)}
    answer = complete(user(question), {"role": "assistant", "content": "", "tool_calls": []}, result)
    assert answer.tool_calls == ()
    return reply(answer)


def reply(answer: ChatAnswer) -> dict[str, Any]:
    value = json.loads(answer.content)
    assert list(value) == ["reply", "emotion", "action"]
    assert value["reply"]
    assert value["emotion"] in EMOTIONS
    assert value["action"] in ACTIONS
    return dict(value)


def memory(
    topic: str, *turns: tuple[str, str], at: str = "2026-07-01T20:15:00+09:00", summary: str = ""
) -> dict[str, Any]:
    sources = [
        {"turn_id": place, "at": at, "user": words, "robot": robot} for place, (words, robot) in enumerate(turns)
    ]
    return {"memory_id": topic, "topic": topic, "summary": summary, "said_at": at, "sources": sources}


FUJITSU = memory("富士通、PC", ("富士通のPCを12万円で買ったよ", "いい買い物だね！"))
THINKPAD = memory("ThinkPad、PC", ("ThinkPadのPCを8万円で買った", "いいね"), at="2026-07-05T10:00:00+09:00")


@pytest.mark.parametrize(
    "question",
    [
        "うちの猫の名前なんだっけ",
        "僕が買ったパソコンはいくらだった？",
        "私の好きな食べ物は？",
        "どこに旅行に行くって言ったかな",
        "前に話した本のタイトルわかる？",
        "猫の名前は？",
        "ｳﾁの猫なんて名前？",
        "ぼくの誕生日おぼえてる",
        "私の誕生日を教えて",
        "富士通のＰＣいくらでしたっけ",
        "昨日カレー食べたよね？",
        "この間買ったパソコンどこのメーカーだった？",
        "９月２９日、おひるを外ですませてきたよね。お店と、口にしたものは？",
        "What did I buy last week?",
        "what's my cat's name?",
        "Do you remember where I work?",
        "Tell me my favorite food",
        "Do I have any pets?",
        "remind me what I bought",
        "How much was the laptop?",
        "How much was the Fujitsu laptop?",
        "How much did the laptop cost?",
        "Where was the hotel?",
        "What was the name of the restaurant?",
        "When was the math test?",
        "Which book was it?",
    ],
)
def test_a_question_about_the_users_past_searches(question: str) -> None:
    (call,) = said(question).tool_calls
    assert call.name == "search_memory"
    assert call.arguments is not None
    assert list(call.arguments) == ["query"]
    assert call.arguments["query"]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "こんにちは",
        "ありがとう",
        "昨日カレーを食べたよ",
        "コーヒーは苦手なんだ",
        "富士山の高さは？",
        "日本で一番高い山って何だっけ",
        "今日は何曜日？",
        "元気？",
        "何してるの？",
        "君の名前は？",
        "どこか行きたいな",
        "面白い話を教えて",
        "前髪ぱっつんにしたんだけど、似合う？",
        "なんて言ったの？",
        "楽しかった？",
        "What time is it?",
        "What should I eat tonight?",
        "What's the capital of France?",
        "I bought a PC yesterday",
        "How are you?",
        "How much is the laptop?",
        "How was the weather?",
        "Who was the first president?",
        "When was the Eiffel Tower built?",
        "When did the war end?",
        "How tall was the tallest man?",
        "What was that?",
        "How was your day?",
        "富士通のPCのこと、忘れてくれる？",
        "Can you forget what I told you?",
    ],
)
def test_small_talk_and_general_knowledge_do_not_search(words: str) -> None:
    answer = said(words)
    assert answer.tool_calls == ()
    reply(answer)


@pytest.mark.parametrize("words", ["前に進んで", "右を向いて", "思い出の曲をかけて", "Go forward", "Turn left please"])
def test_a_command_does_not_search(words: str) -> None:
    assert said(words).tool_calls == ()


@pytest.mark.parametrize(
    ("words", "text", "action"),
    [
        ("前に進んで", "了解、前に進むね。", "nod"),
        ("上を見て", "了解、上を向くね。", "look_up"),
        ("思い出の曲をかけて", "ごめん、それはまだできないんだ。", "shake"),
        ("look down", "OK, looking down.", "look_down"),
        ("Sing a song for me", "Sorry, I can't do that yet.", "shake"),
        ("おやすみ", "おやすみ、また明日ね。", "nod"),
        ("さっきの話は忘れてね", "わかった、忘れてほしいんだね。", "nod"),
        ("Forget that, please", "OK, you want me to forget that.", "nod"),
        ("Thanks!", "You're welcome.", "nod"),
        ("富士山の高さは？", "ごめん、それは分からないな。言語モデルがまだつながっていないんだ。", "tilt"),
        ("Is it far?", "Sorry, I can't answer that. No language model is connected yet.", "tilt"),
        ("新しい本を買ったよ", "そうなんだ、いいね！", "nod"),
        ("財布をなくして悲しい", "そっか、それは大変だったね。", "nod"),
        ("今日はカレーだよ", "そうなんだね。", "nod"),
        ("The wall is white", "I see.", "nod"),
        ("そうなの？", "うん、うん。", "nod"),
        ("", "I'm listening.", "tilt"),
    ],
)
def test_talk_is_answered_in_its_own_language(words: str, text: str, action: str) -> None:
    answer = reply(said(words))
    assert (answer["reply"], answer["action"]) == (text, action)


def test_the_query_holds_the_users_words_without_filler() -> None:
    (call,) = said("ねえ、うちの猫の名前なんだっけ？").tool_calls
    assert call.arguments == {"query": "うちの猫の名前"}


def test_without_tools_it_says_that_it_does_not_remember() -> None:
    assert "覚えていない" in reply(complete(user("うちの猫の名前なんだっけ"), tools=()))["reply"]
    assert "remember" in reply(complete(user("What's my cat's name?"), tools=["odd", {"function": None}]))["reply"]


def test_what_stands_in_this_session_is_answered_without_a_search() -> None:
    answer = said("富士通のPC、いくらで買ったっけ", "富士通のPCを12万円で買ったよ", "富士通のPCいくらだっけ")
    assert answer.tool_calls == ()
    assert "12万円" in reply(answer)["reply"]


def test_a_correction_in_this_session_wins() -> None:
    answer = said(
        "富士通のPC、いくらで買ったっけ", "富士通のPCを12万円で買ったよ", "ごめん、12万じゃなくて13万円だった"
    )
    assert "13万円" in reply(answer)["reply"]
    assert "12万" not in reply(answer)["reply"]


def test_what_only_sounds_alike_in_this_session_still_searches() -> None:
    assert said("富士通のPC、いくらで買ったっけ", "富士通のPCが動かないんだ").tool_calls
    assert said("猫の名前なんだっけ", "猫が好き").tool_calls


def test_this_session_is_quoted_in_english_too() -> None:
    assert (
        'You just said "My cat is called Mugi"'
        in reply(said("what is my cat called?", "My cat is called Mugi."))["reply"]
    )


def test_a_found_fact_is_quoted_with_its_date() -> None:
    answer = after_search("富士通のPC、いくらで買ったっけ", FUJITSU, THINKPAD)
    assert answer == {
        "reply": "7月1日に『富士通のPCを12万円で買ったよ』って言ってたね。",
        "emotion": "happy",
        "action": "nod",
    }


def test_a_found_fact_is_quoted_in_english() -> None:
    answer = after_search("What's my cat's name?", memory("Mugi", ("My cat's name is Mugi.", "Cute!")))
    assert answer["reply"] == 'On July 1 you said "My cat\'s name is Mugi".'


def test_a_price_asked_in_english_is_told() -> None:
    laptop = memory("Fujitsu", ("I bought a Fujitsu laptop for 1200 dollars.", "Nice!"))
    answer = after_search("How much was the laptop?", laptop)
    assert answer["reply"] == 'On July 1 you said "I bought a Fujitsu laptop for 1200 dollars".'
    in_session = said("How much was the laptop?", "I bought a Fujitsu laptop for 1200 dollars.")
    assert "1200 dollars" in reply(in_session)["reply"]


def test_a_correction_is_quoted_without_the_value_it_takes_back() -> None:
    corrected = memory(
        "富士通", ("富士通のPCを12万円で買ったよ", "いいね"), ("ごめん、12万じゃなくて13万円だった", "13万円だね")
    )
    answer = after_search("富士通のPC、いくらで買ったっけ", corrected)
    assert "13万円" in answer["reply"]
    assert "12万" not in answer["reply"]


def test_the_robots_words_are_told_as_its_own() -> None:
    answer = after_search(
        "前におすすめしてくれた本なんだっけ", memory("本", ("おすすめの本ある？", "「こころ」がおすすめだよ"))
    )
    assert answer["reply"] == "7月1日に『「こころ」がおすすめだよ』って話したよ。"
    told = after_search("which book did you recommend?", memory("book", ("Any book?", "I recommend Kokoro.")))
    assert told["reply"] == 'On July 1 I said "I recommend Kokoro".'


def test_an_answer_is_found_by_the_question_before_it() -> None:
    menu = memory("店", ("ただいま", "好きな居酒屋メニューありますか？"), ("だしまきです！", "いっしょです"))
    assert "だしまき" in after_search("居酒屋で好きなメニューって何だっけ", menu)["reply"]


def test_a_summary_without_sources_is_enough() -> None:
    found = {"topic": "PC", "summary": "2026年7月1日、ユーザー：富士通のPCを12万円で買ったよ。", "memory_id": "m"}
    assert after_search("PCいくらで買った？", found)["reply"] == "『富士通のPCを12万円で買ったよ』って言ってたね。"
    assert (
        after_search("what PC do I have?", found | {"summary": "User: I have a PC"})["reply"]
        == 'You said "I have a PC".'
    )


def test_two_different_things_are_asked_back() -> None:
    answer = after_search("あのPCってどれのことだっけ", FUJITSU, THINKPAD)
    assert answer["reply"] == "どっちの話？「富士通、PC」のこと？それとも「ThinkPad、PC」のこと？"
    cats = memory("Mugi", ("My cat Mugi is old", "ok")), memory("Momo", ("My cat Momo is young", "ok"))
    assert "Which one do you mean" in after_search("which cat of mine was it?", *cats)["reply"]


def test_two_memories_of_one_thing_are_not_asked_back() -> None:
    assert "どっち" not in after_search("あのPCいくらだっけ", FUJITSU, FUJITSU | {"memory_id": "again"})["reply"]


def test_turns_that_are_not_yet_a_memory_are_answered_from() -> None:
    waiting = memory("", ("富士通のPCを12万円で買ったよ", "")) | {"memory_id": None, "not_yet_a_memory": True}
    assert "12万円" in after_search("富士通のPC、いくらで買ったっけ", waiting)["reply"]


def test_a_doubtful_hit_is_told_as_doubtful() -> None:
    answer = after_search("血液型なんだっけ", FUJITSU)
    assert answer["reply"].startswith("はっきりとは覚えていないけど")
    assert after_search("What's my blood type?", THINKPAD)["reply"].startswith("I'm not sure")


@pytest.mark.parametrize(
    "content", ["", "null", "[]", "oops", '{"error": "no"}', '{"candidates": 3}', "[" * 100000, None, 7]
)
def test_nothing_found_invents_nothing(content: Any) -> None:
    answer = reply(complete(user("血液型なんだっけ"), {"role": "tool", "content": content}))
    assert answer["reply"] == "ごめん、それは覚えていないみたい。"


def test_a_memory_that_only_holds_the_question_answers_nothing() -> None:
    assert "覚えていない" in after_search("富士通のPCいくらだっけ", memory("", ("富士通のPCいくらだっけ", "")))["reply"]


def test_text_parts_are_read_as_text() -> None:
    assert (
        reply(complete(user([{"type": "text", "text": "こんにちは"}, "odd", {"type": "image"}])))["reply"]
        == "こんにちは！"
    )


@pytest.mark.parametrize("messages", [(), ("odd", 3), ({"role": "user"},), ({"role": "tool"},), ({"content": "x"},)])
def test_odd_messages_get_an_answer(messages: tuple[Any, ...]) -> None:
    reply(complete(*messages))


@settings(max_examples=200, deadline=None)
@given(
    st.text(),
    st.text(),
    st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ),
)
def test_any_text_gets_the_same_answer_twice(words: str, source: str, odd: Any) -> None:
    found = {"candidates": [{"summary": words, "sources": [{"user": source, "robot": words, "at": odd}]}, odd]}
    for messages in ((user(source), user(words)), (user(words), {"role": "tool", "content": json.dumps(found)})):
        first, second = complete(*messages), complete(*messages)
        assert first == second
        if not first.tool_calls:
            reply(first).get("reply", "").encode()


@pytest.mark.parametrize("part", ["そう", "おお", "は ", "って言った", "1,", "A-", "?", "「", "12万じゃなくて"])
def test_forty_turns_of_100_kilobytes_are_answered_in_seconds(part: str) -> None:
    long = part * (100_000 // len(part.encode()))
    complete(*[user(long)] * 39, user(long + "僕の猫の名前覚えてる？"))
    after_search_of_long = {"candidates": [memory(long, (long, long), summary=long)] * 5}
    complete(user(long), {"role": "tool", "content": json.dumps(after_search_of_long)})
