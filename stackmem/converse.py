"""LIVE: one turn. Context, model and tools, reply, stored; the robot is answered after the commit."""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from peewee import IntegrityError

from stackmem import body, sessions
from stackmem.brought import OWN_TOOLS, Brought
from stackmem.clock import AHEAD
from stackmem.database import live_transaction, lock_row
from stackmem.exceptions import Conflict, InvalidInput
from stackmem.ids import turn_uid
from stackmem.logs import about
from stackmem.looks import LOOK_AFTER, unlooked
from stackmem.metering import NoMeter
from stackmem.models import Owner, Session, Turn, proxy
from stackmem.persona import prompts_of
from stackmem.ports import Clock, Hint, Meter, Queue
from stackmem.prepared import Prepared, slots
from stackmem.regenerating import make_way
from stackmem.speaking import OnSentence, Speech
from stackmem.text import clean
from stackmem.thinking import Deadline, Thinker, Thought
from stackmem.tracing import trace
from stackmem.traffic import live

POLL = 0.1  # seconds between looks at a turn that another request is answering

_OPENED = (
    Turn.uid, Turn.session, Turn.ordinal, Turn.owner, Turn.at, Turn.received_at, Turn.user, Turn.state, Turn.key,
    Turn.durations_ms,
)  # fmt: skip
_ANSWERED = (
    Turn.reply, Turn.emotion, Turn.action, Turn.degraded, Turn.model, Turn.prompts, Turn.state, Turn.searched,
    Turn.memory_ids, Turn.model_calls, Turn.tokens, Turn.durations_ms, Turn.withheld,
)  # fmt: skip
_OPEN = Prepared(lambda **_: Turn.insert(slots(*_OPENED)))
_ANSWER = Prepared(
    lambda turn_id, **_: Turn.update(slots(*_ANSWERED)).where(
        Turn.id == turn_id, (Turn.state == "open") | (Turn.reply == "")
    )
)
_ANSWER_AGAIN = Prepared(  # unless its words were forgotten meanwhile
    lambda turn_id, **_: Turn.update(slots(*_ANSWERED)).where(Turn.id == turn_id, Turn.user != "")
)
_ENQUEUED = Prepared(
    lambda sessions, **_: Session.update(slots(Session.enqueued_at)).where(Session.id.in_(sessions)), lists=["sessions"]
)


@dataclass(frozen=True)
class Said:
    """What a client sent: the words, and whose they are."""

    owner: str
    text: str
    session_id: str | None = None
    device: str | None = None
    at: datetime | None = None
    key: str | None = None  # a retry with the same key gets the stored answer
    took_ms: Mapping[str, float] = field(default_factory=dict)  # what was done before there were words: ``asr``
    brought: Brought | None = None  # by a client that keeps the conversation itself
    again: int | None = None  # the stored turn of these words, whose reply is to be replaced


