"""What a client that keeps its conversation itself brings along with a turn, and how the model is shown it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from stackmem.clock import show_time
from stackmem.context import CUT_NOTE
from stackmem.models import Turn
from stackmem.persona import Language, Persona, render, render_for
from stackmem.ports import ToolCall
from stackmem.text import estimate_tokens

OWN_TOOLS = "own-tools"  # stands for the prompts of a turn whose client runs tools: it could not search
SYSTEM_SHARE = 0.3  # of the prompt's budget for the client's own instructions: more of them is cut, with a note


@dataclass(frozen=True)
class Exchanged:
    """One exchange of the client's history, with what is stored of it; ``id`` is None where nothing is."""

    user: str
    reply: str
    emotion: str = "neutral"
    action: str = "none"
    id: int | None = None


@dataclass
class Brought:
    """What came with the words. ``history`` None: nothing, the session's stored turns are the context.

    ``own_tools``: the client runs tools of its own, so ours are not offered; its ``messages`` are shown as they are.
    ``calls`` is filled in by the turn: what the model asks the client to run. The turn has no reply then.
    """

    system: str = ""
    history: Sequence[Exchanged] | None = None
    own_tools: bool = False
    messages: Sequence[dict[str, Any]] = ()
    tools: Sequence[dict[str, Any]] = ()
    calls: tuple[ToolCall, ...] = ()


def shown_before(brought: Brought | None, language: Language, budget: int) -> str:
    """Return the client's own instructions as they stand before ours, within their share of the budget in tokens."""
    if brought is None or not brought.system:
        return ""
    text, tokens = brought.system, int(budget * SYSTEM_SHARE)
    if estimate_tokens(text) > tokens:
        text = text[: max(1, tokens)] + CUT_NOTE[language]
    return render(f"client.{language}.md", text=text) + "\n\n"


def messages_with_own_tools(
    turn: Turn, brought: Brought, persona: Persona, zone: tzinfo, budget: int
) -> list[dict[str, Any]]:
    """Return the messages of a turn whose client runs tools: the robot's character, then the client's newest messages.

    At least those since the user's last words are shown.
    """
    now = show_time(turn.at.replace(second=0, microsecond=0), zone) or ""
    system = shown_before(brought, persona.language, budget) + render_for(persona, "own_tools", now=now, zone=zone)
    left = budget - estimate_tokens(system) - _tokens(brought.tools)
    users = [place for place, message in enumerate(brought.messages) if message["role"] == "user"]
    start = users[-1]
    for earlier in reversed(users[:-1]):
        if _tokens(brought.messages[earlier:]) > left:
            break
        start = earlier
    return [{"role": "system", "content": system}, *brought.messages[start:]]


def _tokens(value: Any) -> int:
    return estimate_tokens(json.dumps(value, ensure_ascii=False))
