"""stackchan-kai as its firmware asks: HTTP/1.1 with Connection: close, raw PCM, and a parser without escapes."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stackmem.aloud import APOLOGIES
from stackmem.persona import load_persona
from stackmem.sentences import sentences
from stackmem.sound import l16, read_wav
from tests.running import RunningServer, until
from tests.scripted import Answer, error, form_of, hang, say, speech, tone, transcript
from tests.speech import Services, services
from tests.wire import Answer as Got
from tests.wire import check_problem, send

PCM = l16(tone(0.5, 16000))
DEVICE = "7f3c2a1d-9b40-4e8a-93f1-2bc6d4e1a7f0"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Services]]:
    """One server with its services for all tests; its fixed lines are spoken."""
    home = tmp_path_factory.mktemp("kai") / "home"
    home.mkdir()
    with services() as now, RunningServer(home, **now.settings, asr_timeout_s="1.5", chat_timeout_s="1.5") as server:
        fixed = [*load_persona("stackchan").fallback, *APOLOGIES["ja"].values()]
        wanted = {sentence for line in fixed for sentence in sentences(line)}
        until(lambda: len(list(home.glob("speech/lines/*.wav"))) == len(wanted), "the fixed lines are kept", 20)
        yield server, now
        assert "Traceback" not in server.said(), server.said()


@pytest.fixture
def server(running: tuple[RunningServer, Services]) -> RunningServer:
    return running[0]


@pytest.fixture
def now(running: tuple[RunningServer, Services]) -> Services:
    running[1].reset()
    return running[1]


def listen(server: RunningServer, body: bytes = PCM, **headers: str | None) -> Got:
    given: dict[str, str | None] = {"content_type": "audio/L16;rate=16000;channels=1", "x_session_id": DEVICE}
    return send(server.url, "POST", "/kai", body, **given | headers)


def parsed(got: Got) -> dict[str, str | None]:
    """Read the answer as the firmware does: by searching for names and quotation marks."""
    assert got.status == 200, got.body
    assert len(got.body) + len(str(got.headers)) < 2048
    body = got.body.decode()
    assert "\\" not in body
    found = {name: re.search(rf'"{name}"\s*:\s*(?:"([^"]*)"|null)', body) for name in ("text", "emotion", "audio_url")}
    assert all(found.values()), body
    assert set(got.json) == set(found)
    return {name: match[1] if match else None for name, match in found.items()}


def played(server: RunningServer, url: str | None) -> Any:
    assert url is not None
    assert url.startswith("/")
    got = send(server.url, "GET", url)
    assert got.status == 200, got.body
    assert got.headers["content-type"] == "audio/L16;rate=16000;channels=1"
    return np.frombuffer(got.body, "<i2")


def test_a_recording_is_answered_with_text_face_and_raw_sound(server: RunningServer, now: Services) -> None:
    now.chat.answer = say('"ミケ"ちゃん\\か。\nかわいいね！', "doubt", "nod")
    answer = parsed(listen(server))
    assert (answer["text"], answer["emotion"]) == ("「ミケ」ちゃん＼か。 かわいいね！", "surprised")
    assert len(played(server, answer["audio_url"])) / 16000 > 0.2
    sent = read_wav(form_of(now.asr.requests[-1])["file"])
    assert (sent.samples == np.frombuffer(PCM, "<i2")).all()


def test_the_session_is_the_device_and_goes_on(server: RunningServer, now: Services) -> None:
    parsed(listen(server))
    now.asr.answer = transcript("language Japanese<asr_text>なんて言ったっけ")
    parsed(listen(server))
    messages = now.chat.requests[-1].json["messages"]
    assert [message["content"] for message in messages][-3] == "うちの猫の名前はミケっていうの。"
    session = next(row for row in server.get("/v1/sessions")[1]["sessions"] if row["session_id"] == DEVICE)
    assert session["device"] == DEVICE


@pytest.mark.parametrize("answer", [error(500, "CUDA"), error(401, "key"), hang()])
def test_hearing_that_fails_is_apologised_for_aloud(server: RunningServer, now: Services, answer: Answer) -> None:
    now.asr.answer, now.tts.answer = answer, error(500, "down")
    got = parsed(listen(server))
    assert "耳の調子が悪い" in str(got["text"])
    assert got["emotion"] == "sad"
    assert len(played(server, got["audio_url"])) / 16000 > 0.4


@pytest.mark.parametrize("answer", [error(500, "down"), hang()])
def test_thinking_that_fails_is_apologised_for_aloud(server: RunningServer, now: Services, answer: Answer) -> None:
    now.chat.answer, now.tts.answer = answer, error(500, "down")
    got = parsed(listen(server))
    assert "ごめん" in str(got["text"]) or "ぼーっと" in str(got["text"])
    assert len(played(server, got["audio_url"])) / 16000 > 0.4


def test_silence_is_told_and_is_no_turn(server: RunningServer, now: Services) -> None:
    now.asr.answer = transcript("language None<asr_text>")
    before = sum(server.status()["turns"].values())
    got = parsed(listen(server))
    assert "よく聞こえなかった" in str(got["text"])
    assert got["emotion"] == "neutral"
    assert len(played(server, got["audio_url"])) > 0
    assert sum(server.status()["turns"].values()) == before


def test_speech_that_fails_costs_only_the_sound(server: RunningServer, now: Services) -> None:
    now.tts.answer = error(503, "no slot")
    got = parsed(listen(server))
    assert got["text"] == "ミケちゃんか。かわいいね！"
    assert got["audio_url"] is None
    now.tts.answer = speech()


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "audio/L16;rate=16000;channels=1", 400),
        (bytes(961_025), "audio/L16;rate=16000;channels=1", 413),
        (PCM, "audio/L16;rate=1;channels=1", 400),
        (PCM, "application/json", 415),
    ],
)
def test_what_no_kai_sends_is_refused(
    server: RunningServer, now: Services, body: bytes, kind: str, status: int
) -> None:
    check_problem(listen(server, body, content_type=kind), status)


def test_thirty_seconds_are_taken(server: RunningServer, now: Services) -> None:
    assert parsed(listen(server, bytes(960_000)))["text"]


def test_there_is_no_line_of_another_name(server: RunningServer, now: Services) -> None:
    check_problem(send(server.url, "GET", "/kai/lines/hello"), 404)


def test_an_apology_that_is_not_kept_and_cannot_be_spoken_is_only_read(server: RunningServer, now: Services) -> None:
    for path in server.home.glob("speech/lines/*.wav"):
        path.unlink()
    now.asr.answer, now.tts.answer = transcript(""), error(500, "down")
    got = parsed(listen(server))
    assert "よく聞こえなかった" in str(got["text"])
    assert got["audio_url"] is None
    check_problem(send(server.url, "GET", "/kai/lines/silence"), 404, "down")
    now.tts.answer = speech()
    assert len(played(server, "/kai/lines/silence")) > 0
