"""Sound in, sound out: recordings as robots send them, a scripted recogniser and synthesis, real HTTP."""

import io
import wave
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from stackmem.sound import Sound, l16, read_wav, wav
from tests.running import RunningServer, command, request, until
from tests.scripted import Answer, error, form_of, raw, say, speech, tone, transcript
from tests.speech import Services, services
from tests.visiting import Visitor
from tests.wire import Answer as Got
from tests.wire import check_problem, send

L16 = "audio/L16;rate=16000;channels=1"
WAV = "audio/wav"
RECORDING = wav(tone(0.4, 16000))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Services]]:
    """One server with its services for all tests."""
    home = tmp_path_factory.mktemp("speech") / "home"
    home.mkdir()
    with services() as now, RunningServer(home, **now.settings) as server:
        until(lambda: "ごめん" in "".join(now.spoken()), "the fixed lines are spoken beforehand")
        yield server, now
        assert "Traceback" not in server.said(), server.said()


@pytest.fixture
def server(running: tuple[RunningServer, Services]) -> RunningServer:
    return running[0]


@pytest.fixture
def now(running: tuple[RunningServer, Services]) -> Services:
    running[1].reset()
    return running[1]


def post(server: RunningServer, body: bytes = RECORDING, kind: str = WAV, query: str = "", **headers: str) -> Got:
    return send(server.url, "POST", f"/v1/turns{query}", body, content_type=kind, **headers)


def turn_count(server: RunningServer) -> int:
    return int(sum(server.status()["turns"].values()))


def heard(server: RunningServer, url: str) -> Sound:
    answer = send(server.url, "GET", url)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "audio/wav"
    return read_wav(answer.body)


def test_a_recording_is_heard_answered_and_spoken(server: RunningServer, now: Services) -> None:
    answer = post(server, query="?session_id=talk").json
    assert (answer["text"], answer["reply"], answer["emotion"], answer["session_id"]) == (
        "うちの猫の名前はミケっていうの。", "ミケちゃんか。かわいいね！", "happy", "talk",
    )  # fmt: skip
    assert answer["audio_url"] == f"/v1/turns/{answer['turn_id']}/audio"
    sound = heard(server, answer["audio_url"])
    assert sound.rate == 16000
    assert sound.seconds == pytest.approx(0.55, abs=0.01)  # two sentences of 0.2 s, and the pause between them
    assert now.spoken()[-2:] == ["ミケちゃんか。", "かわいいね！"]
    trace = until(
        lambda: (
            (found := server.get(f"/v1/turns/{answer['turn_id']}")[1]["trace"]["durations_ms"]).get("tts") and found
        ),
        "the trace says how long the speech took",
    )
    assert set(trace) == {"asr", "model", "tools", "embed", "search", "total", "first_sound", "tts"}
    assert trace["total"] >= trace["asr"] + trace["model"]
    assert trace["first_sound"] > trace["asr"]
    told = command(server.home, "why", str(answer["turn_id"]))
    assert all(f"{name} " in told.stdout for name in trace), told.stdout


def test_the_same_over_raw_pcm_as_the_recogniser_gets_it(server: RunningServer, now: Services) -> None:
    body = l16(tone(0.3, 8000))
    answer = post(server, body, "audio/l16; channels=1; rate=8000", x_session_id="居間").json
    assert (answer["session_id"], answer["text"]) == ("居間", "うちの猫の名前はミケっていうの。")
    sent = read_wav(form_of(now.asr.requests[-1])["file"])
    assert (sent.rate, sent.seconds) == (16000, pytest.approx(0.3, abs=0.01))


