"""Speech from an OpenAI-compatible ``/v1/audio/speech``: Irodori-TTS-Server, and any other that gives WAV.

A request: https://platform.openai.com/docs/api-reference/audio/createSpeech
Irodori's rules: https://github.com/Aratako/Irodori-TTS-Server (one synthesis at a time; 503 to who waited for long)
"""

import hashlib
import threading
import time
from typing import Any

from stackmem.adapters.openai_answer import NO_ANSWER, read_object, refusal_in
from stackmem.adapters.openai_client import Connection
from stackmem.adapters.openai_errors import Complaints, Refused
from stackmem.adapters.openai_timed import in_time, read_body
from stackmem.circuit import Breaker
from stackmem.exceptions import InvalidInput, PermanentError
from stackmem.sound import Sound, read_wav
from stackmem.text import clean, cut_at_sentence

LONGEST = 4096  # characters that a request may have

_BODY_LIMIT = 64_000_000  # bytes: eleven minutes at 48 kHz, more than the longest text takes


class OpenAISpeaker:
    """A ``Speaker``. Safe to call from several threads; at most ``parallel`` requests are under way at a time.

    ``extra_body`` is sent with every request. Raises SettingsError where address or key are unusable.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        model: str,
        voice: str,
        *,
        extra_body: dict[str, Any] | None = None,
        parallel: int = 1,
    ):
        self._model, self._voice, self._extra_body = model, voice, extra_body
        self.voice = hashlib.sha256(repr((base_url, model, voice, extra_body)).encode()).hexdigest()[:12]
        self._complaints = Complaints(
            "STACKMEM_TTS",
            base_url.strip(),
            api_key.strip(),
            "speech synthesis",
            "speech",
            "VOICE",
        )
        self._connection = Connection(self._complaints)
        self._breaker = Breaker("speech synthesis")
        self._free = threading.BoundedSemaphore(parallel)

    def speak(self, text: str, timeout_s: float) -> Sound:
        """Return a text spoken; of a very long one its beginning. Raises TransientError or PermanentError.

        ``timeout_s`` includes waiting for other texts. After a request that waited in vain, the next ones fail at once
        for some seconds.
        """
        deadline = time.monotonic() + timeout_s
        words = cut_at_sentence(clean(text).strip(), LONGEST)
        if not self._free.acquire(timeout=max(timeout_s, 0)):
            raise self._complaints.too_slow()
        try:
            with self._breaker.watched():
                return in_time(lambda: self._post(words, deadline), deadline, self._complaints, "synthesis")
        except Refused as refused:
            raise self._complaints.refused(refused) from None
        finally:
            self._free.release()

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._connection.close()

    def _post(self, text: str, deadline: float) -> Sound:
        with self._connection.translated():
            speech: Any = self._connection.client().audio.speech.with_streaming_response
            left = max(deadline - time.monotonic(), 0.001)
            with speech.create(
                input=text,
                model=self._model,
                voice=self._voice,
                response_format="wav",
                timeout=left,
                extra_body=self._extra_body,
            ) as response:
                return _read(read_body(response, deadline, self._complaints, _BODY_LIMIT))


def _read(body: bytes) -> Sound:
    if not body.startswith(b"RIFF"):
        if body.lstrip()[:1] in (b"{", b"<"):
            raise refusal_in(read_object(body), "no sound")
        if not body:
            raise Refused(NO_ANSWER, "no sound")
        raise PermanentError("The speech synthesis sent no WAV file: take a server that gives response_format wav.")
    try:
        sound = read_wav(body)
    except InvalidInput as exc:
        raise PermanentError(f"What the speech synthesis sent cannot be read: {exc}") from exc
    if not len(sound.samples):
        raise Refused(NO_ANSWER, "no sound")
    return sound
