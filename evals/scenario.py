"""Scenarios: a past and a scored conversation, one YAML file each. A fault names file, line and what is wrong."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from evals.yaml_lines import Path as Place
from evals.yaml_lines import YamlFault, load
from stackmem.answers import TYPES
from stackmem.clock import read_time
from stackmem.exceptions import InvalidInput, StackmemError
from stackmem.text import fold

PACE = timedelta(seconds=20)  # between turns that name no time of their own
LENGTHS = (10, 50)
FIRST_YEAR, LAST_YEAR = 1971, 9000  # the clock must have room on both sides
Tag = Literal["recall", "false_trigger", "ambiguous", "correction", "temporal", "abstain"]
TAGS: tuple[Tag, ...] = ("recall", "false_trigger", "ambiguous", "correction", "temporal", "abstain")
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Groups = list[Annotated[list[Words], Field(min_length=1)]]


class Part(BaseModel):
    """A mapping of a scenario file: no key that nothing reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PastTurn(Part):
    """A turn of the past. ``keep``: whether it should end up in a memory; None: either is fine."""

    id: Words
    user: Words
    assistant: Words
    at: str | None = None
    keep: StrictBool | None = None
    type: str | None = None
    replaces: list[Words] = []


class PastSession(Part):
    """An earlier session."""

    session: Words
    at: str
    turns: Annotated[list[PastTurn], Field(min_length=1)]


class Expect(Part):
    """What a turn is scored by; see ``evals.scoring`` for what each part means."""

    search: bool | Literal["either"] = "either"
    evidence: list[Words] = []
    stale: list[Words] = []
    answer: Groups = []
    forbid: list[Words] = []
    ask_back: StrictBool = False
    candidates: Groups = []

    @field_validator("search", mode="plain")
    @classmethod
    def _is_known(cls, value: Any) -> bool | Literal["either"]:
        if value is True or value is False or value == "either":
            return value  # type: ignore[no-any-return]
        raise PydanticCustomError("search", "it is true, false or either")


class Asked(Part):
    """A scored turn. ``assistant`` is the reference reply."""

    user: Words
    assistant: Words
    at: str | None = None
    expect: Expect = Expect()


class Conversation(Part):
    """The scored conversation."""

    session: Words
    at: str
    turns: list[Asked]


class Scenario(Part):
    """One scenario, as read from its file."""

    id: Words
    language: Literal["ja", "en"]
    title: Words
    tags: Annotated[list[Tag], Field(min_length=1)]
    history: list[PastSession] = []
    conversation: Conversation

    @property
    def past(self) -> list[PastTurn]:
        """All turns of the past, oldest first."""
        return [turn for session in self.history for turn in session.turns]


@dataclass(frozen=True)
class Fault:
    """What is wrong with a scenario, and where."""

    file: Path
    line: int
    reason: str

    def __str__(self) -> str:
        """Return it as compilers do."""
        return f"{self.file}:{self.line}: {self.reason}"


class ScenarioFaults(StackmemError):
    """A scenario cannot be used."""

    def __init__(self, faults: Sequence[Fault]):
        super().__init__("\n".join(map(str, faults)))
        self.faults = list(faults)


