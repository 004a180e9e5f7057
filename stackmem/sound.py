"""Sound as it comes and goes: WAV files of every kind a recorder writes, raw PCM, and another sampling rate. Pure.

What a WAV file is: https://learn.microsoft.com/windows/win32/xaudio2/resource-interchange-file-format--riff- and
https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stackmem.exceptions import InvalidInput

LOWEST_RATE, HIGHEST_RATE = 4_000, 192_000  # Hz
_CHANNELS = 8
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_FULL = 32768.0
_BLOCK = 1 << 18  # samples decoded at a time: as floats, a whole recording would take eight times its size and more

Samples = NDArray[np.int16]


@dataclass(frozen=True)
class Sound:
    """Mono sound: ``samples`` of shape (n,), ``rate`` in Hz."""

    samples: Samples
    rate: int

    @property
    def seconds(self) -> float:
        """Return how long it is."""
        return len(self.samples) / self.rate


def read_wav(data: bytes) -> Sound:
    """Return what is in a WAV file, its channels mixed to one: PCM of 8, 16, 24 or 32 bits, or floats of 32 or 64.

    A recorder that streams does not know the length when it writes the header: a data chunk of length 0 or 0xFFFFFFFF,
    or one longer than the file, goes to the end of the file. Raises InvalidInput with one sentence.
    """
    if len(data) < 12 or data[:4] not in (b"RIFF", b"RIFX", b"RF64") or data[8:12] != b"WAVE":
        raise InvalidInput("The sound is no WAV file: it does not begin with RIFF … WAVE.")
    if data[:4] == b"RIFX":
        raise InvalidInput("The WAV file is written in big-endian order (RIFX), which is not read here.")
    form: bytes | None = None
    for name, body in _chunks(data):
        if name == b"fmt ":
            form = body
        elif name == b"data":
            if form is None:
                raise InvalidInput("The WAV file has no format before its data.")
            return _decoded(form, body)
    raise InvalidInput("The WAV file holds no sound: it has no data chunk.")


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 12
    while position + 8 <= len(data):
        name, size = data[position : position + 4], struct.unpack_from("<I", data, position + 4)[0]
        left = len(data) - position - 8
        if name == b"data" and (size == 0 or size > left):
            size = left  # written before the length was known, or cut off
        yield name, data[position + 8 : position + 8 + size]
        position += 8 + size + size % 2  # chunks begin at even places


def _decoded(form: bytes, body: bytes) -> Sound:
    if len(form) < 16:
        raise InvalidInput("The WAV file's format is cut off.")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", form)
    if kind == _EXTENSIBLE and len(form) >= 26:
        kind = struct.unpack_from("<H", form, 24)[0]  # the first two bytes of the sub-format's GUID
    _check(rate, channels)
    if (kind, bits) not in [(_FLOAT, 32), (_FLOAT, 64), *((_PCM, width) for width in (8, 16, 24, 32))]:
        raise InvalidInput(f"The WAV file's format (number {kind}, {bits} bits) is not read here: send 16-bit PCM.")
    return Sound(_mono(body, kind, bits, channels), rate)


def _check(rate: int, channels: int) -> None:
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise InvalidInput(f"The sound's rate must be from {LOWEST_RATE} to {HIGHEST_RATE} Hz.")
    if not 1 <= channels <= _CHANNELS:
        raise InvalidInput(f"The sound must have 1 to {_CHANNELS} channels.")


def _mono(body: bytes, kind: int, bits: int, channels: int) -> Samples:
    """Return the samples of whole frames, mixed; what was cut off in the middle of one goes."""
    frame = bits // 8 * channels
    data = np.frombuffer(body, np.uint8, len(body) // frame * frame)
    if (kind, bits, channels) == (_PCM, 16, 1):  # what nearly everybody sends
        return data.view("<i2").astype(np.int16)
    mono, block = np.empty(len(data) // frame, np.int16), max(_BLOCK // channels, 1)
    for start in range(0, len(mono), block):
        values = _values(data[start * frame : (start + block) * frame], kind, bits)
        mono[start : start + block] = _mixed(values, channels)
    return mono


def _values(data: NDArray[np.uint8], kind: int, bits: int) -> NDArray[np.float64]:
    """Return samples of any kind in the range of 16 bits; what is no number is silence."""
    if kind == _PCM:
        return _integers(data, bits)
    floats = data.view(f"<f{bits // 8}")
    numbers = np.where(np.isfinite(floats), floats, 0)  # before the cast, which complains of what is none
    return np.clip(numbers.astype(np.float64), -1.0, 1.0) * _FULL


def _integers(data: NDArray[np.uint8], bits: int) -> NDArray[np.float64]:
    """Return samples of any width in the range of 16 bits; 8 bits are unsigned, all others signed."""
    if bits == 8:
        return (data.astype(np.float64) - 128) * 256
    if bits == 24:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = data.reshape(-1, 3)
        return wide.reshape(-1).view("<i4") / 65536
    return data.view(f"<i{bits // 8}") / (1 if bits == 16 else 65536)


def _mixed(values: NDArray[np.float64], channels: int) -> Samples:
    mono: NDArray[np.float64] = values.reshape(-1, channels).mean(axis=1)
    return np.clip(np.rint(mono), -32768, 32767).astype(np.int16)


def read_l16(data: bytes, rate: int, channels: int) -> Sound:
    """Return raw signed 16-bit samples, little-endian as robots send them (RFC 2586 has them the other way round)."""
    _check(rate, channels)
    return Sound(_mono(data, _PCM, 16, channels), rate)


def l16(sound: Sound) -> bytes:
    """Return a sound as raw signed 16-bit samples, little-endian."""
    return sound.samples.astype("<i2").tobytes()


def wav(sound: Sound) -> bytes:
    """Return a sound as a WAV file, 16 bits, mono."""
    body = l16(sound)
    form = struct.pack("<HHIIHH", _PCM, 1, sound.rate, sound.rate * 2, 2, 16)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + len(body))
        + b"WAVEfmt \x10\0\0\0"
        + form
        + struct.pack("<4sI", b"data", len(body))
        + body
    )


def resampled(sound: Sound, rate: int) -> Sound:
    """Return the sound at another rate."""
    if rate == sound.rate or not len(sound.samples):
        return Sound(sound.samples, rate)
    import soxr  # 0.1 s, and not every process speaks

    return Sound(soxr.resample(sound.samples, sound.rate, rate, quality="HQ"), rate)


def joined(sounds: Sequence[Sound], pause_s: float = 0.0) -> Sound:
    """Return sounds one after the other, at the rate of the first; at least one must be there."""
    rate = sounds[0].rate
    pause = np.zeros(round(pause_s * rate), np.int16)
    parts = [part for sound in sounds for part in (pause, resampled(sound, rate).samples)][1:]
    return Sound(np.concatenate(parts), rate)
