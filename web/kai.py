"""stackchan-kai's sidecar protocol at ``POST /kai``: raw PCM in; out a small flat JSON, and the address of raw PCM.

https://github.com/andymai/stackchan-kai/blob/main/docs/sidecar.md. The robot gives up 15 s after it began to send and
reads 2,048 bytes of answer. Its parser takes no backslash, so there is never one.
"""

import json
import re

from flask import Blueprint, Response, g, url_for

from stackmem.aloud import APOLOGIES, NoEars
from stackmem.body import word_for
from stackmem.converse import Said
from stackmem.exceptions import InvalidInput, NotFound, StackmemError
from stackmem.text import clean, cut_at_sentence
from stackmem.thinking import Deadline
from web.access import runtime
from web.bodies import text_in_header
from web.sounds import TooLong, recording, sound_in, sound_response

blueprint = Blueprint("kai", __name__)

ANSWER_S = 13.0  # from the request's arrival: two of the robot's 15 are for the network
SPEECH_S = 2.5  # of them kept for the first sound of the reply
RATE = 16_000  # Hz; the robot plays nothing else
LONGEST_BODY = 30 * RATE * 2 + 1024  # bytes that the robot sends at most
EMOTIONS = ("neutral", "happy", "sleepy", "surprised", "sad", "angry")

_TEXT_LIMIT = 400  # characters; 1,600 bytes at most
_QUOTED = re.compile(r'"([^"]*)"')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


@blueprint.post("/kai")
def post_kai() -> Response:
    """Answer a recording. What goes wrong with hearing and thinking is apologised for, aloud and with 200."""
    deadline = Deadline(ANSWER_S)
    data = recording()
    if len(data) > LONGEST_BODY:
        raise TooLong("The recording is too long: the robot sends 30 seconds at most.")
    device, aloud = text_in_header("X-Session-Id"), runtime().aloud
    said = Said(owner=g.owner, text="", session_id=device, device=g.device or device)
    try:
        heard = aloud.listen(said, sound_in(data), deadline)
    except InvalidInput:
        raise
    except NoEars:
        return _apology("no_ears", "sad", deadline)
    except StackmemError:  # it is logged where it happened
        return _apology("deaf", "sad", deadline)
    if heard is None:
        return _apology("silence", "neutral", deadline)
    turn, utterance = aloud.turn(heard, deadline.moved(-SPEECH_S if aloud.voice else 0))
    address = url_for("speech.get_audio", turn_id=turn.id, rate=RATE, format="l16")
    return _answer(turn.reply, turn.emotion, address if utterance and utterance.has_begun(deadline) else None)


@blueprint.get("/kai/lines/<name>")
def get_line(name: str) -> Response:
    """Return the speech of an apology."""
    text, voice = APOLOGIES[runtime().persona.language].get(name), runtime().aloud.voice
    if text is None or voice is None:
        raise NotFound("There is no such line.")
    try:
        return sound_response(voice.line(text, Deadline(runtime().settings.tts_timeout_s)), RATE, "l16")
    except StackmemError as exc:
        raise NotFound(f"The line could not be spoken. {exc}") from exc


def _apology(name: str, emotion: str, deadline: Deadline) -> Response:
    text, voice = APOLOGIES[runtime().persona.language][name], runtime().aloud.voice
    address = None
    if voice is not None and voice.can_say(text, deadline):
        address = url_for("kai.get_line", name=name)
    return _answer(text, emotion, address)


def _answer(text: str, emotion: str, audio_url: str | None) -> Response:
    answer = {"text": readable(text), "emotion": emotion_of(emotion), "audio_url": audio_url}
    return Response(json.dumps(answer, ensure_ascii=False), content_type="application/json")


def emotion_of(emotion: str) -> str:
    """Return an emotion as kai calls it; one that it does not know is neutral."""
    return emotion if emotion in EMOTIONS else word_for("kai", emotion)


def readable(text: str) -> str:
    """Return a text that JSON holds without a backslash, short enough for the robot, and never empty."""
    text = _QUOTED.sub(r"「\1」", _CONTROL.sub(" ", clean(text)))
    text = text.replace('"', "＂").replace("\\", "＼")
    return cut_at_sentence(text, _TEXT_LIMIT).strip() or "…"
