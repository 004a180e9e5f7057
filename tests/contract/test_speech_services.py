"""The speech recogniser and the synthesis behind their real adapters, over HTTP to scripted servers."""

import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.adapters.openai_speaker import LONGEST, OpenAISpeaker
from stackmem.adapters.openai_transcriber import OpenAITranscriber, heard
from stackmem.exceptions import PermanentError, SettingsError, StackmemError, TransientError
from stackmem.sound import Sound, read_wav
from stackmem.text import letters
from tests.scripted import (
    Answer,
    ScriptedServer,
    error,
    form_of,
    hang,
    raw,
    reset,
    slow,
    speech,
    sse,
    tone,
    transcript,
)

PATIENCE = 30.0  # seconds that no test needs


def hear(script: Sequence[Answer], sound: Sound | None = None, timeout_s: float = PATIENCE) -> str:
    with ScriptedServer(script) as server:
        adapter = OpenAITranscriber(server.base_url, "key", "qwen")
        try:
            return adapter.transcribe(sound or tone(), timeout_s)
        finally:
            adapter.close()


def speak(script: Sequence[Answer], text: str = "やあ", timeout_s: float = PATIENCE) -> Sound:
    with ScriptedServer(script) as server:
        adapter = OpenAISpeaker(server.base_url, "key", "irodori-tts", "none")
        try:
            return adapter.speak(text, timeout_s)
        finally:
            adapter.close()


# --- hearing ---


def test_a_recogniser_gets_16_khz_mono_and_the_model() -> None:
    with ScriptedServer([transcript("猫の名前はミケ")]) as server:
        adapter = OpenAITranscriber(server.base_url, "sesame", "Qwen/Qwen3-ASR-1.7B", language="ja")
        assert adapter.transcribe(tone(0.5, 48000), PATIENCE) == "猫の名前はミケ"
        adapter.close()
        (request,) = server.requests
    assert request.path == "/v1/audio/transcriptions"
    assert request.headers["authorization"] == "Bearer sesame"
    fields = form_of(request)
    assert (fields["model"], fields["language"], fields["response_format"]) == (
        b"Qwen/Qwen3-ASR-1.7B", b"ja", b"json",
    )  # fmt: skip
    sent = read_wav(fields["file"])
    assert (sent.rate, round(sent.seconds, 3)) == (16000, 0.5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("こんにちは", "こんにちは"),
        ("language Japanese<asr_text>こんにちは。", "こんにちは。"),
        ("language Japanese <asr_text> ｺﾝﾆﾁﾊ ", "ｺﾝﾆﾁﾊ"),
        ("LANGUAGE English<ASR_TEXT>Hello there</asr_text>", "Hello there"),
        ("language Japanese,English<asr_text>これはpenです", "これはpenです"),
        ("language Japanese<asr_text>前半、language Japanese<asr_text>後半。", "前半、後半。"),
        ("<asr_text>言語なし", "言語なし"),
        ("<|ja|><|transcribe|>こんにちは", "こんにちは"),
        ("language Japaneseという本を買った", "language Japaneseという本を買った"),
        ("language None<asr_text>", ""),
        ("language none<asr_text>ご視聴ありがとうございました", ""),
        ("language None", ""),
        ("", ""),
        (" \u3000\n", ""),
        ("。", ""),
        ("……♪", ""),
        ("\ud83dおはよう\x00", "\ufffdおはよう\ufffd"),
    ],
)
def test_tags_are_stripped_and_silence_is_no_word(text: str, words: str) -> None:
    assert heard(text) == words


def test_a_recogniser_may_answer_in_plain_text() -> None:
    text = "language Japanese<asr_text>やあ\n".encode()
    assert hear([raw(text, {"Content-Type": "text/plain; charset=utf-8"})]) == "やあ"


