"""Did it keep what matters of real talk, and leave out the backchannels: sampled turns, judged by a model."""

import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evals.figures import Rate
from stackmem.asking import ask
from stackmem.exceptions import BadAnswer, PermanentError, TransientError
from stackmem.models import MemorySource, Turn
from stackmem.persona import language_of, render
from stackmem.ports import ChatModel, ChatRequest
from stackmem.reading import read_json

log = logging.getLogger(__name__)

GROUP = 10  # turns of one session shown together
WORDS = 300  # characters of each side of a turn that are shown
SETTLED = ("kept", "skipped")
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"keep": {"type": "array", "items": {"type": "integer"}}},
    "required": ["keep"],
}


@dataclass(frozen=True)
class Captured:
    """What was found. ``unjudged``: turns on which the judge gave no usable opinion."""

    capture_recall: Rate
    noise_rate: Rate
    turns: int
    unjudged: int
    left_out: Sequence[Turn]  # worth keeping, says the judge, and in no memory
    kept_in_vain: Sequence[Sequence[Turn]]  # the sampled turns of memories that rest on nothing worth keeping

    def as_json(self) -> dict[str, Any]:
        """Return the figures and the ids of the turns that went wrong."""
        return {
            "turns": self.turns,
            "unjudged": self.unjudged,
            "capture_recall": self.capture_recall.as_json(),
            "noise_rate": self.noise_rate.as_json(),
            "left_out": [turn.id for turn in self.left_out],
            "kept_in_vain": [[turn.id for turn in turns] for turns in self.kept_in_vain],
        }


def sample(owner: str, count: int, seed: int) -> list[list[Turn]]:
    """Return groups of successive looked-at turns of one session each, ``count`` turns in all or fewer; repeatable."""
    rows = Turn.select().where(Turn.owner == owner, Turn.state.in_(SETTLED), ~Turn.settled)
    groups = list(_groups(list(rows.order_by(Turn.session, Turn.ordinal))))
    random.Random(seed).shuffle(groups)
    chosen: list[list[Turn]] = []
    while groups and sum(map(len, chosen)) < count:
        chosen.append(groups.pop()[: count - sum(map(len, chosen))])
    return chosen


def _groups(turns: Sequence[Turn]) -> Iterator[list[Turn]]:
    group: list[Turn] = []
    for turn in turns:
        if group and (turn.session_id != group[0].session_id or len(group) == GROUP):
            yield group
            group = []
        group.append(turn)
    if group:
        yield group


def capture(
    groups: Sequence[Sequence[Turn]], judge: ChatModel, timeout_s: float, tell: Callable[[int], None]
) -> Captured:
    """Ask the judge which turns are worth keeping and compare with the memories there are; ``tell`` hears progress."""
    worth: dict[int, bool] = {}
    for number, group in enumerate(groups, 1):
        worth |= _opinion(group, judge, timeout_s)
        tell(number)
    turns = {turn.id: turn for group in groups for turn in group}
    memories = _memories_of(list(worth))
    held = {turn for sources in memories for turn in sources}
    wanted = [turn for turn, keep in worth.items() if keep]
    vain = [sources for sources in memories if not any(worth[turn] for turn in sources)]
    return Captured(
        Rate(sum(turn in held for turn in wanted), len(wanted)),
        Rate(len(vain), len(memories)),
        len(turns),
        len(turns) - len(worth),
        [turns[turn] for turn in wanted if turn not in held],
        [[turns[turn] for turn in sources] for sources in vain],
    )


def _opinion(group: Sequence[Turn], judge: ChatModel, timeout_s: float) -> dict[int, bool]:
    shown = [
        {"number": number, "user": turn.user[:WORDS], "robot": turn.reply[:WORDS]}
        for number, turn in enumerate(group, 1)
    ]
    language = language_of([turn.user for turn in group])
    prompt = render(f"judge_keep.{language}.md", turns=json.dumps(shown, ensure_ascii=False, indent=0))
    request = ChatRequest([{"role": "user", "content": prompt}], "judge", timeout_s, json_schema=_SCHEMA)
    try:
        keep = ask(judge, request, lambda content: _read(content, len(group)))
    except (BadAnswer, TransientError, PermanentError) as exc:
        log.warning("the judge gave no opinion on turns %s to %s: %s", group[0].id, group[-1].id, exc)
        return {}
    return {turn.id: number in keep for number, turn in enumerate(group, 1)}


def _read(content: str, count: int) -> set[int]:
    value = read_json(content)
    keep = value.get("keep") if isinstance(value, dict) else None
    if not isinstance(keep, list) or not all(isinstance(n, int) and 1 <= n <= count for n in keep):
        raise BadAnswer(f'The answer is not {{"keep": [numbers from 1 to {count}]}}.')
    return set(keep)


def _memories_of(turns: Sequence[int]) -> list[list[int]]:
    """Return the memories whose source turns were all judged, as lists of them."""
    some = MemorySource.select(MemorySource.memory).where(MemorySource.turn.in_(turns))
    sources: dict[str, list[int]] = {}
    for row in MemorySource.select().where(MemorySource.memory.in_(some)).order_by(MemorySource.turn):
        sources.setdefault(row.memory_id, []).append(row.turn_id)
    judged = set(turns)
    # One that rests on turns outside the sample may be worth keeping because of them.
    return [held for held in sources.values() if judged.issuperset(held)]
