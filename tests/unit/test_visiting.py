"""Clients that send their whole conversation: what is kept of it, where it goes on, what the model is shown."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from stackmem import sessions
from stackmem.chat_body import read_body
from stackmem.exceptions import BadParameter, TransientError
from stackmem.models import Memory, Session, ToolTrace, Turn
from stackmem.visiting import Answered, Visit, Visiting
from tests.scripted import DONE, Answer, call, content, delta, error, say, sse
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World, again, keep, segments

WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
ROBOT = [
    {"role": "system", "content": "あなたはスタックチャンです。"},
    {"role": "system", "content": "ユーザーの名前はかなです。"},
    {"role": "system", "content": "語尾に「のだ」を付けます。"},
]


class Client:
    """A client that keeps its conversation as most do: system messages first, a window of the last messages."""

    def __init__(self, world: World, window: int = 20, system: Sequence[Any] = (), **visit: Any):
        self._visiting, self._window, self._system, self._visit = Visiting(world.conversation), window, system, visit
        self.history: list[dict[str, Any]] = []

    def say(self, text: str, **body: Any) -> Answered:
        """Say something, and keep the reply."""
        self.history.append({"role": "user", "content": text})
        return self.again(**body)

    def again(self, **body: Any) -> Answered:
        """Have the last words answered anew."""
        if self.history[-1]["role"] == "assistant":
            self.history.pop()
        answered = self.send([*self._system, *self.history[-self._window :]], **body)
        self.history.append({"role": "assistant", "content": answered.text})
        return answered

    def send(self, messages: Any, on_text: Any = None, **body: Any) -> Answered:
        """Send these messages."""
        visit = Visit(**{"owner": "home", "body": read_body({"messages": messages, **body}), **self._visit})
        return self._visiting.answer(visit, on_text)


@pytest.fixture
def client(world: World) -> Client:
    return Client(world)


def stored() -> list[tuple[str, str, str]]:
    """Return (session, words, reply) of every turn."""
    return [(turn.session.name, turn.user, turn.reply) for turn in Turn.select().order_by(Turn.id)]


def counting(request: Any) -> Answer:
    """Reply with the user's last words, and how many messages there were."""
    return say(f"{request['messages'][-1]['content']}か。{len(request['messages'])}")


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_only_the_new_words_and_their_reply_are_kept_in_one_session(
    world: World, model: ScriptedModel, client: Client
) -> None:
    model.script = counting
    for text in ("おはよう", "猫を飼ってるんだ", "名前はミケ"):
        client.say(text)
    assert [(words, reply) for _, words, reply in stored()] == [
        ("おはよう", "おはようか。2"), ("猫を飼ってるんだ", "猫を飼ってるんだか。4"), ("名前はミケ", "名前はミケか。6")
    ]  # fmt: skip
    assert Session.select().count() == 1
    assert [turn.state for turn in Turn.select()] == ["pending"] * 3


def test_the_clients_history_is_the_context_and_our_turns_are_not_shown_twice(
    model: ScriptedModel, client: Client
) -> None:
    model.script = [say("一", "happy", "nod"), say("二"), say("三")]
    client.say("いち")
    client.say("に")
    client.history[0:0] = [{"role": "user", "content": "前の話"}, {"role": "assistant", "content": "前の返事"}]
    client.say("さん")
    shown = [(message["role"], message["content"]) for message in model.asked[-1]["messages"][1:]]
    assert [role for role, _ in shown] == ["user", "assistant"] * 3 + ["user"]
    assert [text for role, text in shown if role == "user"] == ["前の話", "いち", "に", "さん"]
    assert json.loads(shown[3][1]) == {"reply": "一", "emotion": "happy", "action": "nod"}
    assert len(stored()) == 3


def test_the_tools_are_ours_and_the_trace_is_kept(world: World, model: ScriptedModel, client: Client) -> None:
    memory = world.memory("ユーザーは富士通のPCを13万円で買った。")
    world.indexed()
    model.script = [call("search_memory", {"query": "PCの値段"}), say("13万円だったよ。")]
    answered = client.say("パソコンいくらだったっけ")
    assert answered.turn is not None
    assert (answered.text, answered.turn.searched, answered.turn.memory_ids) == ("13万円だったよ。", True, [memory.id])
    assert ToolTrace.select().where(ToolTrace.turn == answered.turn).count() == 1
    assert (answered.prompt_tokens, answered.completion_tokens) == (22, 14)


