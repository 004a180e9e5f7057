"""A live turn with ears and a voice: sound or words in, the stored turn out, its speech under way."""

import logging
import threading
from collections import OrderedDict
from dataclasses import replace

from stackmem.converse import Conversation, Said, key_of
from stackmem.exceptions import StackmemError
from stackmem.models import Turn
from stackmem.persona import Language, Persona
from stackmem.ports import Transcriber
from stackmem.sound import Sound
from stackmem.thinking import Deadline
from stackmem.voice import NEWER, Utterance, Voice

log = logging.getLogger(__name__)

ROBOTS = 64  # whose last speech is still known
Robot = tuple[str, str | None, str | None]  # owner, device, and the session it names
SHORTEST_S = 0.1  # no word is shorter, and OpenAI's recogniser, for one, refuses less

# What a robot says where there is no turn to answer with: nothing was heard, hearing failed, nothing is set.
APOLOGIES: dict[Language, dict[str, str]] = {
    "ja": {
        "silence": "よく聞こえなかったよ。もう一回言ってくれる？",
        "deaf": "ごめん、いま耳の調子が悪いみたい。少し待ってから話してくれる？",
        "no_ears": "ごめん、音声認識がまだ設定されていないんだ。",
    },
    "en": {
        "silence": "I did not hear anything. Could you say it again?",
        "deaf": "Sorry, my ears do not work right now. Please try again in a moment.",
        "no_ears": "Sorry, speech recognition is not set up yet.",
    },
}


def fixed_lines(persona: Persona) -> list[str]:
    """Return what a robot must be able to say at once: what a persona says without its model, and the apologies."""
    return [*persona.fallback, *APOLOGIES[persona.language].values()]


class NoEars(StackmemError):
    """No speech recogniser is set: set STACKMEM_ASR_BASE_URL to an OpenAI-compatible one, or send the words as JSON."""

    status = 501


class Aloud:
    """Conversation, ears and voice; the last two may be missing."""

    def __init__(
        self, conversation: Conversation, transcriber: Transcriber | None, voice: Voice | None, asr_timeout_s: float
    ):
        self.conversation, self.transcriber, self.voice = conversation, transcriber, voice
        self._asr_timeout_s = asr_timeout_s
        self._deafness = ""  # why the last recording was not understood
        self._lock = threading.Lock()
        # What each robot says now, and the key of the turn. Robots of one token may name sessions of their own.
        self._speaking: OrderedDict[Robot, tuple[str | None, Utterance]] = OrderedDict()

    def require_ears(self) -> Transcriber:
        """Return what hears. Raises NoEars where nothing is set."""
        if self.transcriber is None:
            raise NoEars
        return self.transcriber

    def listen(self, said: Said, sound: Sound, deadline: Deadline) -> Said | None:
        """Return what was said with its words; None for silence.

        Raises NoEars, InvalidInput where it could not be stored, or TransientError or PermanentError where the
        recogniser does not work. Nothing is stored yet.
        """
        transcriber = self.require_ears()
        self.conversation.check(said)
        if sound.seconds < SHORTEST_S:
            return None
        before = deadline.spent_ms()
        try:
            words = transcriber.transcribe(sound, min(self._asr_timeout_s, deadline.left_s()))
        except StackmemError as exc:
            self._deafness = str(exc)
            log.warning("a recording of %.1f s was not understood: %s", sound.seconds, exc)
            raise
        self._deafness = ""
        if not words:
            return None
        return replace(said, text=words, took_ms={"asr": deadline.spent_ms() - before})

    def turn(
        self, said: Said, deadline: Deadline | None = None, *, speak: bool = True
    ) -> tuple[Turn, Utterance | None]:
        """Answer a turn as ``Conversation.turn`` does; its speech goes on while the answer is on its way.

        The utterance is None where there is no voice, or the answer was given before. Without ``speak`` speech is made
        only when somebody asks for it.
        """
        deadline = deadline or self.conversation.deadline()
        if self.voice is None or not speak:
            return self.conversation.turn(said, deadline=deadline), None
        stored = self.conversation.stored(said)
        if stored is not None:
            return stored, None
        utterance = self._begun(self.voice, deadline, (said.owner, said.device, said.session_id), key_of(said))
        try:
            turn = self.conversation.turn(said, utterance.add, deadline)
        except BaseException:
            utterance.give_up()
            raise
        utterance.finish(turn)
        return turn, utterance

    def begin(self, said: Said) -> tuple[Turn, bool]:
        """Store the words as ``Conversation.begin`` does."""
        return self.conversation.begin(said)

    def finish(self, turn: Turn, is_new: bool) -> Turn:
        """Answer what ``begin`` stored as ``Conversation.finish`` does, and speak."""
        if self.voice is None:
            return self.conversation.finish(turn, is_new)
        deadline = self.conversation.deadline()
        session = turn.session
        robot = session.owner, session.device, session.name if session.named else None
        utterance = self._begun(self.voice, deadline, robot, turn.key)
        try:
            turn = self.conversation.finish(turn, is_new, utterance.add)
        except BaseException:
            utterance.give_up()
            raise
        utterance.finish(turn)
        return turn

    def _begun(self, voice: Voice, deadline: Deadline, robot: Robot, key: str | None) -> Utterance:
        """Begin to speak; what the same robot was saying stops, unless this is a retry of the same turn."""
        utterance = voice.begin(deadline)
        _, device, _ = robot
        if device is None:
            return utterance
        with self._lock:
            last_key, last = self._speaking.pop(robot, (None, None))
            self._speaking[robot] = key, utterance
            while len(self._speaking) > ROBOTS:
                self._speaking.popitem(last=False)
        if last is not None and (key is None or key != last_key):
            last.give_up(NEWER)
        return utterance

    def reasons(self) -> list[str]:
        """Return what is not as it could be, one sentence each; where nothing is set, nothing is wrong."""
        return [fault for fault in (self._deafness, self.voice.fault if self.voice else "") if fault]
