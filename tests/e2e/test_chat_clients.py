"""Real chat clients over HTTP: OpenAI's own, a robot's firmware, AIAvatarKit and llm, each with a memory."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.running import RunningServer, environment, json_of, request, until
from tests.scripted import DONE, Answer, ScriptedServer, call, content, delta, error, say, sse
from tests.wire import connected, send

ROBOT = [
    {"role": "system", "content": "あなたは「スタックチャン」という名前のロボットです。"},
    {"role": "system", "content": "ユーザー情報: 名前はかな。"},
    {"role": "system", "content": "日本語で短く答えてください。"},
]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "天気を調べる",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
FIRST, REST = '{"reply": "はじめの文。つ', 'ぎの文。", "emotion": "happy", "action": "nod"}'


class Model:
    """The model behind: what it answers to some words, else two sentences about them."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | Callable[[Any], Answer]] = {}
        self.asked: list[Any] = []

    def __call__(self, asked: Any) -> Answer:
        self.asked.append(asked)
        last = asked["messages"][-1]["content"]
        answer = self.answers.get(last, say(f"{last}なんだね。もっと聞かせて！", "happy", "nod"))
        return answer(asked) if callable(answer) else answer


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("clients") / "home"
    with (
        ScriptedServer(model) as scripted,
        RunningServer(home, chat_base_url=scripted.base_url, chat_model="scripted", memory_model="offline") as server,
    ):
        yield server
        assert "Traceback" not in server.said(), server.said()


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-anything", max_retries=0) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def turns(server: RunningServer, *, of: str | None = None) -> list[dict[str, Any]]:
    """Return the stored turns, oldest first, of one session where it is given."""
    _, lines = server.get("/v1/export")
    rows = [json.loads(line) for line in lines.splitlines() if line]
    return [row for row in rows if row["kind"] == "turn" and of in (None, row["session_id"])]


# --- OpenAI's own client ---------------------------------------------------------------------------------------------


