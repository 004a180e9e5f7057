"""WAV files as recorders and speech services write them, good and bad."""

import io
import struct
import tracemalloc
import wave
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stackmem.exceptions import InvalidInput
from stackmem.sound import Sound, joined, l16, read_l16, read_wav, resampled, wav

RAMP = np.array([0, 1000, -1000, 32767, -32768, 5], np.int16)
PCM_GUID = b"\x01\x00\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"


def made(body: bytes, kind: int = 1, bits: int = 16, channels: int = 1, rate: int = 16000, **more: object) -> bytes:
    """Return a WAV file; ``size`` is what its data chunk claims, ``before`` stands in front of it."""
    frame = bits // 8 * channels
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * frame, frame, bits) + more.get("extra", b"")  # type: ignore[operator]
    size = more.get("size", len(body))
    before = more.get("before", b"")
    head = b"WAVEfmt " + struct.pack("<I", len(form)) + form + before + b"data" + struct.pack("<I", size)  # type: ignore[operator]
    return b"RIFF" + struct.pack("<I", len(head) + len(body)) + head + body


@given(arrays(np.int16, st.integers(0, 300)), st.sampled_from([8000, 11025, 16000, 44100, 48000]))
def test_what_is_written_is_read_again(samples: np.ndarray, rate: int) -> None:
    sound = read_wav(wav(Sound(samples, rate)))
    assert sound.rate == rate
    assert (sound.samples == samples).all()
    assert (read_l16(l16(sound), rate, 1).samples == samples).all()