@dataclass(frozen=True)
class Conversation:
    """The live turn over its parts."""

    thinker: Thinker
    clock: Clock
    queue: Queue
    turn_timeout_s: float
    meter: Meter = NoMeter()

    def deadline(self) -> Deadline:
        """Return the deadline of a turn whose request arrives now."""
        return Deadline(self.turn_timeout_s)

    def stored(self, said: Said) -> Turn | None:
        """Return the answered turn that is stored under the same key; the words need not be known yet."""
        key = key_of(said)
        return Turn.get_or_none(Turn.key == key, Turn.state != "open") if key else None

    def turn(self, said: Said, on_sentence: OnSentence | None = None, deadline: Deadline | None = None) -> Turn:
        """Store the words, answer them, store the answer; return the stored turn.

        ``deadline`` is that of a request which arrived a while ago.

        ``on_sentence`` gets the reply in sentences, each once, in order, the first ones before the model has said the
        rest; joined they are the stored reply, whatever that is (a fallback line, an earlier answer under this key).
        A model that breaks off after something was handed over leaves that as the reply; it is not degraded.
        Raises InvalidInput for empty words; a model that is down is no error: the reply is a fallback line.
        """
        deadline = deadline or self.deadline()
        return self.go_on(said, *self.begin(said), on_sentence, deadline)

    def finish(self, turn: Turn, is_new: bool, on_sentence: OnSentence | None = None) -> Turn:
        """Answer what ``begin`` stored, and return the stored turn.

        One that is not new may be being answered elsewhere: that is waited for, and the turn taken over, with all of
        its time again, when nothing comes. Raises Conflict where something still may.
        """
        if not is_new:
            turn = self._answered_elsewhere(turn, Deadline(self.turn_timeout_s + POLL))
        said = Said(turn.owner, turn.user, took_ms=turn.durations_ms)
        return self.go_on(said, turn, turn.state == "open", on_sentence, self.deadline())

    def go_on(self, said: Said, turn: Turn, is_new: bool, on_sentence: OnSentence | None, deadline: Deadline) -> Turn:
        """Answer the words that ``begin`` stored, as ``turn`` does."""
        speech = Speech(on_sentence, self.thinker.persona.reply_characters * 3)
        turn = self._answered(said, turn, is_new, speech, deadline)
        if not (said.brought and said.brought.calls):
            speech.finish(turn.reply)
        return turn

    def _answered(self, said: Said, turn: Turn, is_new: bool, speech: Speech, deadline: Deadline) -> Turn:
        with live.turn(), about(turn.user, turn_id=turn.id, session_id=turn.session.name):
            if not (is_new or _is_again(turn, said)):
                turn = self._answered_elsewhere(turn, deadline)
                if turn.state != "open":
                    return turn
            thought = self.thinker.think(turn, deadline, speech, said.brought)
            return self._store(turn, thought, said, deadline)

    def begin(self, said: Said) -> tuple[Turn, bool]:
        """Store the user's words as an open turn; or find the turn stored under the same key (then it is not new).

        Raises InvalidInput for empty words.
        """
        words, now = clean(said.text), self.clock.now()
        if not words.strip():
            raise InvalidInput("The text is empty: there is nothing to answer.")
        self.check(said)
        return live_transaction(lambda: _opened(said, words, key_of(said), now))

    def check(self, said: Said) -> None:
        """Raise InvalidInput where it could not be stored, whatever the words are."""
        if said.at and said.at > self.clock.now() + AHEAD:
            raise InvalidInput("`at` lies in the future: a turn is at most 5 minutes ahead of the server's clock.")
        if said.session_id:
            sessions.check_name(said.session_id)

    def _answered_elsewhere(self, turn: Turn, deadline: Deadline) -> Turn:
        """Wait while another request answers the same turn; take it over when that one is dead."""
        while turn.state == "open":
            if self.clock.now() > turn.received_at + timedelta(seconds=self.turn_timeout_s):
                return turn
            if deadline.left_s() <= 0:
                raise Conflict("This turn is still being answered; ask again with the same key.")
            time.sleep(POLL)
            turn = Turn.get_by_id(turn.id)
        return turn

    def _store(self, turn: Turn, thought: Thought, said: Said, deadline: Deadline) -> Turn:
        """Store reply, state and trace in one transaction; then hint that there may be something to remember."""
        raw, persona, again = thought.reply, self.thinker.persona, _is_again(turn, said)
        reply = thought.speech.stored(clean(raw.reply).strip() if raw else "")
        is_asking = bool(said.brought and said.brought.calls)  # the client is to run its tools first
        turn.reply = "" if is_asking else reply or persona.fallback_line(turn.id)
        turn.emotion = body.emotion_id(raw.emotion if raw and reply else "", persona.emotions)
        turn.action = body.action_id(raw.action if raw and reply else "", persona.actions)
        turn.degraded, turn.model = not (reply or is_asking), self.thinker.chat.name
        has_own_tools = said.brought is not None and said.brought.own_tools
        turn.prompts = OWN_TOOLS if has_own_tools else prompts_of(persona, self.thinker.tool_use.mode)
        turn.searched = any(call.name == "search_memory" for call, _, _ in thought.calls)
        turn.memory_ids = _returned_ids(thought)
        turn.model_calls = thought.model_calls
        turn.tokens = {"prompt": thought.prompt_tokens, "completion": thought.completion_tokens}
        turn.durations_ms = _durations(thought, said, deadline)
        turn.withheld = turn in thought.withheld
        hints = live_transaction(lambda: self._write(turn, thought, again=again))
        if hints is None:
            return Turn.get_by_id(turn.id)
        for hint in hints:
            self.queue.put(hint)
        self.meter.turn(turn.durations_ms, degraded=turn.degraded)
        for call, _, spent_ms in thought.calls:
            self.meter.spent("tool", call.name, spent_ms)
        return turn

    def _write(self, turn: Turn, thought: Thought, *, again: bool) -> list[Hint] | None:
        """Write the answer and its trace, inside the caller's transaction.

        Returns the looks that are due now; None where another request took the turn over and was first.
        """
        turn.state = make_way(turn) if again else "pending"
        answer = _ANSWER_AGAIN if again else _ANSWER
        if not answer.update(turn_id=turn.id, **{field.name: getattr(turn, field.name) for field in _ANSWERED}):
            return None
        if thought.withheld:
            Turn.update(withheld=True).where(Turn.id.in_([refused.id for refused in thought.withheld])).execute()
        for ordinal, (call, result, spent_ms) in enumerate(thought.calls):
            trace(turn, ordinal, call, result, spent_ms)
        return due_looks(turn, self.clock.now())