def test_the_models_are_the_robot_and_the_model_behind_it(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["stackmem", "stackmem-raw"]
    assert client.models.retrieve("stackmem-raw").object == "model"
    with pytest.raises(openai.NotFoundError, match="There is no model 'gpt-4'") as caught:
        client.models.retrieve("gpt-4")
    assert caught.value.code == "model_not_found"


def test_a_talk_with_the_openai_client(client: openai.OpenAI, server: RunningServer) -> None:
    history = [user("うちの猫の名前はミケだよ")]
    first = client.chat.completions.create(model="stackmem", messages=history, user="kana", temperature=0.2, seed=1)
    choice = first.choices[0]
    assert first.id.startswith("chatcmpl-")
    assert (first.object, first.model, choice.finish_reason) == ("chat.completion", "stackmem", "stop")
    assert (choice.message.role, choice.message.content) == (
        "assistant", "うちの猫の名前はミケだよなんだね。もっと聞かせて！"
    )  # fmt: skip
    assert first.usage is not None
    assert (first.usage.prompt_tokens, first.usage.completion_tokens, first.usage.total_tokens) == (11, 7, 18)
    ours = first.model_dump()["stackmem"]
    assert (ours["session_id"], ours["emotion"], ours["action"], ours["degraded"]) == ("kana", "happy", "nod", False)

    history += [{"role": "assistant", "content": choice.message.content}, user("三歳なんだ")]
    client.chat.completions.create(model="gpt-4o", messages=history, user="kana")
    assert [row["user"] for row in turns(server, of="kana")] == ["うちの猫の名前はミケだよ", "三歳なんだ"]


def test_a_stream_gives_sentences_as_they_come_and_then_the_usage(
    client: openai.OpenAI, server: RunningServer, model: Model
) -> None:
    heard = threading.Event()
    model.answers["話して"] = sse(delta(FIRST), heard, delta(REST), delta(finish_reason="stop"), DONE)
    stream = client.chat.completions.create(
        model="stackmem", messages=[user("話して")], stream=True, stream_options={"include_usage": True}
    )
    chunks, said = [], []
    for chunk in stream:
        chunks.append(chunk)
        if chunk.choices and chunk.choices[0].delta.content:
            said.append(chunk.choices[0].delta.content)
            heard.set()
    assert said == ["はじめの文。", "つぎの文。"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1
    assert turns(server)[-1]["reply"] == "はじめの文。つぎの文。"


def test_the_async_client_streams_three_talks_at_once(server: RunningServer) -> None:
    async def talk(client: openai.AsyncOpenAI, text: str) -> str:
        stream = await client.chat.completions.create(model="stackmem", messages=[user(text)], stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
            return await asyncio.gather(*(talk(client, text) for text in ("犬", "鳥", "魚")))

    assert asyncio.run(all_of_them()) == [f"{text}なんだね。もっと聞かせて！" for text in ("犬", "鳥", "魚")]
    assert len({row["session_id"] for row in turns(server) if row["user"] in ("犬", "鳥", "魚")}) == 3


def test_tools_of_the_client_are_called_by_the_client(
    client: openai.OpenAI, server: RunningServer, model: Model
) -> None:
    model.answers["京都の天気は？"] = call("get_weather", {"city": "京都"})
    model.answers["晴れ"] = content("京都は晴れだよ。")
    messages = [user("京都の天気は？")]
    chunks = list(
        client.chat.completions.create(model="stackmem", messages=messages, tools=[WEATHER], stream=True, user="tools")
    )
    deltas = [chunk.choices[0].delta for chunk in chunks]
    (wanted,) = [delta.tool_calls[0] for delta in deltas if delta.tool_calls]
    assert wanted.function is not None
    assert (wanted.function.name, json.loads(wanted.function.arguments or "")) == ("get_weather", {"city": "京都"})
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    made: Any = {"id": wanted.id, "type": "function", "function": wanted.function.model_dump()}
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": wanted.id, "content": "晴れ"},
    ]
    done = client.chat.completions.create(model="stackmem", messages=messages, tools=[WEATHER], user="tools")
    assert done.choices[0].message.content == "京都は晴れだよ。"
    assert [(row["user"], row["reply"]) for row in turns(server, of="tools")] == [
        ("京都の天気は？", "京都は晴れだよ。")
    ]


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_client_that_goes_away_has_its_turn_stored_whole(server: RunningServer, model: Model) -> None:
    heard, begun = threading.Event(), f"POST /v1/chat/completions HTTP/1.1\r\nHost: {server.url[7:]}\r\n"
    model.answers["長い話をして"] = sse(delta(FIRST), heard, delta(REST), delta(finish_reason="stop"), DONE)
    body = json.dumps({"model": "stackmem", "messages": [user("長い話をして")], "stream": True}).encode()
    head = f"{begun}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with connected(server.url) as connection:
        connection.sendall(head + body)
        came = b""
        while "はじめの文。".encode() not in came:
            came += connection.recv(4096)
    heard.set()
    row = until(
        lambda: [row for row in turns(server) if row["user"] == "長い話をして" and row["reply"]], "it is stored"
    )
    assert row[0]["reply"] == "はじめの文。つぎの文。"


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_is_down_is_spoken_about(server: RunningServer, model: Model, stream: bool) -> None:
    model.answers["だめ"] = error(401, "no such key")
    body = {"model": "stackmem", "messages": [user("だめ")], "stream": stream, "user": f"down {stream}"}
    status, answer = server.post("/v1/chat/completions", body)
    assert status == 200
    (row,) = turns(server, of=f"down {stream}")
    assert row["degraded"]
    text = answer if stream else answer["choices"][0]["message"]["content"]
    assert row["reply"].split("。")[0] in text
    assert not stream or text.endswith("data: [DONE]\n\n")


def test_the_model_behind_that_is_down_is_an_error(client: openai.OpenAI, server: RunningServer, model: Model) -> None:
    model.answers["生のだめ"] = error(401, "no such key")
    model.answers["途中でだめ"] = sse(delta("ここまで。"), {"error": {"message": "out of memory"}})
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError, match="key"):
            client.chat.completions.create(model="stackmem-raw", messages=[user("生のだめ")], stream=stream)
    broken = client.chat.completions.create(model="stackmem-raw", messages=[user("途中でだめ")], stream=True)
    said = []
    with pytest.raises(openai.APIError):
        said += [chunk.choices[0].delta.content for chunk in broken]
    assert not {"生のだめ", "途中でだめ"} & {row["user"] for row in turns(server)}


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "やあ"}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"messages": [user("")]}, "messages"),
        ({"messages": [user(None)]}, "messages"),
        ({"messages": [user([{"type": "image_url", "image_url": {"url": "data:,"}}])]}, "messages"),
        ({"messages": [user("a"), {"role": "assistant", "content": "b"}]}, "messages"),
        ({"messages": ["やあ"]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [user(3)]}, "messages[0].content"),
        ({"messages": [user("a")], "n": 2}, "n"),
        ({"messages": [user("a")], "stream": "yes"}, "stream"),
        ({"messages": [user("a")], "user": 3}, "user"),
        ({"messages": [user("a")], "tools": [{}]}, "tools"),
        ({"messages": [user("a")], "max_tokens": 0}, "max_tokens"),
        ([1], None),
        (b"{", None),
        (b'{"messages": [{"role": "user", "content": "a", "x": ' + b"[" * 900 + b"]" * 900 + b"}]}", None),
        (b"", None),
    ],
)
def test_a_wrong_request_is_told_in_openais_shape(server: RunningServer, body: Any, parameter: str | None) -> None:
    before = len(turns(server))
    status, answer = request("POST", f"{server.url}/v1/chat/completions", body)
    assert status == 400
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert (answer["error"]["type"], answer["error"]["param"]) == ("invalid_request_error", parameter)
    assert answer["error"]["message"].endswith(".")
    assert len(turns(server)) == before


