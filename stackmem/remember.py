"""BACKGROUND: look at a session. The model splits it by topic, keeps or skips, summarises; its failures wait."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from stackmem.answers import TYPES, Segment, read_segments
from stackmem.asking import ATTEMPTS, ask, delay
from stackmem.clock import day_of_week, show_time
from stackmem.database import Held, lease, transaction
from stackmem.exceptions import BadAnswer, ContentRefused, PermanentError, TransientError
from stackmem.logs import about
from stackmem.looks import Look, carried, is_due, looked, new_window, next_look, turns_before, write_look
from stackmem.models import Session, Turn
from stackmem.persona import Persona, Who, language_of, prompt_file, render
from stackmem.ports import ChatModel, ChatRequest, Clock, Hint, Queue
from stackmem.traffic import live

log = logging.getLogger(__name__)

TURN_CHARACTERS = 1500  # of one side's words that the memory model sees


@dataclass(frozen=True)
class Remembering:
    """The use case over its parts."""

    model: ChatModel
    who: Who
    clock: Clock
    queue: Queue
    zone: tzinfo
    timeout_s: float

    @property
    def persona(self) -> Persona:
        """Who the robot is now."""
        return self.who.current()

    def remember(self, session_id: int) -> int:
        """Look at a session as often as is due; return how many memories were made.

        Does nothing when no look is due or another worker holds the session. A bad answer costs an attempt, a model
        that is down only a delay; both are stored, and nothing is raised.
        """
        made = 0
        with lease(f"session:{session_id}", self.clock) as held:
            session = Session.get_or_none(Session.id == session_id)
            while held is not None and session is not None and is_due(session, self.clock.now()):
                live.give_way()
                look = next_look(session)
                spoken = [words for turn in look.turns for words in (turn.user, turn.reply)]
                with about(*spoken, session_id=session.name):
                    made += self._look(look, held)
                session = Session.get_by_id(session_id)
        return made

    def _look(self, look: Look, held: Held) -> int:
        try:
            segments = carried(look, look.session.open_topic) or self.ask(look)
        except ContentRefused as exc:
            return self._around_refused(look, exc, held)
        except BadAnswer as exc:
            self._bad_answer(look, exc, held)
        except (TransientError, PermanentError) as exc:
            self._model_down(look, exc)
        else:
            return self._store(look, segments, held)
        return 0

    def ask(self, look: Look) -> list[Segment]:
        """Ask the model for the segments of a look. Raises BadAnswer, TransientError or PermanentError."""
        request = ChatRequest(self._messages(look), "remember", self.timeout_s, json_schema=_SCHEMA)
        segments = ask(self.model, request, lambda content: read_segments(content, len(look.turns)))
        if not segments and any(turn.user.strip() for turn in look.turns):
            # "Nothing to remember" must be said twice: a model that only failed to follow would lose the turns.
            segments = ask(self.model, request, lambda content: read_segments(content, len(look.turns)))
        return segments

    def _messages(self, look: Look) -> list[dict[str, Any]]:
        language = language_of([turn.user + turn.reply for turn in look.turns])
        both = look.session.both_speakers
        name = {"ja": "相手", "en": "The other person"}[language] if both else self.persona.name
        kind = "both" if both else "robot"
        rule = prompt_file(f"remember_{kind}.{language}.md").strip()
        examples = render(f"examples_{kind}.{language}.md", robot=name)
        system = render(f"remember.{language}.md", robot=name, robot_rule=rule, examples=examples)
        before = [self._turn_line(0, turn, language) for turn in turns_before(look)]
        for line in before:
            del line["turn_id"]
        talk = {
            "session_ended": look.final,
            "both_speakers": both,
            "time_zone": str(self.zone),
            **({"before": before} if before else {}),
            "turns": [self._turn_line(number, turn, language) for number, turn in enumerate(look.turns, 1)],
        }
        content = json.dumps(talk, ensure_ascii=False)
        return [{"role": "system", "content": system}, {"role": "user", "content": content}]

    def _turn_line(self, number: int, turn: Turn, language: str) -> dict[str, Any]:
        line: dict[str, Any] = {
            "turn_id": number,
            "at": show_time(turn.at, self.zone),
            "day": day_of_week(turn.at, self.zone, language),
            "user": turn.user[:TURN_CHARACTERS],
            "robot": "" if turn.degraded else turn.reply[:TURN_CHARACTERS],
        }
        return line | {"recalled": True} if turn.searched and turn.memory_ids else line

    def _store(self, look: Look, segments: Sequence[Segment], held: Held) -> int:
        with transaction():
            held.check()
            window = new_window(look, self.model.name, self.clock.now())
            made = write_look(look, segments, window, self.clock.now(), self.zone)
        if made:
            self.queue.put(Hint("index", look.session.owner))
        return made

    def _around_refused(self, look: Look, fault: Exception, held: Held) -> int:
        """Remember what a service will read; the turn that it will not fails at once. A topic ends there."""
        if len(look.turns) == 1:
            log.warning("turn %s: %s", look.turns[0].id, fault)
            self._fail(look, held)
            return 0
        made, middle = 0, len(look.turns) // 2
        for turns in (look.turns[:middle], look.turns[middle:]):
            half = Look(look.session, turns, final=True)
            try:
                made += self._store(half, self.ask(half), held)
            except ContentRefused as exc:
                made += self._around_refused(half, exc, held)
            except BadAnswer as exc:
                self._bad_answer(half, exc, held)  # this half alone is looked at again, as often as any other
                break
            except (TransientError, PermanentError) as exc:
                self._model_down(half, exc)
                break
        return made

    def _fail(self, look: Look, held: Held) -> None:
        with transaction():
            held.check()
            ids = [turn.id for turn in look.turns]
            Turn.update(state="failed").where(Turn.id.in_(ids), Turn.state == "pending").execute()
            looked(look, attempts=0, attempts_to=None, retry_at=None, open_topic=None)

    def _bad_answer(self, look: Look, fault: Exception, held: Held) -> None:
        attempts = look.session.attempts + 1
        log.warning("session %s: the memory model's answer was bad (attempt %d): %s", look.session.id, attempts, fault)
        if attempts >= ATTEMPTS:
            self._fail(look, held)
            return
        last = max(turn.id for turn in look.turns)
        wait = self.clock.now() + delay(attempts)
        with transaction():
            held.check()
            Session.update(attempts=attempts, attempts_to=last, retry_at=wait, enqueued_at=None).where(
                Session.id == look.session.id
            ).execute()

    def _model_down(self, look: Look, fault: Exception) -> None:
        delays = look.session.delays + 1
        log.warning("session %s: the memory model did not answer: %s", look.session.id, fault)
        Session.update(delays=delays, retry_at=self.clock.now() + delay(delays), enqueued_at=None).where(
            Session.id == look.session.id
        ).execute()


_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "segments": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "turn_ids": {"type": "array", "items": {"type": "integer"}},
                    "keep": {"type": "boolean"},
                    "topic": {"type": "string"},
                    "summary": {"type": "string"},
                    "entities": {"type": "array", "items": {"type": "string"}},
                    "memory_type": {"type": "string", "enum": list(TYPES)},
                    "occurred_at": {"type": ["string", "null"]},
                    "occurred_from": {"type": ["string", "null"]},
                    "occurred_to": {"type": ["string", "null"]},
                    "forget": {"type": "string"},
                    "aliases": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
                },
                "required": ["turn_ids", "keep", "topic", "summary", "entities", "memory_type"],
            },
        }
    },
    "required": ["segments"],
}