def test_what_is_said_is_remembered_like_any_turn(world: World, model: ScriptedModel, client: Client) -> None:
    model.script = lambda request: segments(keep([1], "ユーザーの猫はミケ。")) if _looks(request) else say("そうか")
    client.say("うちの猫の名前はミケ")
    world.clock.advance(minutes=20)
    world.work.sweep()
    world.settle()
    assert [memory.summary for memory in Memory.select()] == ["ユーザーの猫はミケ。"]


def _looks(request: Any) -> bool:
    return "segments" in json.dumps(request["messages"], ensure_ascii=False)


def test_a_model_that_is_down_gives_the_fallback_line(world: World, model: ScriptedModel, client: Client) -> None:
    model.script = lambda _: error(401, "no")
    answered = client.say("やあ")
    assert answered.text in world.persona.fallback
    assert answered.turn is not None
    assert answered.turn.degraded


# --- one system message ----------------------------------------------------------------------------------------------


def test_several_system_messages_become_one_with_ours_behind(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: say("うん")
    client = Client(world, system=[*ROBOT, {"role": "developer", "content": "短く。"}])
    client.say("やあ")
    system, user = model.asked[0]["messages"]
    assert (system["role"], user) == ("system", {"role": "user", "content": "やあ"})
    places = [
        system["content"].index(word) for word in ("スタックチャンです。", "かな", "のだ", "短く。", "search_memory")
    ]
    assert places == sorted(places)
    assert {tool["function"]["name"] for tool in model.asked[0]["tools"]} == {"search_memory", "read_memory_source"}


def test_long_instructions_of_a_client_leave_room_for_the_talk(world: World, model: ScriptedModel) -> None:
    model.script = counting
    client = Client(world, system=[{"role": "system", "content": "長い設定。" * 5000}])
    client.say("おはよう")
    assert client.say("元気？").text == "元気？か。4"
    assert "省略されています" in model.asked[0]["messages"][0]["content"]
    assert "search_memory" in model.asked[0]["messages"][0]["content"]


def test_dollars_and_odd_characters_in_instructions_are_harmless(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: say("うん")
    Client(world, system=[{"role": "system", "content": "$name ${x} $ \x00 \ud800"}]).say("\ud83dやあ\x00")
    assert "$name ${x} $ \ufffd \ufffd" in model.asked[0]["messages"][0]["content"]
    assert stored()[0][1] == "\ufffdやあ\ufffd"


# --- where it goes on ------------------------------------------------------------------------------------------------


def test_a_window_that_loses_its_beginning_stays_one_session(world: World, model: ScriptedModel) -> None:
    model.script = counting
    client = Client(world, window=5, system=ROBOT)
    for number in range(12):
        client.say(f"話{number}")
    assert Session.select().count() == 1
    assert [words for _, words, _ in stored()] == [f"話{number}" for number in range(12)]


def test_a_header_names_the_session_else_user_does(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: say("うん")
    Client(world, session="header").say("一", user="kana")
    Client(world).say("二", user="kana")
    Client(world).say("三", user="")
    assert [name for name, _, _ in stored()][:2] == ["header", "kana"]
    assert stored()[2][0].startswith("chat-")
    with pytest.raises(BadParameter, match="1 to 200 characters"):
        Client(world).say("四", user="x" * 201)


def test_without_history_a_named_session_has_its_stored_turns(world: World, model: ScriptedModel) -> None:
    model.script = counting
    named = Client(world, session="robot")
    for text in ("猫を飼ってる", "名前はミケ"):
        named.send([{"role": "user", "content": text}])
    named.send([{"role": "user", "content": "名前はミケ"}])  # said once more, with turns before it
    assert [(words, reply[-1]) for _, words, reply in stored()] == [
        ("猫を飼ってる", "2"), ("名前はミケ", "4"), ("名前はミケ", "6")
    ]  # fmt: skip


def test_a_session_goes_on_after_its_end_under_the_same_name(
    world: World, model: ScriptedModel, client: Client
) -> None:
    model.script = counting
    client.say("おはよう")
    world.clock.advance(minutes=30)
    sessions.end_idle(world.clock.now())
    client.say("ただいま")
    assert len({name for name, _, _ in stored()}) == 1
    assert [turn.session.seq for turn in Turn.select().order_by(Turn.id)] == [1, 2]


def test_two_talks_that_begin_alike_are_told_apart_by_what_came_before(world: World, model: ScriptedModel) -> None:
    model.script = lambda request: say(f"{request['messages'][-1]['content']}なんだ")
    one, other = Client(world), Client(world)
    one.say("こんにちは")
    world.clock.advance(minutes=11)
    other.say("こんにちは")
    for client, animal in ((one, "猫"), (other, "犬"), (one, "うん"), (other, "うん"), (one, "白い"), (other, "黒い")):
        client.say(animal)
    names = {words: name for name, words, _ in stored()}
    assert names["白い"] != names["黒い"]
    assert [words for name, words, _ in stored() if name == names["黒い"]][-2:] == ["うん", "黒い"]


@pytest.mark.parametrize("other", [{"owner": "mari"}, {"device": "robot"}])
def test_nobody_elses_session_goes_on(world: World, model: ScriptedModel, other: Any) -> None:
    model.script = lambda _: say("うん")
    first, second = Client(world), Client(world, **other)
    first.say("おはよう")
    second.history = list(first.history)
    second.say("元気？")
    assert len({name for name, _, _ in stored()}) == 2


def test_an_imported_conversation_does_not_go_on(world: World, model: ScriptedModel, client: Client) -> None:
    world.session("log", imported="key")
    world.turn("おはよう", "うん", session="log")
    model.script = lambda _: say("元気だよ")
    client.history = [{"role": "user", "content": "おはよう"}, {"role": "assistant", "content": "うん"}]
    client.say("元気？")
    assert stored()[-1][0].startswith("chat-")


def test_an_edited_message_is_a_new_turn_of_the_session(model: ScriptedModel, client: Client) -> None:
    model.script = counting
    client.say("おはよう")
    client.say("ねこをかつてる")
    del client.history[2:]
    client.say("猫を飼ってる")
    assert [words for _, words, _ in stored()] == ["おはよう", "ねこをかつてる", "猫を飼ってる"]
    assert len({name for name, _, _ in stored()}) == 1


def test_a_reply_of_which_only_the_beginning_was_taken_is_recognised(model: ScriptedModel, client: Client) -> None:
    model.script = lambda _: say("おはよう。\nいい天気だね。")
    client.say("おはよう")
    client.history[-1]["content"] = " おはよう。いい"
    client.say("そうだね")
    assert len({name for name, _, _ in stored()}) == 1
    assert "いい天気だね。" in model.asked[-1]["messages"][2]["content"]


def test_a_reply_that_a_client_has_tidied_up_is_recognised(model: ScriptedModel, client: Client) -> None:
    model.script = lambda _: say("ＲＴＸ　３０５０だね！ｶｯｺｲｲ～")
    client.say("GPUを買った")
    client.history[-1]["content"] = "RTX 3050だね!\nカッコイイ〜"
    client.say("うん")
    assert len({name for name, _, _ in stored()}) == 1


def test_words_whose_reply_was_not_taken_are_no_part_of_the_next_turn(model: ScriptedModel, client: Client) -> None:
    model.script = counting
    client.say("おはよう")
    client.history.pop()
    client.say("いい天気だね")
    client.say("うん")
    assert [words for _, words, _ in stored()] == ["おはよう", "いい天気だね", "うん"]
    assert len({name for name, _, _ in stored()}) == 1


def test_words_said_once_long_ago_are_no_beginning_of_new_ones(
    world: World, model: ScriptedModel, client: Client
) -> None:
    model.script = counting
    Client(world).say("ねえ")
    world.clock.advance(minutes=11)
    client.history.append({"role": "user", "content": "ねえ"})
    client.say("聞いて")
    assert [words for _, words, _ in stored()] == ["ねえ", "ねえ\n聞いて"]
    assert len({name for name, _, _ in stored()}) == 2


def test_words_in_two_messages_that_nobody_has_heard_are_one_turn(model: ScriptedModel, client: Client) -> None:
    model.script = counting
    client.history.append({"role": "user", "content": "ねえ"})
    client.say("猫の名前はミケだよ")
    client.say("かわいいよ")
    assert [words for _, words, _ in stored()] == ["ねえ\n猫の名前はミケだよ", "かわいいよ"]
    assert len({name for name, _, _ in stored()}) == 1


# --- regenerate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", [["おはよう"], ["おはよう", "猫の話をして"], ["うん", "うん"], ["ねえ", "うん", "うん"]]
)
@pytest.mark.parametrize("visit", [{}, {"session": "named"}])
def test_regenerate_replaces_the_reply_and_makes_no_second_turn(
    world: World, model: ScriptedModel, said: list[str], visit: Any
) -> None:
    model.script = lambda _: say("うん、うん。")
    client = Client(world, **visit)
    for text in said:
        client.say(text)
    before = again(Turn.select().order_by(Turn.id.desc()).first())
    model.script = lambda _: say("別の返事。", "happy")
    client.again()
    assert [words for _, words, _ in stored()] == said
    after = again(before)
    assert (after.reply, after.emotion, after.uid, after.state) == ("別の返事。", "happy", before.uid, "pending")
    model.script = lambda _: say("続き。")
    client.say("それで？")
    assert [words for _, words, _ in stored()] == [*said, "それで？"]
    assert len({name for name, _, _ in stored()}) == 1


def test_the_same_words_said_again_are_a_turn_of_their_own(model: ScriptedModel, client: Client) -> None:
    model.script = lambda _: say("うん、うん。")
    for _ in range(4):
        client.say("うん")
    assert [words for _, words, _ in stored()] == ["うん"] * 4
    assert Session.select().count() == 1


def test_a_first_greeting_much_later_is_a_new_talk(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: say("おはよう！")
    Client(world).say("おはよう")
    world.clock.advance(minutes=11)
    Client(world).say("おはよう")
    assert len({name for name, _, _ in stored()}) == 2


def test_a_robots_own_turns_are_not_begun_again_by_a_front_end(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: say("おはよう！")
    world.say("おはよう", session=None)
    Client(world).say("おはよう")
    assert len(stored()) == 2


def test_regenerate_puts_its_own_trace_in_place_of_the_old_one(
    world: World, model: ScriptedModel, client: Client
) -> None:
    model.script = [call("search_memory", {"query": "猫"}), say("わからない")]
    client.say("猫の名前は？")
    model.asked.clear()
    model.script = [say("ミケ")]
    answered = client.again()
    assert answered.turn is not None
    assert (answered.turn.searched, ToolTrace.select().count()) == (False, 0)


def test_a_regenerated_reply_keeps_the_memory_that_was_made_and_has_it_indexed_anew(
    world: World, model: ScriptedModel, client: Client
) -> None:
    model.script = lambda _: say("そうか")
    turn = client.say("うちの猫の名前はミケ").turn
    memory = world.memory_of([turn], "ユーザーの猫はミケ。")  # type: ignore[list-item]
    Turn.update(state="kept").where(Turn.id == turn.id).execute()  # type: ignore[union-attr]
    world.indexed()
    assert not again(memory).outdated
    model.script = lambda _: say("ミケっていうんだ")
    client.again()
    assert (again(turn).state, again(turn).reply) == ("kept", "ミケっていうんだ")
    assert again(memory).outdated


def test_a_turn_that_a_person_settled_stays_settled(world: World, model: ScriptedModel, client: Client) -> None:
    model.script = lambda _: say("そうか")
    turn = client.say("おはよう").turn
    Turn.update(state="skipped", settled=True).execute()
    client.again()
    assert again(turn).state == "skipped"


def test_a_turn_forgotten_while_its_reply_is_made_anew_stays_forgotten(
    world: World, model: ScriptedModel, client: Client
) -> None:
    model.script = lambda _: say("そうか")
    turn = client.say("おはよう").turn

    def forgetting(_: Any) -> Answer:
        return say("別の返事。")

    model.script = forgetting
    known = again(turn)
    Turn.update(user="", reply="", state="skipped").where(Turn.id == known.id).execute()
    client.again()
    assert again(turn).reply == ""
    assert [words for _, words, _ in stored()] == ["", "おはよう"]


# --- a service that refuses a turn -----------------------------------------------------------------------------------


def test_a_turn_that_the_service_refuses_leaves_the_clients_history_too(model: ScriptedModel, client: Client) -> None:
    refused = error(400, {"error": {"code": "data_inspection_failed", "message": "inappropriate content"}})

    def squeamish(request: Any) -> Answer:
        return refused if "毒" in json.dumps(request["messages"], ensure_ascii=False) else say("うん。")

    model.script = squeamish
    client.say("やあ")
    client.say("毒の話")
    asked = len(model.asked)
    assert client.say("いい天気だね").text == "うん。"
    assert len(model.asked) == asked + 1


# --- front-ends' tasks, and the model behind -------------------------------------------------------------------------

TASK = "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n<chat_history>…"


def test_a_front_ends_task_is_answered_by_the_plain_model_and_not_kept(model: ScriptedModel, client: Client) -> None:
    model.script = [content('{"title": "🐈 猫の話"}')]
    answered = client.send([{"role": "user", "content": TASK}], max_tokens=1000)
    assert (answered.text, answered.turn) == ('{"title": "🐈 猫の話"}', None)
    assert stored() == []
    (asked,) = model.asked
    assert asked["messages"] == [{"role": "user", "content": TASK}]
    assert (asked.get("tools"), asked["max_tokens"]) == (None, 1000)


def test_raw_is_the_model_alone(model: ScriptedModel, client: Client) -> None:
    picture = [{"type": "text", "text": "何？"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    messages = [{"role": "system", "content": "A"}, {"role": "user", "content": picture}]
    model.script = [content("<think>うーん</think>猫です。")]
    answered = client.send(messages, model="stackmem-raw", response_format={"type": "json_object"}, max_tokens=7)
    assert (answered.text, answered.is_cut, answered.turn) == ("猫です。", True, None)
    assert model.asked[0]["messages"] == messages
    assert stored() == []


def test_raw_passes_tools_on_and_raises_what_the_model_raises(model: ScriptedModel, client: Client) -> None:
    model.script = [call("get_weather", {"city": "京都"}), error(503, "down"), error(503, "down")]
    asking = [{"role": "user", "content": "天気は？"}]
    answered = client.send(asking, model="stackmem-raw", tools=[WEATHER])
    assert [(one.name, one.arguments) for one in answered.calls] == [("get_weather", {"city": "京都"})]
    with pytest.raises(TransientError):
        client.send(asking, model="stackmem-raw")


@pytest.mark.parametrize(
    ("pieces", "heard"),
    [
        (["こん", "にち", "は <3"], "こんにちは <3"),
        (["<thi", "nk>うーん</think>", "はい。", "そう。"], "はい。そう。"),
        (["はい。<think>", "うーん"], "はい。"),
        (["うーん", "うーん</think>はい。"], "うーん\n\nはい。"),
        ([""], ""),
    ],
)
def test_raw_streams_pieces_without_thinking(
    model: ScriptedModel, client: Client, pieces: list[str], heard: str
) -> None:
    model.script = [sse(*map(delta, pieces), delta(finish_reason="stop"), DONE)]
    taken: list[str] = []
    answered = client.send([{"role": "user", "content": "やあ"}], taken.append, model="stackmem-raw", stream=True)
    assert ("".join(taken), answered.text) == (heard, heard)


def test_the_offline_rules_answer_a_plain_request_in_words(offline: World) -> None:
    assert Client(offline).send([{"role": "user", "content": "おはよう"}], model="stackmem-raw").text == "おはよう！"


def test_documents_that_a_front_end_puts_around_are_not_the_users_words(model: ScriptedModel, client: Client) -> None:
    model.script = lambda _: say("3時だよ。")
    around = (
        "### Task:\nRespond to the user query using the provided context, incorporating inline citations.\n"
        '<context>\n<source id="1">会議は3時</source>\n</context>\n\n'
    )
    client.send([{"role": "user", "content": around + "会議は何時？"}])
    assert [words for _, words, _ in stored()] == ["会議は何時？"]
    assert "会議は3時" in model.asked[0]["messages"][0]["content"]
    assert model.asked[0]["messages"][-1]["content"] == "会議は何時？"


def test_a_picture_is_not_seen_and_the_robot_knows_it(model: ScriptedModel, client: Client) -> None:
    model.script = lambda _: say("見えないんだ。")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    client.send([{"role": "user", "content": [{"type": "text", "text": "これ何？"}, picture]}])
    assert stored()[0][1] == "これ何？"
    assert "見聞きできません" in model.asked[0]["messages"][0]["content"]
    assert "AAAA" not in json.dumps(model.asked)


# --- tools of the client's own ---------------------------------------------------------------------------------------


def test_a_client_with_tools_gets_its_calls_and_not_ours(model: ScriptedModel, client: Client) -> None:
    model.script = [call("get_weather", {"city": "京都"}), content("京都は晴れだよ。"), say("どういたしまして。")]
    asking = [*ROBOT, {"role": "user", "content": "京都の天気は？"}]
    first = client.send(asking, tools=[WEATHER])
    (wanted,) = first.calls
    assert (first.text, wanted.name, wanted.arguments) == ("", "get_weather", {"city": "京都"})
    assert [(words, reply) for _, words, reply in stored()] == [("京都の天気は？", "")]
    assert (Turn.get().degraded, Turn.get().prompts) == (False, "own-tools")
    assert [tool["function"]["name"] for tool in model.asked[0]["tools"]] == ["get_weather"]
    assert "search_memory" not in json.dumps(model.asked[0]["messages"], ensure_ascii=False)
    assert "のだ" in model.asked[0]["messages"][0]["content"]

    made = {"id": wanted.id, "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "京都"}'}}
    ran = [
        *asking,
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": wanted.id, "content": "晴れ"},
    ]
    second = client.send(ran, tools=[WEATHER])
    assert (second.text, second.calls) == ("京都は晴れだよ。", ())
    assert [message["role"] for message in model.asked[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert [(words, reply) for _, words, reply in stored()] == [("京都の天気は？", "京都は晴れだよ。")]

    client.send([*ran, {"role": "assistant", "content": second.text}, {"role": "user", "content": "ありがとう"}])
    assert [words for _, words, _ in stored()] == ["京都の天気は？", "ありがとう"]
    assert Session.select().count() == 1


def test_a_turn_asked_anew_that_now_calls_a_tool_has_no_reply_until_there_is_one(
    model: ScriptedModel, client: Client
) -> None:
    asking = [{"role": "user", "content": "京都の天気は？"}]
    model.script = [error(401, "no"), call("get_weather", {"city": "京都"})]
    assert client.send(asking, tools=[WEATHER]).turn.degraded  # type: ignore[union-attr]
    client.send(asking, tools=[WEATHER])
    assert [(words, reply) for _, words, reply in stored()] == [("京都の天気は？", "")]
    assert not Turn.get().degraded


def test_what_tools_gave_is_answered_without_tools_too(model: ScriptedModel, client: Client) -> None:
    made = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    model.script = lambda _: content("晴れだよ。")
    client.send(
        [
            {"role": "user", "content": "天気は？"},
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": "c", "content": "晴れ"},
        ]
    )
    assert "tools" not in model.asked[0]
    assert stored()[0][1:] == ("天気は？", "晴れだよ。")


def test_pictures_are_left_out_beside_tools_too(model: ScriptedModel, client: Client) -> None:
    model.script = lambda _: content("見えないんだ。")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    client.send([{"role": "user", "content": [{"type": "text", "text": "これ何？"}, picture]}], tools=[WEATHER])
    assert model.asked[0]["messages"][-1] == {"role": "user", "content": "これ何？"}


def test_old_messages_of_a_client_with_tools_leave_first(world: World, model: ScriptedModel) -> None:
    model.script = lambda _: content("うん。")
    client = Client(world, window=400)
    client.history = [
        {"role": role, "content": f"{role}の{number}番目の長い長い話。" * 10}
        for number in range(30)
        for role in ("user", "assistant")
    ]
    client.say("天気は？", tools=[WEATHER])
    shown = model.asked[0]["messages"]
    assert shown[0]["role"] == "system"
    assert shown[1]["role"] == "user"
    assert 3 < len(shown) < 61
    assert shown[-1]["content"] == "天気は？"


def test_a_refused_turn_with_tools_gets_the_fallback_line(world: World, model: ScriptedModel, client: Client) -> None:
    model.script = lambda _: error(401, "no")
    assert client.say("天気は？", tools=[WEATHER]).text in world.persona.fallback