def test_a_wrong_method_or_a_missing_token_is_told_in_openais_shape(server: RunningServer) -> None:
    far = {"X-Forwarded-For": "192.0.2.7"}
    for path in ("/v1/chat/completions", "/v1/models"):
        status, answer = request("DELETE", server.url + path)
        assert (status, answer["error"]["type"]) == (405, "invalid_request_error")
        status, answer = request("POST", server.url + path, {}, far)
        assert (status, answer["error"]["type"]) in ((401, "authentication_error"), (405, "invalid_request_error"))
    with pytest.raises(openai.AuthenticationError, match="stackmem devices add"):
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", default_headers=far).models.list()


def test_a_request_sent_twice_at_once_is_one_turn(server: RunningServer, model: Model) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def held(_: Any) -> Answer:
        begun.set()
        may_end.wait(30)
        return say("一度だけ。")

    model.answers["二重に"] = held
    replies: list[str] = []

    def ask() -> None:
        _, answer = server.post("/v1/chat/completions", {"messages": [user("二重に")]})
        replies.append(answer["choices"][0]["message"]["content"])

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert replies == ["一度だけ。"] * 2
    assert [row["user"] for row in turns(server)].count("二重に") == 1


def test_a_request_sent_many_times_in_the_same_moment_is_one_turn(server: RunningServer, model: Model) -> None:
    together = threading.Barrier(12)

    def ask(_: int) -> Any:
        together.wait(30)
        return server.post("/v1/chat/completions", {"messages": [user("せーの")]})[1]["stackmem"]["turn_id"]

    with ThreadPoolExecutor(12) as threads:
        assert len(set(threads.map(ask, range(12)))) == 1
    assert [row["user"] for row in turns(server)].count("せーの") == 1


def test_what_was_told_in_one_chat_is_known_in_the_next(server: RunningServer, model: Model) -> None:
    told = "猫の名前はミケっていうんだ"
    server.post("/v1/chat/completions", {"messages": [user(told)], "user": "told"})
    server.post("/v1/sessions/told/close")
    until(lambda: not server.status()["index"]["pending"] and server.status()["index"]["points"], "it is remembered")
    model.answers["猫の名前おぼえてる？"] = call("search_memory", {"query": "猫の名前"})
    status, answer = server.post("/v1/chat/completions", {"messages": [user("猫の名前おぼえてる？")]})
    assert status == 200
    assert answer["stackmem"]["searched"]
    assert "ミケ" in json.dumps(model.asked[-1]["messages"], ensure_ascii=False)
    assert answer["stackmem"]["memory_ids"]