@pytest.mark.parametrize(("rate", "form"), [(8000, "wav"), (24000, "l16"), (48000, "wav"), (16000, "L16")])
def test_speech_comes_at_the_rate_asked_for_with_its_length(
    server: RunningServer, now: Services, rate: int, form: str
) -> None:
    turn = server.say("こんにちは", "rates")
    answer = send(server.url, "GET", f"{turn['audio_url']}?rate={rate}&format={form}", version="1.0")
    assert answer.status == 200
    if form.lower() == "l16":
        assert answer.headers["content-type"] == f"audio/L16;rate={rate};channels=1"
        samples = np.frombuffer(answer.body, "<i2")
    else:
        with wave.open(io.BytesIO(answer.body)) as file:
            assert file.getframerate() == rate
        samples = read_wav(answer.body).samples
    assert len(samples) / rate == pytest.approx(0.55, abs=0.01)
    pitch = np.abs(np.fft.rfft(samples[: rate // 5])).argmax() * 5
    assert pitch == pytest.approx(440, abs=10)


def test_a_part_of_the_speech_can_be_asked_for(server: RunningServer, now: Services) -> None:
    turn = server.say("こんにちは", "parts")
    whole = send(server.url, "GET", turn["audio_url"]).body
    part = send(server.url, "GET", turn["audio_url"], range="bytes=4-11")
    assert (part.status, part.body) == (206, whole[4:12])
    # What is no part of it is as if nobody had asked; what lies behind its end is refused with its length.
    for odd in ("bytes=x", "bytes=9-2", "items=0-3", "bytes=0-1,3-4", f"bytes=-{len(whole) + 1}"):
        got = send(server.url, "GET", turn["audio_url"], range=odd)
        assert (got.status, got.body, got.headers["accept-ranges"]) == (200, whole, "bytes")
    behind = send(server.url, "GET", turn["audio_url"], range=f"bytes={len(whole)}-")
    check_problem(behind, 416, "behind the end")
    assert behind.headers["content-range"] == f"bytes */{len(whole)}"


@pytest.mark.parametrize("query", ["?rate=7999", "?rate=48001", "?rate=x", "?format=mp3"])
def test_another_rate_or_form_is_refused(server: RunningServer, now: Services, query: str) -> None:
    turn = server.say("こんにちは", "refused")
    check_problem(send(server.url, "GET", f"{turn['audio_url']}{query}"), 400, "8000" if "rate" in query else "wav")


@pytest.mark.parametrize("text", ["", "language None<asr_text>", "language None", "。", " \u3000"])
def test_silence_is_answered_and_is_no_turn(server: RunningServer, now: Services, text: str) -> None:
    now.asr.answer = transcript(text)
    before, asked = turn_count(server), len(now.chat.requests)
    got = post(server, query="?session_id=quiet")
    assert got.status == 200
    assert got.json == {
        "turn_id": None, "session_id": "quiet", "text": "", "reply": "", "emotion": "neutral", "action": "none",
        "audio_url": None, "searched": False, "memory_ids": [], "degraded": False, "model": None, "silence": True,
    }  # fmt: skip
    assert (turn_count(server), len(now.chat.requests)) == (before, asked)


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (error(500, "CUDA"), 503, "CUDA"),
        (error(503, "loading"), 503, "speech recogniser"),
        (error(401, "key"), 502, "STACKMEM_ASR_API_KEY"),
        (raw(b"<html>", {"Content-Type": "text/html"}), 502, "STACKMEM_ASR_BASE_URL"),
        (raw({"text": 5}), 503, "speech recogniser"),
    ],
)
def test_a_recogniser_that_fails_is_said_in_one_sentence(
    server: RunningServer, now: Services, answer: Answer, status: int, words: str
) -> None:
    now.asr.answer = answer
    before = turn_count(server)
    check_problem(post(server), status, words)
    assert turn_count(server) == before
    assert any(words in reason for reason in server.get("/readyz")[1]["reasons"])
    now.reset()
    assert post(server).status == 200
    assert not any("recogniser" in reason for reason in server.get("/readyz")[1]["reasons"])


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", WAV, 400),
        (b"", L16, 400),
        (b"no wav at all", WAV, 400),
        (wav(tone(0)), WAV, 400),
        (b"\x01", L16, 400),
        (RECORDING, "audio/webm", 415),
        (RECORDING, "application/x-www-form-urlencoded", 415),
        (RECORDING, "audio/L16;rate=fast", 400),
        (RECORDING, "audio/L16;rate=1", 400),
        (RECORDING, "audio/L16;channels=99", 400),
        (bytes(16 * 1024 * 1024 + 1), L16, 413),
        (bytes(8000 * 2 * 121), "audio/L16;rate=8000", 413),
    ],
)
def test_what_is_no_recording_is_refused(
    server: RunningServer, now: Services, body: bytes, kind: str, status: int
) -> None:
    asked = len(now.asr.requests)
    sentence = check_problem(post(server, body, kind), status)
    assert status != 415 or "audio/wav" in sentence
    assert len(now.asr.requests) == asked


def test_a_bad_time_is_refused(server: RunningServer, now: Services) -> None:
    check_problem(post(server, query="?at=yesterday-ish"), 400)
    at = "2026-07-23T10:00:00%2B09:00"
    answer = post(server, query=f"?at={at}&session_id=past").json
    assert server.get(f"/v1/turns/{answer['turn_id']}")[1]["at"] == "2026-07-23T10:00:00+09:00"


def test_a_retry_with_the_same_key_is_neither_heard_nor_spoken_again(server: RunningServer, now: Services) -> None:
    first = post(server, idempotency_key="retry-1").json
    heard(server, first["audio_url"])
    asked = len(now.asr.requests), len(now.chat.requests), len(now.tts.requests)
    assert post(server, query="?client_turn_id=retry-1").json == first
    assert heard(server, first["audio_url"]).seconds > 0
    assert (len(now.asr.requests), len(now.chat.requests), len(now.tts.requests)) == asked


