"""The robot's voice: the speech of a reply is made while the reply is still being thought, and kept.

The first sentence is synthesised as soon as it is whole; what has come meanwhile follows in one piece.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from stackmem.database import transaction
from stackmem.exceptions import NotFound, StackmemError
from stackmem.kept_speech import KeptSpeech
from stackmem.metering import NoMeter
from stackmem.models import Turn, proxy
from stackmem.ports import Meter, Speaker
from stackmem.sentences import sentences
from stackmem.sound import Sound, joined
from stackmem.text import letters
from stackmem.thinking import Deadline

log = logging.getLogger(__name__)

PAUSE_S = 0.15  # between two pieces: a synthesis ends where the last sound does
REMEMBERED = 32  # utterances whose sound or fault is still at hand
GIVEN_UP = "The speech was given up."
NEWER = "A newer turn of the same robot needed the voice."


def is_speakable(turn: Turn) -> bool:
    """Tell whether a turn has a reply of ours with something to say aloud."""
    return not turn.imported and turn.state != "open" and bool(letters(turn.reply))


class Voice:
    """Makes and keeps the speech of replies. ``lines`` gives fixed ones, needed most when little else works."""

    def __init__(
        self,
        speaker: Speaker,
        kept: KeptSpeech,
        timeout_s: float,
        lines: Callable[[], Sequence[str]],
        meter: Meter | None = None,
    ):
        self._meter = meter or NoMeter()
        self._speaker, self._kept, self._timeout_s, self._lines = speaker, kept, timeout_s, lines
        self._lock = threading.Lock()
        self._utterances: OrderedDict[int, Utterance] = OrderedDict()
        self.fault = ""  # of the last synthesis, in a sentence

    def begin(self, deadline: Deadline) -> "Utterance":
        """Begin the speech of a turn that is being answered; it may take a while longer than the turn."""
        return Utterance(self, deadline.moved(self._timeout_s))

    def of(self, turn: Turn) -> Sound:
        """Return the speech of a stored turn, waiting for it. Raises NotFound with the reason.

        What is not there and not under way is made now, from the stored reply; so is what failed before, once that has
        been told.
        """
        if not is_speakable(turn):
            raise NotFound(f"Turn {turn.id} has no words to say aloud.")
        kept = self._kept.of_turn(turn)
        if kept is not None:
            return kept
        utterance = self._under_way(turn)
        sound = utterance.whole()
        if sound is None:
            self._forget(utterance, turn)
            raise NotFound(f"The speech of turn {turn.id} could not be made. {utterance.fault}")
        if not Turn.select().where(Turn.id == turn.id, Turn.reply == turn.reply).exists():
            raise NotFound(f"The words of turn {turn.id} were changed or forgotten meanwhile.")
        return sound

    def line(self, text: str, deadline: Deadline) -> Sound:
        """Return a fixed line spoken, from what is kept where it is. Raises TransientError or PermanentError."""
        return joined([self.spoken(piece.strip(), deadline) for piece in sentences(text)], PAUSE_S)

    def can_say(self, text: str, deadline: Deadline) -> bool:
        """Tell whether a fixed line is there, made now where it was not."""
        try:
            return bool(self.line(text, deadline))
        except StackmemError as exc:
            log.warning("A fixed line could not be spoken: %s", exc)
            return False

    def prepare(self) -> threading.Thread:
        """Say the fixed lines that are not kept yet, in a thread: when they are needed it is too late to make them."""

        def run() -> None:
            try:
                for piece in self._fixed():
                    self.spoken(piece, Deadline(self._timeout_s))
            except StackmemError as exc:
                log.warning("The fixed lines could not be spoken beforehand: %s", exc)

        thread = threading.Thread(target=run, name="lines", daemon=True)
        thread.start()
        return thread

    # --- for utterances ---

    def is_fixed(self, text: str) -> bool:
        """Tell whether a sentence is one of a fixed line."""
        return text.strip() in self._fixed()

    def _fixed(self) -> list[str]:
        return list(dict.fromkeys(piece.strip() for line in self._lines() for piece in sentences(line)))

    def spoken(self, text: str, deadline: Deadline) -> Sound:
        """Return a piece of text spoken. Raises TransientError or PermanentError."""
        fixed = self.is_fixed(text)
        if fixed and (kept := self._kept.line(text.strip())) is not None:
            return kept
        try:
            sound = self._speaker.speak(text, deadline.left_s())
        except StackmemError as exc:
            self.fault = str(exc)
            raise
        self.fault = ""
        if fixed:
            try:
                self._kept.keep_line(text.strip(), sound)
            except OSError as exc:
                log.warning("a fixed line could not be kept: %s", exc)
        return sound

    def take(self, utterance: "Utterance", turn: Turn) -> "Utterance":
        """Return the utterance that speaks for this turn: the given one, unless another one already does.

        One that stopped for a newer turn does not: who asks for it now is to hear it.
        """
        with self._lock:
            other = self._utterances.get(turn.id)
            if other is not None and other.says(turn) and other.fault != NEWER:
                return other
            self._utterances[turn.id] = utterance
            while len(self._utterances) > REMEMBERED:
                self._utterances.popitem(last=False)
        return utterance

    def done(self, utterance: "Utterance", turn: Turn, sound: Sound) -> None:
        """Keep the speech of a turn whose reply is still the same; it stays at hand where it cannot be written."""
        with proxy.connection_context():
            row = Turn.get_or_none(Turn.id == turn.id)
            if row is not None and row.reply == turn.reply:
                if utterance.spent_ms:
                    _note(turn.id, utterance.spent_ms)
                    for part, spent_ms in utterance.spent_ms.items():
                        self._meter.spent("part", part, spent_ms)
                try:
                    self._kept.keep(turn, sound)
                except OSError as exc:
                    log.warning("the speech of turn %s could not be kept: %s", turn.id, exc)
                    return
        self._forget(utterance, turn)

    def _under_way(self, turn: Turn) -> "Utterance":
        """Return the utterance that makes a stored turn's speech, begun now where there is none."""
        utterance = Utterance(self, Deadline(self._timeout_s), is_live=False)
        utterance.turn = turn
        other = self.take(utterance, turn)
        if other is utterance:
            for sentence in sentences(turn.reply):
                utterance.add(sentence)
            utterance.finish(turn)
        return other

    def _forget(self, utterance: "Utterance", turn: Turn) -> None:
        with self._lock:
            if self._utterances.get(turn.id) is utterance:
                del self._utterances[turn.id]


