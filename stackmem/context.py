"""What the model is shown in a live turn: one system message, then the session's recent turns within the budget."""

import json
from collections.abc import Sequence
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import Any

from stackmem.clock import show_time
from stackmem.models import Turn
from stackmem.persona import Persona, tools, turn_prompt
from stackmem.prepared import Prepared
from stackmem.text import estimate_tokens

RECENT = 60  # turns of a session that are looked at at most
USER_SHARE = 0.5  # of the budget: more of the user's words than that are cut, with a note to the model
USER_TOKENS = 200  # of the user's words are shown even where persona and tools fill the budget
_RECENT = Prepared(
    lambda session, ordinal: (
        Turn.select(Turn.id, Turn.user, Turn.reply, Turn.emotion, Turn.action)
        .where(Turn.session == session, Turn.ordinal < ordinal, Turn.state != "open")
        .where(~Turn.withheld)
        .where((Turn.user != "") | (Turn.reply != ""))  # both are empty where they were forgotten
        .order_by(Turn.ordinal.desc())
        .limit(RECENT)
    )
)
CUT_NOTE = {"ja": "（長いので、ここから先は省略されています）", "en": "(too long: the rest was left out here)"}


@lru_cache(maxsize=4096)  # the same sixty replies stand in every turn of a talk
def reply_json(reply: str, emotion: str, action: str) -> str:
    """Return a reply in the form the model is asked for, Japanese unescaped."""
    return json.dumps({"reply": reply, "emotion": emotion, "action": action}, ensure_ascii=False)


def recent_turns(turn: Turn) -> list[Turn]:
    """Return the answered turns of the same session before this one, oldest first."""
    return _RECENT.rows(session=turn.session_id, ordinal=turn.ordinal)[::-1]


def build_messages(
    turn: Turn,
    history: Sequence[Turn],
    persona: Persona,
    now: datetime,
    zone: tzinfo,
    budget: int,
    mode: str = "native",
) -> list[dict[str, Any]]:
    """Return the messages of a live turn: persona and tools always fit, the oldest turns leave first, whole pairs."""
    # To the minute, and last: servers keep what they read of a prompt up to the first word that differs.
    minute = now.replace(second=0, microsecond=0)
    system = turn_prompt(persona, show_time(minute, zone) or "", str(zone), mode)
    fixed = estimate_tokens(system) + estimate_tokens(json.dumps(tools(persona.language), ensure_ascii=False))
    words = _cut(turn.user, max(USER_TOKENS, int((budget - fixed) * USER_SHARE)), persona.language)
    left = budget - fixed - estimate_tokens(words)
    pairs: list[list[dict[str, Any]]] = []
    for earlier in reversed(history):
        pair = _pair(earlier)
        left -= sum(estimate_tokens(message["content"]) + 4 for message in pair)
        if left < 0:
            break
        pairs.append(pair)
    shown = [message for pair in reversed(pairs) for message in pair]
    return [{"role": "system", "content": system}, *shown, {"role": "user", "content": words}]


def _pair(turn: Turn) -> list[dict[str, Any]]:
    reply = {"role": "assistant", "content": reply_json(turn.reply, turn.emotion, turn.action)}
    return [{"role": "user", "content": turn.user}, reply] if turn.user else [reply]


def _cut(words: str, tokens: int, language: str) -> str:
    if estimate_tokens(words) <= tokens:
        return words
    return words[: max(1, tokens)] + CUT_NOTE[language]
