"""A model's opinion whether a reply asks which one is meant."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stackmem.asking import ask
from stackmem.config import Settings
from stackmem.exceptions import BadAnswer, PermanentError, TransientError
from stackmem.persona import language_of, render
from stackmem.ports import ChatModel, ChatRequest
from stackmem.providers import judge_model
from stackmem.reading import read_json

log = logging.getLogger(__name__)

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"asks_back": {"type": "boolean"}},
    "required": ["asks_back"],
}


@dataclass(frozen=True)
class AskBackJudge:
    """The judge model, asked one question."""

    model: ChatModel
    timeout_s: float

    def asks_back(self, user: str, reply: str, candidates: Sequence[str]) -> bool | None:
        """Return whether the reply asks which candidate is meant; None where the judge gave no usable answer."""
        meant = json.dumps([text[:400] for text in candidates], ensure_ascii=False)
        prompt = render(f"judge_ask_back.{language_of([user, reply])}.md", user=user, reply=reply, candidates=meant)
        messages = [{"role": "user", "content": prompt}]
        try:
            return ask(self.model, ChatRequest(messages, "judge", self.timeout_s, json_schema=_SCHEMA), _read)
        except (BadAnswer, TransientError, PermanentError) as exc:
            log.warning("the judge gave no opinion: %s", exc)
            return None


def judge_of(settings: Settings) -> AskBackJudge | None:
    """Return the judge that is set; None where none is: the model that talked does not judge itself unasked."""
    if settings.judge_is_offline or not (settings.judge_base_url or settings.judge_model):
        return None
    return AskBackJudge(judge_model(settings), settings.judge_timeout_s)


def _read(content: str) -> bool:
    value = read_json(content)
    said = value.get("asks_back") if isinstance(value, dict) else None
    if not isinstance(said, bool):
        raise BadAnswer('The answer is not {"asks_back": true} or {"asks_back": false}.')
    return said