class Utterance:
    """The speech of one reply while it is made, in a thread of its own. ``by`` is when it must be whole."""

    def __init__(self, voice: Voice, by: Deadline, *, is_live: bool = True):
        self.fault = ""
        self.spent_ms: dict[str, float] = {}  # first_sound: from the request's arrival; tts: all syntheses
        self._voice, self._by, self._is_live = voice, by, is_live
        self._changed = threading.Condition()
        self._waiting: list[str] = []
        self._sounds: list[Sound] = []
        self.turn: Turn | None = None  # once the reply is whole
        self._is_ended = self._is_over = False
        self._whole: Sound | None = None
        self._thread: threading.Thread | None = None

    def add(self, sentence: str) -> None:
        """Take the next sentence of the reply; returns at once."""
        with self._changed:
            if letters(sentence) and not self._is_over:
                self._waiting.append(sentence)
            if self._thread is None and self._waiting:
                self._thread = threading.Thread(target=self._run, name="speech", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, turn: Turn) -> None:
        """Say that the reply is whole, and stored as this turn's."""
        self.turn = turn
        is_ours = self._voice.take(self, turn) is self
        with self._changed:
            self._is_ended = True
            if not is_ours:
                self._waiting = []
                self._end(GIVEN_UP)  # another one speaks for this turn
            if self._thread is None:
                self._end("There is nothing to say aloud.")
            self._changed.notify_all()

    def give_up(self, fault: str = GIVEN_UP) -> None:
        """Stop where it is: there will be no turn, or nobody will listen any more."""
        with self._changed:
            self._waiting, self._is_ended = [], True
            self._end(fault)

    def says(self, turn: Turn) -> bool:
        """Tell whether this is the speech of the turn's present reply."""
        return self.turn is not None and self.turn.reply == turn.reply

    def has_begun(self, by: Deadline) -> bool:
        """Wait until the first sound is there; tell whether it is."""
        with self._changed:
            self._changed.wait_for(lambda: self._sounds or self._is_over, by.left_s())
            return bool(self._sounds)

    def whole(self) -> Sound | None:
        """Wait for the whole speech and return it, None where there is none: ``fault`` says why."""
        with self._changed:
            in_time = self._changed.wait_for(lambda: self._is_over, self._by.left_s() + 1)
            if not in_time:
                self.fault = "It was not ready in time."
            return self._whole

    def _run(self) -> None:
        try:
            while (text := self._next()) is not None:
                before = self._by.spent_ms()
                sound = self._voice.spoken(text, self._by)
                self._spoken(sound, before)
            self._finish()
        except StackmemError as exc:
            log.warning("speech: %s", exc)
            self._end(str(exc))
        except Exception:  # the thread's edge: who waits must not wait for ever
            log.exception("speech could not be made")
            self._end("Something went wrong; the log says more.")

    def _next(self) -> str | None:
        """Wait for something to say and return it: one sentence at first, then all that has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_ended)
            is_one = not self._sounds or (self._waiting and self._voice.is_fixed(self._waiting[0]))
            taken = self._waiting[:1] if is_one else self._waiting
            self._waiting = self._waiting[len(taken) :]
            return "".join(taken).strip() or None

    def _spoken(self, sound: Sound, before_ms: float) -> None:
        now = self._by.spent_ms()
        with self._changed:
            if self._is_live:
                self.spent_ms.setdefault("first_sound", round(now, 3))
                self.spent_ms["tts"] = round(self.spent_ms.get("tts", 0.0) + now - before_ms, 3)
            self._sounds.append(sound)
            self._changed.notify_all()

    def _finish(self) -> None:
        with self._changed:
            if self._is_over or not self._sounds or self.turn is None:
                self._end(GIVEN_UP)
                return
            turn, sound = self.turn, joined(self._sounds, PAUSE_S)
            self._whole = sound
            self._end("")
        self._voice.done(self, turn, sound)

    def _end(self, fault: str) -> None:
        with self._changed:
            if not self._is_over:
                self.fault = fault
            self._is_over = True
            self._changed.notify_all()


def _note(turn_id: int, spent_ms: dict[str, float]) -> None:
    """Add to a turn's trace how long its speech took."""
    with transaction():
        turn = Turn.get_by_id(turn_id)
        Turn.update(durations_ms={**turn.durations_ms, **spent_ms}).where(Turn.id == turn_id).execute()
