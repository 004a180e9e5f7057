"""What this process did, for Prometheus: https://prometheus.io/docs/concepts/metric_types/."""

from collections.abc import Mapping
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics

from stackmem.ports import ChatAnswer, Purpose

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series a counter, of no use to anybody here

TOOLS = ("search_memory", "read_memory_source")
_WHOLE = (0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 12, 20, 60, 120)  # seconds
_PARTS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10)  # seconds


class PrometheusMeter:
    """A meter over a registry of its own, so that each app, also one of several in a test, counts for itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._turns = Histogram(
            "stackmem_turn_seconds", "Live turns of this process, arrival to answer.", registry=self.registry,
            buckets=_WHOLE,
        )  # fmt: skip
        self._degraded = Counter(
            "stackmem_degraded_turns", "Live turns answered by a fallback line.", registry=self.registry
        )
        self._parts = Histogram(
            "stackmem_turn_part_seconds", "Parts of live turns: model, tools, embed, search; asr, tts, first_sound.",
            ["part"], registry=self.registry, buckets=_PARTS,
        )  # fmt: skip
        self._tools = Histogram(
            "stackmem_tool_seconds", "Tool calls of live turns.", ["tool"], registry=self.registry, buckets=_PARTS
        )
        self._calls = Histogram(
            "stackmem_model_seconds", "Calls of the models: turn, remember, compare, judge.", ["purpose", "outcome"],
            registry=self.registry, buckets=_WHOLE,
        )  # fmt: skip
        self._tokens = Counter(
            "stackmem_model_tokens", "Tokens as the models' servers counted them.", ["purpose", "kind"],
            registry=self.registry,
        )  # fmt: skip
        self._errors = Counter(
            "stackmem_errors", "Errors, by where they came up and their type.", ["where", "kind"],
            registry=self.registry,
        )  # fmt: skip

    def turn(self, durations_ms: Mapping[str, float], *, degraded: bool) -> None:
        """Count a turn and its parts."""
        self._turns.observe(durations_ms.get("total", 0.0) / 1000)
        if degraded:
            self._degraded.inc()
        for part, spent in durations_ms.items():
            if part != "total":
                self._parts.labels(part).observe(spent / 1000)

    def spent(self, kind: Literal["tool", "part"], name: str, duration_ms: float) -> None:
        """Count a tool call (a name that is none of ours as ``unknown``), or a part of a turn."""
        if kind == "tool":
            self._tools.labels(name if name in TOOLS else "unknown").observe(duration_ms / 1000)
        else:
            self._parts.labels(name).observe(duration_ms / 1000)

    def model_call(self, purpose: Purpose, duration_ms: float, answer: ChatAnswer | None) -> None:
        """Count a model call and its tokens."""
        self._calls.labels(purpose, "failed" if answer is None else "answered").observe(duration_ms / 1000)
        if answer is not None:
            self._tokens.labels(purpose, "prompt").inc(answer.prompt_tokens)
            self._tokens.labels(purpose, "completion").inc(answer.completion_tokens)

    def error(self, where: str, kind: str) -> None:
        """Count an error."""
        self._errors.labels(where, kind).inc()
