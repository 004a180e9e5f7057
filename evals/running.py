"""Run one scenario: the past through the real remembering, the conversation through the real live turn."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from evals import baselines
from evals.ask_back import asks_back
from evals.judge.asking_back import AskBackJudge
from evals.scenario import Asked, File, Scenario, times
from evals.scoring import Answered, Verdicts, capture_recall, noise_rate, score_turn
from evals.stage import Hints, SetClock, Stage, opened, own_folder, use_memory_model
from stackmem.config import OFFLINE
from stackmem.converse import Said
from stackmem.exceptions import ContentRefused, PermanentError, StackmemError, TransientError
from stackmem.models import Memory, MemorySource, ToolTrace, Turn
from stackmem.ports import ChatAnswer, ChatModel, ChatRequest
from stackmem.recall import ToolResult
from stackmem.text import estimate_tokens

OWNER = "home"
SILENT = 3  # turns or calls in a row without an answer: then the model is down
Mode = Literal["free", "forced"]
Tell = Callable[[int], None]


@dataclass(frozen=True)
class Options:
    """How scenarios are run. ``baselines``: also ask what the simple rules would do."""

    mode: Mode = "free"
    baselines: bool = True
    settings: Mapping[str, Any] | None = None  # over those of the environment


class Unanswered(StackmemError):
    """The model did not answer: without it there is nothing to score."""


class Counted:
    """A model in the background that counts its calls and tokens. It may fail twice in a row, not ever again."""

    def __init__(self, inner: ChatModel):
        self.name, self._inner = inner.name, inner
        self.calls = self.tokens = self._failures = 0

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the model's answer. Raises what it raises, and Unanswered at the third failure in a row."""
        self.calls += 1
        try:
            answer = self._inner.complete(request)
        except ContentRefused:
            raise  # that is an answer
        except (TransientError, PermanentError) as exc:
            self._failures += 1
            if self._failures < SILENT:
                raise
            # Weeks of the script's time are weeks of retries.
            raise Unanswered(f"The model that makes memories did not answer: {exc}") from exc
        self._failures = 0
        if self.name == OFFLINE:
            return answer
        written = sum(estimate_tokens(str(message["content"])) for message in request.messages)
        self.tokens += answer.prompt_tokens or written
        self.tokens += answer.completion_tokens or estimate_tokens(answer.content)
        return answer

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield the whole answer: nobody listens."""
        yield self.complete(request)


def run_scenario(file: File, options: Options, judge: AskBackJudge | None, tell: Tell) -> dict[str, Any]:
    """Return everything seen in one scenario, as JSON; ``tell`` hears how many turns are done.

    Raises what the parts raise, and Unanswered where the model left three turns or calls in a row without an answer:
    scores of turns that no model answered are no scores of the model.
    """
    scenario, queue = file.scenario, Hints()
    with own_folder() as home:
        clock = SetClock(datetime(1970, 1, 1, tzinfo=UTC))
        with opened(home, clock, queue, **dict(options.settings or {})) as runtime:
            background = Counted(runtime.work.remembering.model)
            use_memory_model(runtime, background)
            stage = Stage(runtime, clock, queue, OWNER)
            names = say_past(scenario, stage)
            made = memories_of(names)
            turns = list(Talk(file, options, judge, stage, names).run(tell))
            spent = {"calls": background.calls, "tokens": background.tokens}
    capture, noise = capture_recall(scenario.past, made), noise_rate(scenario.past, made)
    return {
        "id": scenario.id,
        "language": scenario.language,
        "title": scenario.title,
        "tags": list(scenario.tags),
        "capture": capture.as_json(),
        "noise": noise.as_json(),
        "memories": made,
        "background": spent,
        "turns": turns,
    }


def say_past(scenario: Scenario, stage: Stage) -> dict[int, str]:
    """Live through the history until nothing waits; return the stored turns' ids with their names in the file."""
    names: dict[int, str] = {}
    zone = stage.runtime.settings.zone
    for session in scenario.history:
        for turn, moment in zip(session.turns, times(session, zone), strict=True):
            names[stage.past_turn(session.session, turn.user, turn.assistant, moment, moment).id] = turn.id
        stage.close(session.session)
    stage.pass_until(times(scenario.conversation, zone)[0])
    return names


def memories_of(names: Mapping[int, str]) -> list[list[str]]:
    """Return the history turns of every memory that was made, corrected ones too."""
    sources: dict[str, list[str]] = {row.id: [] for row in Memory.select(Memory.id).order_by(Memory.id)}
    for source in MemorySource.select().order_by(MemorySource.turn):
        if source.turn_id in names:
            sources[source.memory_id].append(names[source.turn_id])
    return list(sources.values())


