"""The trace of a turn: one row for every tool call of the model's."""

from stackmem.models import ToolTrace, Turn
from stackmem.ports import ToolCall
from stackmem.prepared import Prepared, slots
from stackmem.recall import ToolResult
from stackmem.text import clean, clean_json

_TRACED = (
    ToolTrace.turn, ToolTrace.ordinal, ToolTrace.tool, ToolTrace.arguments, ToolTrace.hits, ToolTrace.relaxed,
    ToolTrace.note, ToolTrace.looked_for, ToolTrace.result, ToolTrace.duration_ms,
)  # fmt: skip
_TRACE = Prepared(lambda **_: ToolTrace.insert(slots(*_TRACED)))


def trace(turn: Turn, ordinal: int, call: ToolCall, result: ToolResult, spent_ms: float) -> None:
    """Write what the model's call with this number asked, and what came back."""
    _TRACE.insert(
        turn=turn,
        ordinal=ordinal,
        tool=clean(call.name),
        arguments=clean_json(call.arguments or {}),  # None: they could not be read, as the note says
        hits=result.hits,
        relaxed=result.relaxed,
        note=result.note,
        looked_for=result.looked_for,
        result=result.content,
        duration_ms=round(spent_ms, 3),
    )