@dataclass(frozen=True)
class File:
    """A scenario with its file and, per scored turn, the mapping ``expect`` as it was written."""

    path: Path
    scenario: Scenario
    expects: list[dict[str, Any]]

    @property
    def turns(self) -> int:
        """How many turns are scored."""
        return len(self.expects)


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the scenario files that are meant: each file, and each ``*.yaml`` of a folder, once.

    Raises StackmemError for a path that is not there and for a folder without any.
    """
    found: dict[Path, None] = {}
    for path in paths:
        inside = sorted(path.glob("*.yaml")) if path.is_dir() else [path] if path.is_file() else []
        if not inside:
            raise StackmemError(f"{path} is no scenario file and no folder with *.yaml files in it.")
        found |= {file.resolve(): None for file in inside}
    return list(found)


def read(path: Path, zone: tzinfo) -> File:
    """Read one scenario. Raises ScenarioFaults with every fault found."""
    try:
        value, lines = load(path.read_text("utf-8"))
    except YamlFault as fault:
        raise ScenarioFaults([Fault(path, fault.line, f"{fault}.")]) from fault
    except UnicodeDecodeError as exc:
        raise ScenarioFaults([Fault(path, 1, "the file is not UTF-8.")]) from exc
    if not isinstance(value, dict):
        raise ScenarioFaults([Fault(path, 1, "the file holds no keys such as id, title and conversation.")])
    try:
        scenario = Scenario.model_validate(value)
    except ValidationError as exc:
        faults = [Fault(path, _line(lines, error["loc"]), _reason(error)) for error in exc.errors()]
        raise ScenarioFaults(sorted(set(faults), key=lambda fault: (fault.line, fault.reason))) from None
    wrong = [Fault(path, _line(lines, place), reason) for place, reason in _contradictions(scenario, path, zone)]
    if wrong:
        raise ScenarioFaults(sorted(wrong, key=lambda fault: fault.line))
    turns = value["conversation"]["turns"]
    return File(path, scenario, [turn.get("expect") or {} for turn in turns])


def times(session: PastSession | Conversation, zone: tzinfo) -> list[datetime]:
    """Return when each turn of a session is said: its own time, else 20 s after the one before.

    Raises InvalidInput for what is no time, or none that anybody lives in.
    """
    moments: list[datetime] = []
    for turn in session.turns:
        following = moments[-1] + PACE if moments else read_time(session.at, zone)
        moments.append(read_time(turn.at, zone) if turn.at else following)
        if not FIRST_YEAR <= moments[-1].year <= LAST_YEAR:
            raise InvalidInput(f"a turn is said between the years {FIRST_YEAR} and {LAST_YEAR}.")
    return moments


def matches(part: str, text: str) -> bool:
    """Tell whether a text holds a part: NFKC, case-folded, without white space."""
    return _squeezed(part) in _squeezed(text)


def says(groups: Sequence[Sequence[str]], reply: str) -> bool:
    """Tell whether a reply holds one of every group."""
    return all(any(matches(word, reply) for word in group) for group in groups)


def _squeezed(text: str) -> str:
    return "".join(fold(text).split())


def _line(lines: dict[Place, int], place: Sequence[Any]) -> int:
    """Return the line of a place, or of the nearest one around it: a key that is missing has none."""
    known = tuple(place)
    while known not in lines:
        known = known[:-1]
    return lines[known]


def _reason(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    what = error["msg"]
    if error["type"] == "extra_forbidden":
        is_indented = str(error["loc"][-1]).startswith("\u3000")
        what = "nothing reads this key" + (": it begins with a full-width blank" if is_indented else "")
    return f"{where}: {what}." if where else f"{what}."


Wrong = Iterator[tuple[Place, str]]


def _contradictions(scenario: Scenario, path: Path, zone: tzinfo) -> Wrong:
    """Yield what no single value shows: ids, times, numbers of turns, expectations that its own replies break."""
    if scenario.id != path.stem:
        yield ("id",), f"the file of {scenario.id!r} is {scenario.id}.yaml."
    if len(scenario.conversation.turns) not in LENGTHS:
        yield ("conversation", "turns"), f"a conversation has 10 or 50 turns, not {len(scenario.conversation.turns)}."
    yield from _wrong_past(scenario)
    yield from _wrong_times(scenario, zone)
    known = {turn.id for turn in scenario.past}
    for number, turn in enumerate(scenario.conversation.turns):
        place: Place = ("conversation", "turns", number)
        for part, reason in _wrong_expectation(turn.expect, known):
            yield (*place, "expect", part), reason
        for part, reason in _wrong_reference(turn):
            yield (*place, "expect", part), reason


def _wrong_past(scenario: Scenario) -> Wrong:
    seen: set[str] = set()
    names = [session.session for session in scenario.history]
    for s, session in enumerate(scenario.history):
        if session.session in (*names[:s], scenario.conversation.session):
            yield ("history", s, "session"), f"there are two sessions {session.session!r}."
        for t, turn in enumerate(session.turns):
            place: Place = ("history", s, "turns", t)
            if turn.id in seen:
                yield (*place, "id"), f"there are two turns {turn.id!r}."
            if turn.type is not None and turn.type not in TYPES:
                yield (*place, "type"), f"type is one of {', '.join(TYPES)}."
            for other in turn.replaces:
                if other not in seen:
                    yield (*place, "replaces"), f"no earlier turn is called {other!r}."
            seen.add(turn.id)


def _wrong_times(scenario: Scenario, zone: tzinfo) -> Wrong:
    last: datetime | None = None
    parts: list[tuple[Place, PastSession | Conversation]] = [
        *((("history", place), session) for place, session in enumerate(scenario.history)),
        (("conversation",), scenario.conversation),
    ]
    for place, session in parts:
        try:
            moments = times(session, zone)
        except InvalidInput as exc:
            yield (*place, "at"), str(exc)
            continue
        for number, moment in enumerate(moments):
            if last is not None and moment < last:
                yield (*place, "turns", number), "it is earlier than what stands before it."
            last = max(moment, last or moment)


def _wrong_expectation(expect: Expect, known: set[str]) -> Iterator[tuple[str, str]]:
    named = {"evidence": expect.evidence, "stale": expect.stale, "candidates": sum(expect.candidates, [])}
    for part, ids in named.items():
        for identity in ids:
            if identity not in known:
                yield part, f"no turn of the history is called {identity!r}."
    if expect.ask_back and len(expect.candidates) < 2:
        yield "ask_back", "what is asked back needs two or more candidates."
    if expect.search is False and (expect.evidence or expect.candidates):
        yield "search", "evidence of a turn that needs no search would never be looked for."
    if set(expect.stale) & set(expect.evidence):
        yield "stale", "a turn is evidence or stale, not both."


def _wrong_reference(turn: Asked) -> Iterator[tuple[str, str]]:
    if not says(turn.expect.answer, turn.assistant):
        yield "answer", "the reference reply itself does not match it."
    for word in turn.expect.forbid:
        if matches(word, turn.assistant):
            yield "forbid", f"the reference reply itself holds {word!r}."
