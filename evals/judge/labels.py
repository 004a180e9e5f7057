"""The hand-labelled turns that judges are judged by: one JSON object a line, see README.md beside them."""

import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evals.judge.turn import MEMORIES, Case, Shown, Verdict
from stackmem.exceptions import InvalidInput

FILE = "labels.jsonl"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Said(_Strict):
    user: str
    reply: str


class _Memory(_Strict):
    id: str
    summary: str
    at: str


class _Line(_Strict):
    id: str
    language: Literal["ja", "en"]
    context: list[_Said]
    user: str
    reply: str
    searched: bool
    memories: list[_Memory] = Field(max_length=MEMORIES)
    returned: list[str]
    needed: bool
    right: list[str]
    found: bool | None
    difficulty: Literal["easy", "hard"]
    source: str


@dataclass(frozen=True)
class Labelled:
    """A turn, and what a person says of it."""

    id: str
    case: Case
    verdict: Verdict


@dataclass(frozen=True)
class Labels:
    """All labelled turns. ``version``: a hash of the text they were read from."""

    turns: tuple[Labelled, ...]
    version: str


def packaged_labels() -> Labels:
    """Return the labelled turns that come with stackmem. Raises InvalidInput."""
    return read_labels((resources.files("evals.judge") / FILE).read_text("utf-8"))


def read_labels(text: str) -> Labels:
    """Read labelled turns. Raises InvalidInput with the line and its fault."""
    turns: dict[str, Labelled] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            labelled = _labelled(_Line.model_validate(json.loads(line)))
            if labelled.id in turns:
                raise ValueError(f"{labelled.id} stands there twice")
        except ValidationError as exc:
            fault = exc.errors()[0]
            where = ".".join(map(str, fault["loc"]))
            raise InvalidInput(f"{FILE}, line {number}: {where}: {fault['msg']}.") from exc
        except ValueError as exc:
            raise InvalidInput(f"{FILE}, line {number}: {exc}.") from exc
        turns[labelled.id] = labelled
    return Labels(tuple(turns.values()), hashlib.sha256(text.encode()).hexdigest()[:12])


def _labelled(line: _Line) -> Labelled:
    there = {memory.id for memory in line.memories}
    if unknown := {*line.returned, *line.right} - there:
        raise ValueError(f"{min(unknown)} is none of its memories")
    case = Case(
        user=line.user,
        reply=line.reply,
        searched=line.searched,
        context=[(said.user, said.reply) for said in line.context],
        memories=[Shown(memory.id, memory.at, memory.summary) for memory in line.memories],
        returned=frozenset(line.returned),
    )
    verdict = Verdict(line.needed, tuple(line.right))
    if line.right and not line.needed:
        raise ValueError("it names right memories, but needed none")
    if line.found is not verdict.found(case):
        raise ValueError(f"found is {json.dumps(line.found)}, which does not follow from searched, right and returned")
    return Labelled(line.id, case, verdict)
