"""The judge's verdict on one turn: whether it needed a memory, and which of those that existed then was right."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from stackmem.asking import ask
from stackmem.exceptions import BadAnswer
from stackmem.persona import language_of, prompt_file, prompt_version
from stackmem.ports import ChatModel, ChatRequest
from stackmem.reading import read_json
from stackmem.text import clean

MEMORIES = 20  # shown to the judge at most
REASON_LIMIT = 300  # characters
TEXT_LIMIT = 600  # characters of one text shown to the judge

# Both languages: a judge is one judge, whatever language a turn is in.
PROMPT_VERSION = prompt_version("judge_turn.ja.md")[:4] + prompt_version("judge_turn.en.md")[:4]


@dataclass(frozen=True)
class Shown:
    """A memory as it stood when the turn was answered. ``at`` is a date."""

    id: str
    at: str
    summary: str


@dataclass(frozen=True)
class Case:
    """What the judge is shown. ``context``: (user, reply) pairs before it in its session, oldest first.

    ``memories``: those nearest to the user's words, nearest first; ``returned``: the ids of those the robot was given.
    """

    user: str
    reply: str
    searched: bool
    context: Sequence[tuple[str, str]] = ()
    memories: Sequence[Shown] = ()
    returned: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Verdict:
    """What the judge, or a person, says of a turn. ``right``: ids of the memories that hold the answer."""

    needed: bool
    right: tuple[str, ...] = ()
    reason: str = ""

    def found(self, case: Case) -> bool | None:
        """Return whether a right memory was returned; None where nothing was searched, or there was none to find."""
        if not (case.searched and self.right):
            return None
        return not case.returned.isdisjoint(self.right)

    def missed(self, case: Case) -> bool:
        """Return whether there was something to find, and it was not found."""
        return bool(self.right) and not self.found(case)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    needed: bool
    right: list[int] = []
    reason: str = ""

    @field_validator("right", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        items = [] if value is None else value if isinstance(value, list) else [value]
        return [item.strip().lstrip("Mm#") if isinstance(item, str) else item for item in items]

    @field_validator("reason", mode="before")
    @classmethod
    def _short(cls, value: Any) -> str:
        return clean(value).strip()[:REASON_LIMIT] if isinstance(value, str) else ""


def judge_turn(model: ChatModel, case: Case, timeout_s: float) -> Verdict:
    """Ask the judge about one turn; a bad answer is asked again once, with the fault.

    Raises BadAnswer after the second bad one, TransientError or PermanentError where the judge did not answer.
    """
    language = language_of([case.user, case.reply])
    messages = [
        {"role": "system", "content": prompt_file(f"judge_turn.{language}.md").strip()},
        {"role": "user", "content": json.dumps(_asked(case), ensure_ascii=False)},
    ]
    request = ChatRequest(messages, "judge", timeout_s, json_schema=_SCHEMA)
    return ask(model, request, lambda content: read_verdict(content, case))


def _asked(case: Case) -> dict[str, Any]:
    memories = case.memories[:MEMORIES]
    return {
        "context": [{"user": _cut(user), "reply": _cut(reply)} for user, reply in case.context],
        "user": _cut(case.user),
        "reply": _cut(case.reply),
        "searched": case.searched,
        "memories": [
            {"number": number, "at": memory.at, "summary": _cut(memory.summary)}
            for number, memory in enumerate(memories, 1)
        ],
        "returned": [number for number, memory in enumerate(memories, 1) if memory.id in case.returned],
    }


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}…"


def read_verdict(content: str, case: Case) -> Verdict:
    """Read the judge's answer about ``case``. Raises BadAnswer with the fault, for the judge to mend."""
    value = read_json(content)
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), None)
    if not isinstance(value, dict):
        raise BadAnswer('The answer is not a JSON object with "needed", "right" and "reason".')
    try:
        answer = _Answer.model_validate(value)
    except ValidationError as exc:
        fault = exc.errors()[0]
        raise BadAnswer(f'"{fault["loc"][0]}" is not valid: {fault["msg"]}.') from exc
    return Verdict(answer.needed, _ids(answer, case) if answer.needed else (), answer.reason)


def _ids(answer: _Answer, case: Case) -> tuple[str, ...]:
    shown = case.memories[:MEMORIES]
    if unknown := [number for number in answer.right if not 1 <= number <= len(shown)]:
        raise BadAnswer(f'"right" names {unknown[0]}, but the memories have the numbers 1 to {len(shown)}.')
    return tuple(dict.fromkeys(shown[number - 1].id for number in answer.right))


# The reason comes first: a model that says why before it decides decides better.
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "needed": {"type": "boolean"},
        "right": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}}]},
    },
    "required": ["reason", "needed", "right"],
}