def test_the_standard_library_reads_what_is_written() -> None:
    with wave.open(io.BytesIO(wav(Sound(RAMP, 24000)))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        assert file.readframes(100) == RAMP.tobytes()


@pytest.mark.parametrize(
    ("kind", "bits", "body"),
    [
        (1, 8, ((RAMP.astype(np.int32) >> 8) + 128).astype(np.uint8).tobytes()),
        (1, 16, RAMP.astype("<i2").tobytes()),
        (1, 24, b"".join(struct.pack("<i", int(value) << 8)[:3] for value in RAMP)),
        (1, 32, (RAMP.astype(np.int64) << 16).astype("<i4").tobytes()),
        (3, 32, (RAMP / 32768).astype("<f4").tobytes()),
        (3, 64, (RAMP / 32768).astype("<f8").tobytes()),
    ],
)
def test_every_width_gives_the_same_sound(kind: int, bits: int, body: bytes) -> None:
    exact = 256 if bits == 8 else 1
    found = read_wav(made(body, kind, bits)).samples.astype(int)
    assert (np.abs(found - RAMP.astype(int)) < exact).all()


def test_an_extensible_header_says_what_is_in_it_further_behind() -> None:
    extra = struct.pack("<HHI", 22, 24, 4) + PCM_GUID
    body = b"".join(struct.pack("<i", int(value) << 8)[:3] for value in RAMP)
    assert (read_wav(made(body, 0xFFFE, 24, extra=extra)).samples == RAMP).all()


def test_channels_are_mixed() -> None:
    stereo = np.array([[100, 300], [-100, -300], [32767, 32767]], "<i2")
    assert read_wav(made(stereo.tobytes(), channels=2)).samples.tolist() == [200, -200, 32767]
    assert read_l16(stereo.tobytes(), 16000, 2).samples.tolist() == [200, -200, 32767]


@pytest.mark.parametrize(("kind", "bits", "channels"), [(1, 8, 1), (1, 24, 2), (3, 32, 2), (1, 16, 1), (3, 64, 8)])
def test_a_long_recording_is_read_in_blocks_and_takes_little_more_than_its_size(
    kind: int, bits: int, channels: int
) -> None:
    size = 6_000_000 // (bits // 8 * channels) * (bits // 8 * channels)
    noise = np.random.default_rng(7).integers(0, 256, size // 64 + 1, np.uint8).tobytes() * 64
    file = made(noise[:size], kind, bits, channels)
    tracemalloc.start()
    whole = read_wav(file).samples
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(whole) == size // (bits // 8 * channels)
    assert peak < 30_000_000  # as floats all at once: 100 million and more
    for first in (0, 250_000 // channels, len(whole) - 3):  # as the same frames alone
        frames = noise[first * (bits // 8 * channels) :][: 3 * bits // 8 * channels]
        assert (read_wav(made(frames, kind, bits, channels)).samples == whole[first : first + 3]).all()


def test_floats_without_measure_are_full_scale() -> None:
    loud = np.array([1e300, -1e300, 5.0, -1.0], "<f8")
    assert read_wav(made(loud.tobytes(), 3, 64)).samples.tolist() == [32767, -32768, 32767, -32768]
    assert read_wav(made(loud.tobytes(), 3, 64, 2)).samples.tolist() == [0, 0]


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 10**6])
def test_a_length_that_was_not_known_goes_to_the_end(size: int) -> None:
    assert (read_wav(made(RAMP.tobytes(), size=size)).samples == RAMP).all()


def test_other_chunks_are_passed_over_odd_ones_too() -> None:
    before = b"LIST" + struct.pack("<I", 5) + b"Hello\0" + b"bext" + struct.pack("<I", 4) + b"1234"
    data = made(RAMP.tobytes(), before=before) + b"id3 " + struct.pack("<I", 3) + b"abc"
    assert (read_wav(data).samples == RAMP).all()


def test_half_a_sample_at_the_end_is_left_out() -> None:
    assert (read_wav(made(RAMP.tobytes() + b"\x01", size=0)).samples == RAMP).all()


def test_floats_that_are_no_numbers_are_silence() -> None:
    body = np.array([np.nan, np.inf, -np.inf, 0.5, 9.0], "<f4").tobytes()
    assert read_wav(made(body, 3, 32)).samples.tolist() == [0, 0, 0, 16384, 32767]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no WAV file"),
        (b"<!DOCTYPE html><html>", "no WAV file"),
        (b"OggS" + bytes(40), "no WAV file"),
        (b"RIFX" + made(b"")[4:], "big-endian"),
        (b"RIFF\0\0\0\0WAVE", "no data chunk"),
        (b"RIFF\0\0\0\0WAVEdata\x02\0\0\0ab", "no format"),
        (b"RIFF\0\0\0\0WAVEfmt \x04\0\0\0abcddata\x02\0\0\0ab", "cut off"),
        (made(bytes(8), kind=6, bits=8), "number 6, 8 bits"),
        (made(bytes(8), bits=12), "12 bits"),
        (made(bytes(8), rate=0), "rate"),
        (made(bytes(8), rate=10**6), "rate"),
        (made(bytes(8), channels=0), "channels"),
        (made(bytes(90), channels=9), "channels"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(data: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_wav(data)


@given(st.binary(max_size=200), st.integers(0, 60), st.binary(max_size=8))
def test_any_bytes_are_a_sound_or_a_sentence(tail: bytes, place: int, instead: bytes) -> None:
    whole = made(RAMP.tobytes())
    damaged = whole[:place] + instead + whole[place + len(instead) :] + tail
    for data in (tail, damaged, whole[:place]):
        with suppress(InvalidInput):
            sound = read_wav(data)
            assert sound.samples.dtype == np.int16
            assert sound.samples.ndim == 1
            assert sound.seconds >= 0


def test_another_rate_keeps_length_and_pitch() -> None:
    tone = (np.sin(2 * np.pi * 440 * np.arange(48000) / 48000) * 12000).astype(np.int16)
    for rate in (8000, 16000, 24000, 44100):
        found = resampled(Sound(tone, 48000), rate)
        assert found.rate == rate
        assert abs(found.seconds - 1) < 0.001
        spectrum = np.abs(np.fft.rfft(found.samples))
        assert abs(int(spectrum.argmax()) / found.seconds - 440) < 2
    assert resampled(Sound(tone, 48000), 48000).samples is tone
    assert len(resampled(Sound(tone[:0], 48000), 16000).samples) == 0


def test_sounds_are_joined_at_the_rate_of_the_first() -> None:
    whole = joined([Sound(RAMP, 8000), Sound(np.ones(1600, np.int16), 16000)], pause_s=0.1)
    assert whole.rate == 8000
    assert len(whole.samples) == len(RAMP) + 800 + 800
    assert (whole.samples[: len(RAMP)] == RAMP).all()
    assert not whole.samples[len(RAMP) : len(RAMP) + 800].any()
    assert (joined([Sound(RAMP, 8000)]).samples == RAMP).all()