@given(st.text(max_size=60), st.sampled_from(["Japanese", "English", "Chinese,English", "None"]))
def test_no_tag_survives_and_words_do(words: str, language: str) -> None:
    found = heard(f"language {language}<asr_text>{words}")
    assert "<asr_text>" not in found
    assert bool(found) <= bool(letters(words))


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (error(500, "CUDA out of memory"), TransientError, "CUDA out of memory"),
        (error(503, "loading"), TransientError, "loading"),
        (error(429, "slow down"), TransientError, "over its rate"),
        (error(401, "bad key"), PermanentError, "STACKMEM_ASR_API_KEY"),
        (error(404, "The model `qwen` does not exist."), PermanentError, "STACKMEM_ASR_MODEL"),
        (raw(b"<!DOCTYPE html><title>Login</title>", {"Content-Type": "text/html"}), PermanentError, "BASE_URL"),
        (raw(b"hello"), TransientError, "not JSON"),
        (raw({"words": "?"}), TransientError, "no text"),
        (raw({"text": None}), TransientError, "no text"),
        (raw({"error": {"message": "no GPU", "code": 500}}), TransientError, "no GPU"),
        (reset(), TransientError, "cannot be reached, or broke off"),
        (sse(*[bytes(100_000)] * 12), TransientError, "far more than an answer"),
    ],
)
def test_what_a_recogniser_misdoes_is_said_in_one_sentence(
    answer: Answer, kind: type[StackmemError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        hear([answer])


def test_a_recogniser_that_hangs_costs_its_time_and_is_then_left_alone() -> None:
    with ScriptedServer([hang(), transcript("もう聞こえる")]) as server:
        adapter = OpenAITranscriber(server.base_url, "", "qwen")
        with pytest.raises(TransientError, match="did not answer in time"):
            adapter.transcribe(tone(), 2.1)
        with pytest.raises(TransientError, match="asked again in a few seconds"):
            adapter.transcribe(tone(), PATIENCE)
        adapter.close()


# --- speaking ---


def test_a_synthesis_gets_what_irodori_asks_for() -> None:
    with ScriptedServer([speech(tone(0.3))]) as server:
        adapter = OpenAISpeaker(
            server.base_url, "", "irodori-tts", "none", extra_body={"irodori": {"seed": 7}, "speed": 1.1}
        )
        sound = adapter.speak(" こんにちは。\ud83d ", PATIENCE)
        adapter.close()
        (request,) = server.requests
    assert request.path == "/v1/audio/speech"
    assert request.json == {
        "model": "irodori-tts", "input": "こんにちは。\ufffd", "voice": "none", "response_format": "wav",
        "irodori": {"seed": 7}, "speed": 1.1,
    }  # fmt: skip
    assert (sound.rate, round(sound.seconds, 2)) == (48000, 0.3)


def test_a_very_long_text_is_cut_at_a_sentence() -> None:
    with ScriptedServer([speech()]) as server:
        adapter = OpenAISpeaker(server.base_url, "", "irodori-tts", "none")
        adapter.speak("そうだね。" * 1000, PATIENCE)
        adapter.close()
        sent = server.requests[0].json["input"]
    assert LONGEST - 5 < len(sent) <= LONGEST
    assert sent.endswith("。")


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (error(503, "no slot became available"), TransientError, "no slot"),
        (error(400, "unknown voice: momo"), PermanentError, "STACKMEM_TTS_VOICE"),
        (error(401, "who?"), PermanentError, "STACKMEM_TTS_API_KEY"),
        (raw(b"<html>nginx</html>", {"Content-Type": "text/html"}), PermanentError, "STACKMEM_TTS_BASE_URL"),
        (raw({"error": "no GPU"}), TransientError, "no GPU"),
        (raw(b""), TransientError, "no sound"),
        (speech(tone(0)), TransientError, "no sound"),
        (raw(b"ID3\x04mp3mp3mp3"), PermanentError, "sent no WAV file"),
        (raw(b"RIFF\0\0\0\0WAVEjunk"), PermanentError, "cannot be read"),
        (reset(), TransientError, "broke off"),
        (sse(*[bytes(1_000_000)] * 66), TransientError, "far more than an answer"),
    ],
)
def test_what_a_synthesis_misdoes_is_said_in_one_sentence(
    answer: Answer, kind: type[StackmemError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        speak([answer])


def test_a_synthesis_that_hangs_costs_its_time() -> None:
    with pytest.raises(TransientError, match="did not answer in time"):
        speak([hang()], timeout_s=0.2)


@pytest.mark.parametrize(("parallel", "at_once"), [(1, 1), (2, 2)])
def test_so_many_are_synthesised_at_a_time_as_the_server_wants(parallel: int, at_once: int) -> None:
    lock, both = threading.Lock(), threading.Event()
    under_way, most = 0, 0

    def script(_: object) -> Answer:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
            if under_way == at_once:
                both.set()
        both.wait(PATIENCE)
        with lock:
            under_way -= 1
        return speech()

    with ScriptedServer(script) as server:
        adapter = OpenAISpeaker(server.base_url, "", "irodori-tts", "none", parallel=parallel)
        threads = [threading.Thread(target=adapter.speak, args=(text, PATIENCE)) for text in "一二三"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        adapter.close()
        assert len(server.requests) == 3
    assert most == at_once


def test_who_waits_for_the_synthesis_in_vain_is_told() -> None:
    with ScriptedServer([slow(PATIENCE, speech())]) as server:
        adapter = OpenAISpeaker(server.base_url, "", "irodori-tts", "none")
        first = threading.Thread(target=lambda: pytest.raises(TransientError, adapter.speak, "一", 1.0))
        first.start()
        while not server.requests:
            pass
        with pytest.raises(TransientError, match="did not answer in time"):
            adapter.speak("二", 0.05)
        first.join()
        adapter.close()
        assert len(server.requests) == 1


def test_another_voice_is_another_speaker() -> None:
    def voice(**given: str) -> str:
        values = {"model": "irodori-tts", "voice": "none", "base_url": "http://127.0.0.1:8088/v1"} | given
        return OpenAISpeaker(values["base_url"], "", values["model"], values["voice"]).voice

    assert voice() == voice()
    assert len({voice(), voice(voice="momo"), voice(model="other"), voice(base_url="http://10.0.0.1/v1")}) == 4


@pytest.mark.parametrize("make", [OpenAITranscriber, lambda *given: OpenAISpeaker(*given, "none")])
def test_an_address_that_is_none_is_said_at_the_start(make: Callable[..., object]) -> None:
    with pytest.raises(SettingsError, match="must be http"):
        make("http://host:99999/v1", "", "model")
    with pytest.raises(SettingsError, match="API_KEY"):
        make("http://host/v1", "秘密", "model")
