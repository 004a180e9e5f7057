"""Words from an OpenAI-compatible ``/v1/audio/transcriptions``: qwen-asr-serve, vLLM, faster-whisper servers, OpenAI.

A request: https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

import re
import time
from typing import Any

from stackmem.adapters.openai_answer import read_object, refusal_in
from stackmem.adapters.openai_client import Connection
from stackmem.adapters.openai_errors import Complaints, Refused
from stackmem.adapters.openai_timed import in_time, read_body
from stackmem.circuit import Breaker
from stackmem.sound import Sound, resampled, wav
from stackmem.text import clean, letters

RATE = 16_000  # Hz; what every recogniser works at, so no more is sent

_BODY_LIMIT = 1_000_000  # bytes
# Qwen3-ASR, served as it is, says the language first: `language Japanese<asr_text>…`; `None` for silence.
_TAG = re.compile(r"(?:language\s+(?P<language>[^<>\n]{1,60}?)\s*)?<asr_text>", re.IGNORECASE)
_SILENCE = re.compile(r"\s*language\s+none\s*", re.IGNORECASE)
_OTHER_TAG = re.compile(r"</asr_text>|<\|[\w.-]{1,40}\|>", re.IGNORECASE)


class OpenAITranscriber:
    """A ``Transcriber``. Safe to call from several threads. Raises SettingsError where address or key are unusable."""

    def __init__(self, base_url: str, api_key: str, model: str, *, language: str = ""):
        self._model = model
        self._more = {"language": language} if language else {}
        self._complaints = Complaints(
            "STACKMEM_ASR", base_url.strip(), api_key.strip(), "speech recogniser", "transcriptions", "BASE_URL"
        )
        self._connection = Connection(self._complaints)
        self._breaker = Breaker("speech recogniser")

    def transcribe(self, sound: Sound, timeout_s: float) -> str:
        """Return the words heard, "" for silence. Raises TransientError or PermanentError.

        After a request that waited in vain, the next ones fail at once for some seconds.
        """
        deadline = time.monotonic() + timeout_s
        file = wav(resampled(sound, RATE))
        with self._breaker.watched():
            try:
                return in_time(lambda: self._post(file, deadline), deadline, self._complaints, "recogniser")
            except Refused as refused:
                raise self._complaints.refused(refused) from None

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._connection.close()

    def _post(self, file: bytes, deadline: float) -> str:
        with self._connection.translated():
            transcriptions: Any = self._connection.client().audio.transcriptions.with_streaming_response
            left = max(deadline - time.monotonic(), 0.001)
            with transcriptions.create(
                file=("speech.wav", file, "audio/wav"),
                model=self._model,
                response_format="json",
                timeout=left,
                **self._more,
            ) as response:
                body = read_body(response, deadline, self._complaints, _BODY_LIMIT)
                is_text = response.headers.get("content-type", "").startswith("text/plain")
        value = {"text": body.decode(errors="replace")} if is_text else read_object(body)
        if not isinstance(value.get("text"), str):
            raise refusal_in(value, "no text")
        return heard(value["text"])


def heard(text: str) -> str:
    """Return the words in a recogniser's text, its tags stripped; "" where nothing was said."""
    text = clean(text)
    if _SILENCE.fullmatch(text):
        return ""
    # A long recording comes in parts, each with its own tag; what stands before the first one has none.
    tags = list(_TAG.finditer(text))
    starts = [(0, ""), *((tag.end(), tag["language"] or "") for tag in tags)]
    ends = [*(tag.start() for tag in tags), len(text)]
    parts = [text[start:end] for (start, spoken), end in zip(starts, ends, strict=True) if spoken.lower() != "none"]
    words = _OTHER_TAG.sub("", "".join(parts)).strip()
    return words if letters(words) else ""