def test_a_devices_token_chooses_the_owner(server: RunningServer) -> None:
    token = json_of(server.home, "devices", "add", "robot", "--owner", "mari")["token"]
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=token, default_headers={"X-Forwarded-For": "::2"}) as mari:
        mari.chat.completions.create(model="stackmem", messages=[user("まりのないしょ話")])
    assert "まりのないしょ話" not in {row["user"] for row in turns(server)}
    assert server.status("mari")["turns"]["pending"] == 1


# --- a robot's firmware ----------------------------------------------------------------------------------------------


def test_a_robot_with_ai_stackchan_ex_keeps_one_session_over_its_window(server: RunningServer, model: Model) -> None:
    history: list[Any] = []
    for number in range(14):
        history.append(user(f"ロボットへ{number}"))
        body = {"model": "gpt-4o-mini", "stream": False, "messages": [*ROBOT, *history[-20:]]}
        answer = send(
            server.url, "POST", "/v1/chat/completions", json.dumps(body, ensure_ascii=False).encode(),
            content_type="application/json", authorization="Bearer sk-robot",
        )  # fmt: skip
        assert answer.status == 200
        message = answer.json["choices"][0]["message"]
        assert message["content"] == f"ロボットへ{number}なんだね。もっと聞かせて！"
        history.append({"role": "assistant", "content": message["content"]})
    mine = [row for row in turns(server) if row["user"].startswith("ロボットへ")]
    assert [row["user"] for row in mine] == [f"ロボットへ{number}" for number in range(14)]
    assert len({row["session_id"] for row in mine}) == 1
    assert [message["role"] for message in model.asked[-1]["messages"]].count("system") == 1


# --- clients from a registry -----------------------------------------------------------------------------------------


def test_aiavatarkit_talks_and_runs_its_own_tool(server: RunningServer, model: Model, tmp_path: Path) -> None:
    reason = "Install the extra [clients] (its voice detection needs torch) to talk with AIAvatarKit."
    chatgpt = pytest.importorskip("aiavatar.sts.llm.chatgpt", reason=reason)
    model.answers["大阪の天気は？"] = call("get_weather", {"city": "大阪"})
    model.answers[json.dumps({"weather": "雨"})] = content("大阪は雨だよ。")

    async def talk() -> list[str]:
        service = chatgpt.ChatGPTService(
            openai_api_key="sk-anything", base_url=f"{server.url}/v1", model="stackmem",
            system_prompt="あなたはアバターです。", db_connection_str=str(tmp_path / "aiavatar.db"),
        )  # fmt: skip

        @service.tool(WEATHER)
        async def get_weather(city: str) -> dict[str, str]:
            return {"weather": "雨"}

        said = []
        for text in ("アバターです", "大阪の天気は？", "ありがとう"):
            answered = [piece async for piece in service.chat_stream("context", "kana", text)]
            assert not any(piece.error_info for piece in answered)
            said.append("".join(piece.text or "" for piece in answered))
        await service.close()
        return said

    assert asyncio.run(talk()) == [
        "アバターですなんだね。もっと聞かせて！",
        "大阪は雨だよ。",
        "ありがとうなんだね。もっと聞かせて！",
    ]
    mine = [row for row in turns(server) if row["user"] in ("アバターです", "大阪の天気は？", "ありがとう")]
    assert [row["reply"] for row in mine][1] == "大阪は雨だよ。"
    assert (len(mine), len({row["session_id"] for row in mine})) == (3, 1)


def test_llm_goes_on_with_its_conversation(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: stackmem\n  model_name: stackmem\n  api_base: {server.url}/v1\n", "utf-8"
    )
    environ = environment(tmp_path) | {"LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": ""}

    def llm(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "llm", *arguments], env=environ, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert llm("-m", "stackmem", "端末から話すよ") == "端末から話すよなんだね。もっと聞かせて！"
    assert llm("-c", "-m", "stackmem", "--no-stream", "続きだよ") == "続きだよなんだね。もっと聞かせて！"
    mine = [row for row in turns(server) if row["user"] in ("端末から話すよ", "続きだよ")]
    assert (len(mine), len({row["session_id"] for row in mine})) == (2, 1)
