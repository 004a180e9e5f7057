"""Neighbours for every figure: what would never, always or by keywords search, and the offline model, on each turn."""

from dataclasses import replace

from stackmem.adapters.offline import OfflineChat
from stackmem.models import Turn
from stackmem.recall import Recall, ToolResult
from stackmem.speaking import Speech
from stackmem.text import fold
from stackmem.thinking import Deadline, Thinker, Thought
from stackmem.tool_mode import ToolUse

BASELINES = ("never", "always", "keyword", "offline")
PATIENCE = 60.0  # seconds; the offline model takes milliseconds

# Words of remembering, as a program without a model would look for them.
KEYWORDS = (
    "覚えて", "おぼえて", "憶えて", "っけ", "前に", "まえに", "この前", "こないだ", "この間", "昨日", "きのう", "先週",
    "先月", "去年", "以前", "昔", "いつ", "なんだった", "何だった", "だったっけ", "言った", "話した", "思い出",
    "remember", "last time", "last week", "last month", "yesterday", "before", "did i", "told you", "what was",
)  # fmt: skip

Answers = dict[str, tuple[list[ToolResult], str | None]]


def answers(turn: Turn, thinker: Thinker) -> Answers:
    """Return, per baseline, the searches it does on a stored turn, and its reply (None where it only decides).

    Nothing is written; the turn and what came before it are seen as the model saw them.
    """
    searches: dict[str, list[ToolResult]] = {
        "never": [],
        "always": [search(thinker.recall, turn)],
        "keyword": [search(thinker.recall, turn)] if has_keyword(turn.user) else [],
    }
    thought = think_offline(turn, thinker)
    found = [result for call, result, _ in thought.calls if call.name == "search_memory"]
    return {name: (results, None) for name, results in searches.items()} | {
        "offline": (found, thought.reply.reply if thought.reply else "")
    }


def has_keyword(text: str) -> bool:
    """Tell whether a text holds one of the keywords."""
    folded = fold(text)
    return any(word in folded for word in KEYWORDS)


def search(recall: Recall, turn: Turn) -> ToolResult:
    """Search with the user's own words, as a program does that has no model."""
    return recall.call(turn.owner, turn.session_id, "search_memory", {"query": turn.user})


def think_offline(turn: Turn, thinker: Thinker) -> Thought:
    """Return how the offline model would have answered."""
    offline = replace(thinker, chat=OfflineChat(), tool_use=ToolUse("native"))
    return offline.think(turn, Deadline(PATIENCE), Speech(None, thinker.persona.reply_characters * 3))