def test_a_robot_that_polls_may_send_sound_too(server: RunningServer, now: Services) -> None:
    got = post(server, query="?wait=0&session_id=polled")
    assert got.status == 202
    job = until(
        lambda: (found := server.get(got.headers["location"])[1])["state"] == "done" and found, "the job is done"
    )
    assert (job["text"], job["session_id"]) == ("うちの猫の名前はミケっていうの。", "polled")
    assert heard(server, job["audio_url"]).seconds > 0.2
    assert server.get(f"/v1/turns/{job['turn_id']}")[1]["trace"]["durations_ms"]["asr"] > 0
    now.asr.answer = transcript("language None<asr_text>")
    assert post(server, query="?wait=0").json["silence"] is True


def test_a_synthesis_that_fails_costs_only_the_sound(server: RunningServer, now: Services) -> None:
    now.tts.answer = error(503, "no slot became available")
    turn = server.say("やあ", "dumb")
    assert turn["reply"] == "ミケちゃんか。かわいいね！"
    check_problem(send(server.url, "GET", turn["audio_url"]), 404, "no slot became available")
    assert any("no slot" in reason for reason in server.get("/readyz")[1]["reasons"])
    now.reset()
    assert heard(server, turn["audio_url"]).seconds > 0  # made again when somebody asks again


def test_a_reply_without_words_has_no_speech(server: RunningServer, now: Services) -> None:
    now.chat.answer = say("……！")
    turn = server.say("えっ", "speechless")
    assert turn["audio_url"] is None
    check_problem(send(server.url, "GET", f"/v1/turns/{turn['turn_id']}/audio"), 404, "no words")
    check_problem(send(server.url, "GET", "/v1/turns/999999/audio"), 404)


def test_a_model_that_is_down_is_apologised_for_aloud_from_what_is_kept(server: RunningServer, now: Services) -> None:
    now.chat.answer = error(400, "no")
    now.tts.answer = error(500, "down")
    turn = server.say("もしもし", "down")
    assert turn["degraded"]
    assert heard(server, turn["audio_url"]).seconds > 0.3
    assert turn["reply"] not in now.spoken()


def test_speech_goes_with_the_words_it_says(server: RunningServer, now: Services) -> None:
    turn = server.say("うちの犬の名前はポチっていうの", "secret")
    heard(server, turn["audio_url"])

    def kept() -> list[Path]:
        return list((server.home / "speech").glob(f"{turn['turn_id']}-*"))

    until(kept, "the sound is kept")
    server.post("/v1/sessions/secret/close")
    search = f"/v1/memories?q={quote('犬の名前')}&limit=1"
    (memory,) = until(lambda: server.get(search)[1]["memories"], "it is remembered", 30)
    assert request("DELETE", f"{server.url}/v1/memories/{memory['memory_id']}?turns=1&now=1")[0] == 200
    until(lambda: not kept(), "the sound of what is forgotten is deleted")
    check_problem(send(server.url, "GET", turn["audio_url"]), 404, "no words")


# --- pages ---


def test_pages_let_a_reply_be_heard_where_it_has_speech(server: RunningServer, now: Services) -> None:
    visitor = Visitor(server.url)
    spoken = server.say("やあ", "pages")
    now.chat.answer = say("……！")
    silent = server.say("えっ", "pages")
    address = f"/turns/{spoken['turn_id']}/speech"
    assert f'src="{address}"' in visitor.get(f"/turns/{spoken['turn_id']}").html
    assert "<audio" not in visitor.get(f"/turns/{silent['turn_id']}").html
    assert heard(server, address).rate == 24000
    health = visitor.get("/health").text
    assert "irodori-tts" in health
    assert "Qwen/Qwen3-ASR-1.7B" in health
    assert "voice     irodori-tts at http://" in server.said()
    missing = visitor.get(f"/turns/{silent['turn_id']}/speech")
    assert (missing.status, "text/html" in str(missing.headers)) == (404, True)


def test_the_talk_page_speaks_the_reply(server: RunningServer, now: Services, chromium: Browser) -> None:
    now.tts.answer = speech(tone(20))
    page = chromium.new_page(base_url=server.url, locale="ja-JP")
    faults = list[str]()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    page.goto("/talk")
    expect(page.locator("#speak")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("言葉").fill("やあ")
    page.get_by_role("button", name="話す", exact=True).click()
    expect(page.locator("#face")).to_have_attribute("data-speaking", "", timeout=30_000)
    page.get_by_role("button", name="声に出す").click()
    expect(page.locator("#face")).not_to_have_attribute("data-speaking", "")
    page.close()
    assert faults == []


def test_speech_survives_a_restart_and_is_made_again_where_it_is_missing(server: RunningServer, now: Services) -> None:
    turn = server.say("また明日", "later")
    before = heard(server, turn["audio_url"])
    server.stop()
    server.start()
    asked = len(now.tts.requests)
    assert (heard(server, turn["audio_url"]).samples == before.samples).all()
    assert len(now.tts.requests) == asked
    for path in (server.home / "speech").glob(f"{turn['turn_id']}-*"):
        path.write_bytes(b"torn")
    now.tts.answer = speech(tone(0.5))
    assert heard(server, turn["audio_url"]).seconds == pytest.approx(1.15, abs=0.01)