@dataclass(frozen=True)
class Talk:
    """The scored conversation of one scenario."""

    file: File
    options: Options
    judge: AskBackJudge | None
    stage: Stage
    names: Mapping[int, str]

    def run(self, tell: Tell) -> Iterator[dict[str, Any]]:
        """Say turn by turn, as the robot would hear it, and yield what became of each."""
        conversation = self.file.scenario.conversation
        moments, silent = times(conversation, self.stage.runtime.settings.zone), 0
        for index, (asked, moment) in enumerate(zip(conversation.turns, moments, strict=True)):
            shown = self._say(index, asked, moment)
            silent = silent + 1 if shown["degraded"] else 0
            if silent == SILENT:
                raise Unanswered(f"The model left turns {index - SILENT + 2} to {index + 1} without an answer.")
            yield shown
            tell(index + 1)

    def _say(self, index: int, asked: Asked, moment: datetime) -> dict[str, Any]:
        stage = self.stage
        stage.pass_until(moment)
        stage.clock.move_to(moment)
        started = time.perf_counter()
        turn = stage.runtime.conversation.turn(Said(OWNER, asked.user, self.file.scenario.conversation.session))
        milliseconds = (time.perf_counter() - started) * 1000
        shown = self._scored(asked, turn) | {"index": index, "duration_ms": round(milliseconds, 1)}
        shown["expect"] = self.file.expects[index]
        if self.options.baselines:
            shown["baselines"] = self._baselines(asked, turn)
        if self.options.mode == "forced":
            # What the session's history holds from now on is the reference reply.
            Turn.update(reply=asked.assistant).where(Turn.id == turn.id).execute()
        stage.work()
        return shown

    def _scored(self, asked: Asked, turn: Turn) -> dict[str, Any]:
        calls = list(ToolTrace.select().where(ToolTrace.turn == turn).order_by(ToolTrace.ordinal))
        returned = [hit["source_turn_ids"] for call in calls for hit in call.hits if hit["memory_id"]]
        by_rules, by_judge = self._asks_back(asked, turn.reply)
        answered = Answered(turn.searched, self._named(returned), turn.reply, by_rules)
        verdicts = score_turn(asked.expect, answered)
        return {
            "turn_id": turn.id,
            "user": turn.user,
            "reply": turn.reply,
            "reference": asked.assistant,
            "searched": turn.searched,
            "found": verdicts.found,
            "verdicts": verdict_shape(verdicts),
            "ask_back_judge": by_judge,
            "degraded": turn.degraded,
            "model_calls": turn.model_calls,
            "tokens": turn.tokens,
            "durations_ms": turn.durations_ms,
            "calls": [self._call(call) for call in calls],
        }

    def _call(self, call: ToolTrace) -> dict[str, Any]:
        found = {hit["memory_id"] for hit in call.hits if hit["memory_id"]}
        summaries = {row.id: row.summary for row in Memory.select().where(Memory.id.in_(list(found)))}
        hits = [
            {
                "memory_id": hit["memory_id"],
                "summary": summaries.get(hit["memory_id"], ""),
                "score": hit["retrieval_score"],
                "turns": self._named([hit["source_turn_ids"]])[0],
            }
            for hit in call.hits
        ]
        return {"tool": call.tool, "arguments": call.arguments, "hits": hits, "note": call.note}

    def _named(self, returned: Sequence[Sequence[int]]) -> list[list[str]]:
        """Return turns by their names in the file; what was said in the conversation itself has none."""
        return [[self.names[turn] for turn in turns if turn in self.names] for turns in returned]

    def _asks_back(self, asked: Asked, reply: str) -> tuple[bool | None, bool | None]:
        if not asked.expect.ask_back:
            return None, None
        words = {turn.id: f"{turn.user} {turn.assistant}" for turn in self.file.scenario.past}
        meant = [" ".join(words[identity] for identity in group) for group in asked.expect.candidates]
        return asks_back(reply, meant), self.judge.asks_back(asked.user, reply, meant) if self.judge else None

    def _baselines(self, asked: Asked, turn: Turn) -> dict[str, Any]:
        said = baselines.answers(turn, self.stage.runtime.conversation.thinker)
        return {name: self._baseline(asked, results, reply) for name, (results, reply) in said.items()}

    def _baseline(self, asked: Asked, results: Sequence[ToolResult], reply: str | None) -> dict[str, Any]:
        returned = [hit["source_turn_ids"] for result in results for hit in result.hits if hit["memory_id"]]
        by_rules = self._asks_back(asked, reply)[0] if reply is not None else None
        verdicts = score_turn(asked.expect, Answered(bool(results), self._named(returned), reply, by_rules))
        return {"searched": bool(results), "found": verdicts.found, "verdicts": verdict_shape(verdicts)}


def verdict_shape(verdicts: Verdicts) -> dict[str, Any]:
    """Return the verdicts that count, as JSON: those that are None are in no denominator and left out."""
    return {name: value for name, value in asdict(verdicts).items() if name != "found" and value is not None}


def read_verdicts(turn: Mapping[str, Any]) -> Verdicts:
    """Return the verdicts of a turn (or of a baseline's turn) as written by ``verdict_shape``."""
    given = turn["verdicts"]
    names = ("false_trigger", "miss", "missed", "ask_back", "correction", "answer")
    return Verdicts(found=turn["found"], **{name: given.get(name) for name in names})