def _opened(said: Said, words: str, key: str | None, now: datetime) -> tuple[Turn, bool]:
    """Insert an open turn, inside the caller's transaction; or find the turn stored under the same key."""
    known = Turn.get_or_none(Turn.key == key) if key else None
    if known is None and said.again is not None:
        known = Turn.get_or_none(Turn.id == said.again, Turn.owner == said.owner, Turn.user == words)
    if known is not None:
        return known, False
    session = sessions.session_for_turn(said.owner, clean(said.session_id or "") or None, said.device, now)
    ordinal = sessions.next_ordinal(session)
    sessions.received(session, now)
    columns = {
        "uid": turn_uid(said.owner, session.name, session.seq, ordinal, words), "session": session,
        "ordinal": ordinal, "owner": said.owner, "at": said.at or now, "received_at": now, "user": words,
        "state": "open", "key": key, "durations_ms": _rounded(said.took_ms),
    }  # fmt: skip
    try:
        with proxy.atomic():
            return _insert(columns), True
    except IntegrityError:
        known = Turn.get_or_none(Turn.key == key) if key else None
        if known is not None:  # stored by a request that ran beside this one
            return known, False
        # An export brought a turn that has this uid.
        return _insert(columns | {"uid": _free_uid(said.owner, session, ordinal, words)}), True


def _is_again(turn: Turn, said: Said) -> bool:
    """Tell whether a turn is answered already, and is to be answered anew."""
    return turn.id == said.again and turn.state != "open"


def _insert(columns: dict[str, Any]) -> Turn:
    return Turn(id=_OPEN.insert(**columns), **columns)


def _free_uid(owner: str, session: Session, ordinal: int, words: str) -> str:
    """Return the turn's uid; another one where an export brought a turn that has it."""
    uid, again = turn_uid(owner, session.name, session.seq, ordinal, words), 0
    while Turn.select(Turn.id).where(Turn.uid == uid).exists():
        again += 1
        uid = turn_uid(owner, session.name, f"{session.seq} again {again}", ordinal, words)
    return uid


def due_looks(turn: Turn, now: datetime) -> list[Hint]:
    """Return hints for the looks that this turn makes due, and mark them as enqueued."""
    due = [turn.session_id] if unlooked(turn.session) >= LOOK_AFTER else []
    if turn.ordinal == 1:
        lock_row(Owner(name=turn.owner))  # who changes several sessions does it one after the other
        others = Session.select(Session.id).where(Session.owner == turn.owner, Session.look_due)
        due += [row.id for row in others if row.id != turn.session_id]
    if due:
        _ENQUEUED.update(sessions=due, enqueued_at=now)
    return [Hint("remember", session_id) for session_id in due]


def give_up_open_turns(now: datetime, older_than: timedelta, fallback: Callable[[int], str]) -> int:
    """Make turns whose request died ``pending``, answered by a fallback line; return how many."""
    dead = list(Turn.select().where(Turn.state == "open", Turn.received_at < now - older_than))
    for turn in dead:
        Turn.update(state="pending", degraded=True, reply=fallback(turn.id)).where(
            Turn.id == turn.id, Turn.state == "open"
        ).execute()
    return len(dead)


def key_of(said: Said) -> str | None:
    """Return the key under which a turn is stored and found again, None where the client sent none."""
    if not said.key:
        return None
    if len(said.key) > 200:
        raise InvalidInput("An Idempotency-Key has at most 200 characters.")
    # Two robots of one owner may count from 1 alike.
    return hashlib.sha256("\0".join((said.owner, said.device or "", clean(said.key))).encode()).hexdigest()


def _returned_ids(thought: Thought) -> list[str]:
    ids = [hit["memory_id"] for _, result, _ in thought.calls for hit in result.hits if hit["memory_id"]]
    return list(dict.fromkeys(ids))


def _durations(thought: Thought, said: Said, deadline: Deadline) -> dict[str, float]:
    """Return where the time went, in milliseconds; ``embed`` and ``search`` are parts of ``tools``."""
    spent = {
        **said.took_ms,
        "model": thought.model_ms,
        "tools": sum(spent_ms for _, _, spent_ms in thought.calls),
        "embed": sum(result.embed_ms for _, result, _ in thought.calls),
        "search": sum(result.search_ms for _, result, _ in thought.calls),
        "total": deadline.spent_ms(),
    }
    return _rounded(spent)


def _rounded(spent: Mapping[str, float]) -> dict[str, float]:
    return {name: round(ms, 3) for name, ms in spent.items()}
