"""The speech of turns over HTTP."""

from typing import Any

from flask import Blueprint, Response, g, url_for

from stackmem import shapes
from stackmem.exceptions import NotFound
from stackmem.models import Turn
from stackmem.sound import Sound
from stackmem.voice import is_speakable
from stackmem.why import turn_of
from web.access import runtime
from web.sounds import sound_response, wanted_form

blueprint = Blueprint("speech", __name__)


@blueprint.get("/v1/turns/<turn_id>/audio")
def get_audio(turn_id: str) -> Response:
    """Return the speech of a turn's reply, waiting for it; 404 with the reason where there is none."""
    rate, form = wanted_form()
    return sound_response(speech_of(turn_id), rate, form)


def speech_of(turn_id: str) -> Sound:
    """Return the speech of a turn by the number a client gave. Raises NotFound with the reason."""
    turn = turn_of(g.owner, turn_id)
    voice = runtime().aloud.voice
    if voice is None:
        raise NotFound("No speech synthesis is set, so there is no speech: set STACKMEM_TTS_BASE_URL.")
    return voice.of(turn)


def has_speech(turn: Turn) -> bool:
    """Tell whether a turn's reply can be heard."""
    return runtime().aloud.voice is not None and is_speakable(turn)


def with_speech(turn: Turn, shape: dict[str, Any]) -> dict[str, Any]:
    """Return the shape of a turn with the address of its speech, where it has one."""
    return shape | ({"audio_url": url_for("speech.get_audio", turn_id=turn.id)} if has_speech(turn) else {})


def answer(turn: Turn, client: str = "") -> dict[str, Any]:
    """Return what the robot gets for a turn; with ``client`` its own word for the emotion."""
    return with_speech(turn, shapes.turn_answer(turn, client))
