"""The offline chat model: rules only, no model behind it, no network, the same answer every time."""

import json
from collections.abc import Iterator

from stackmem.adapters.offline.judging import verdict
from stackmem.adapters.offline.same import decisions
from stackmem.adapters.offline.talk import turn
from stackmem.adapters.offline.topics import segments
from stackmem.adapters.offline.words import read_object
from stackmem.ports import ChatAnswer, ChatRequest


class OfflineChat:
    """Answers by rules so that everything runs without a key; the baseline every real model is measured against."""

    name = "offline"

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the rules' answer to the request's purpose; no input makes it raise."""
        if request.purpose == "turn":
            return turn(request.messages, request.tools)
        if request.purpose == "plain":
            return ChatAnswer(str(read_object(turn(request.messages, ()).content)["reply"]))
        asked = read_object(_last_words(request))
        if request.purpose == "remember":
            value: object = segments(asked)
        elif request.purpose == "compare":
            value = decisions(asked)
        else:
            value = verdict(asked)
        return ChatAnswer(json.dumps(value, ensure_ascii=False))

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield the same answer, which is there at once."""
        yield self.complete(request)


def _last_words(request: ChatRequest) -> object:
    users = [item for item in request.messages if isinstance(item, dict) and item.get("role") == "user"]
    return users[-1].get("content") if users else ""
