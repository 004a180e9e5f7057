"""Read the sound of a request, and answer with sound."""

from flask import Response, request
from werkzeug.exceptions import UnsupportedMediaType

from stackmem.exceptions import InvalidInput, StackmemError
from stackmem.sound import Sound, l16, read_l16, read_wav, resampled, wav
from web.bodies import number_in_query

BODY_LIMIT = 16 * 1024 * 1024  # bytes; a minute of 16-bit stereo at 48 kHz is 11 million
LONGEST_S = 120
WAVS = ("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave")
L16 = "audio/l16"
_RATES = (8_000, 48_000)  # Hz that a robot may ask for


class TooLong(StackmemError):
    """The recording is too long: send two minutes at most."""

    status = 413


def is_sound() -> bool:
    """Tell whether the request's body is sound."""
    return request.mimetype.startswith("audio/")


def recording() -> bytes:
    """Return the body, which is sound. Raises InvalidInput where it is empty, or 413 and 415 as exceptions of HTTP."""
    if request.mimetype not in (*WAVS, L16):
        raise UnsupportedMediaType("Sound is taken as audio/wav or audio/L16;rate=16000;channels=1.")
    request.max_content_length = BODY_LIMIT
    data = request.get_data()
    if not data:
        raise InvalidInput("The body is empty: send the recording.")
    return data


def sound_in(data: bytes) -> Sound:
    """Return the sound in a body of the request's content type. Raises InvalidInput or TooLong."""
    if request.mimetype == L16:
        sound = read_l16(data, _parameter("rate", 16_000), _parameter("channels", 1))
    else:
        sound = read_wav(data)
    if sound.seconds > LONGEST_S:
        raise TooLong
    if not len(sound.samples):
        raise InvalidInput("The recording holds no sound.")
    return sound


def _parameter(name: str, default: int) -> int:
    text = request.mimetype_params.get(name, str(default)).strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput(f"{name} of audio/L16 must be a whole number, such as {default}.")
    return int(text)


def sound_response(sound: Sound, rate: int, form: str) -> Response:
    """Return a response with a sound at this rate in Hz, as ``wav`` or ``l16``."""
    sound = resampled(sound, rate)
    if form == "l16":
        response = Response(l16(sound), content_type=f"audio/L16;rate={rate};channels=1")
    else:
        response = Response(wav(sound), content_type="audio/wav")
    response.headers["Cache-Control"] = "no-store"  # it is somebody's talk
    response.headers["Accept-Ranges"] = "bytes"
    length = len(response.get_data())
    if _asks_for_a_part(length):  # as players of browsers do; a robot gets the whole, with its length
        response.make_conditional(request, accept_ranges=True, complete_length=length)
    return response


def _asks_for_a_part(length: int) -> bool:
    """Tell whether one part is asked for; what is no such thing is as if nobody had asked (RFC 9110, 14.2)."""
    asked = request.range
    if asked is None or asked.units != "bytes" or len(asked.ranges) != 1:
        return False
    return -asked.ranges[0][0] < length  # "the last million bytes" of less is all of it


def wanted_form() -> tuple[int, str]:
    """Return the rate and form that the query asks for. Raises InvalidInput."""
    rate = number_in_query("rate", 16_000, highest=_RATES[1], lowest=_RATES[0])
    form = request.args.get("format", "wav").lower()
    if form not in ("wav", "l16"):
        raise InvalidInput("format must be wav or l16.")
    return rate, form
