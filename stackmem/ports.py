"""What stackmem asks of the outside, in its own words. At most four methods a port.

Adapters translate their SDK's errors into ``TransientError`` (may work later) and ``PermanentError`` (will not).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stackmem.sound import Sound

Vector = NDArray[np.float32]
Purpose = Literal["turn", "plain", "remember", "compare", "judge"]  # plain: somebody else's request, passed on


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """Return the present as an aware UTC datetime."""
        ...


# --- chat ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolCall:
    """One call the model asked for. ``arguments`` is None where they could not be read even after repair."""

    id: str
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True)
class ChatRequest:
    """One request to a chat model. ``messages`` and ``tools`` have the shapes of OpenAI's chat completions."""

    messages: Sequence[dict[str, Any]]
    purpose: Purpose
    timeout_s: float
    tools: Sequence[dict[str, Any]] = ()
    json_schema: dict[str, Any] | None = None  # the shape wanted of the answer; never together with tools
    max_tokens: int | None = None


@dataclass(frozen=True)
class ChatAnswer:
    """One answer. ``content`` is never None and never holds thinking; token counts are 0 where the server is silent."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ChatModel(Protocol):
    """A chat model. ``name`` is what a reply calls it: the model's id, or ``offline``."""

    name: str

    def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the model's answer.

        Raises TransientError (unreachable, slow, over its rate) or PermanentError (refused: key, balance, model id).
        """
        ...

    def stream(self, request: ChatRequest) -> Iterator[str | ChatAnswer]:
        """Yield the content in pieces as they come (none at all is fine), then the whole answer, which is the last.

        A piece is any number of whole characters as the model wrote them: JSON, thinking and calls in words included.
        No piece comes after a tool call has begun. Raises what ``complete`` raises, also after some pieces; closing
        the iterator gives the call up.
        """
        ...


# --- speech ----------------------------------------------------------------------------------------------------------


class Transcriber(Protocol):
    """Hears: sound in, words out."""

    def transcribe(self, sound: Sound, timeout_s: float) -> str:
        """Return the words heard, "" where nothing was said. Raises TransientError or PermanentError."""
        ...


class Speaker(Protocol):
    """Speaks: words in, sound out. ``voice`` changes with whatever the sound depends on beside the words."""

    voice: str  # letters and digits

    def speak(self, text: str, timeout_s: float) -> Sound:
        """Return the text spoken, at whatever rate. Raises TransientError or PermanentError."""
        ...


# --- embedding and index ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fingerprint:
    """What a vector depends on besides its text. Vectors of different fingerprints are never compared."""

    name: str
    dim: int
    instruction: str = ""
    precision: str = ""
    nested: bool = field(default=False, compare=False)  # the first n numbers, as a unit vector, are that of n (MRL)

    def __str__(self) -> str:
        """Return the form stored beside every vector and in the name of an index generation."""
        precision = f"-{self.precision}" if self.precision else ""
        suffix = "-" + hashlib.sha256(self.instruction.encode()).hexdigest()[:8] if self.instruction else ""
        return f"{self.name}-{self.dim}{precision}{suffix}"


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    fingerprint: Fingerprint
    floor: float  # a similarity below this is noise; 0.0 where this embedder has no usable floor
    tie_margin: float  # similarities that differ by no more say nothing about which of two is nearer

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim), float32. Raises TransientError where a service is down."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim), float32. Raises TransientError where a service is down."""
        ...

    def ready(self) -> bool:
        """Tell whether the model is loaded; loading happens at the first embedding, or by ``load``."""
        ...

    def load(self) -> None:
        """Load the model now (seconds)."""
        ...


@dataclass(frozen=True)
class IndexPoint:
    """One memory as indexed: ``summary`` of shape (dim,), ``sources`` of shape (n, dim) with n >= 0.

    ``payload`` holds owner, status, memory_type, entity_keys (list) and, as ISO 8601 strings in UTC, occurred_at,
    occurred_from, occurred_to and said_at.
    """

    memory_id: str
    summary: Vector
    sources: Vector
    payload: dict[str, Any]


@dataclass(frozen=True)
class IndexFilter:
    """Which points count: of this owner, and, where given, of this status, type, any of these keys, in this time.

    A point is in the time range when occurred_from..occurred_to overlaps [since, until], or said_at lies in it.
    """

    owner: str
    status: str | None = "active"
    memory_type: str | None = None
    entity_keys: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class CommonPart:
    """What an owner's memories have in common: the mean of their summary and of their source vectors, each (dim,)."""

    summary: Vector
    sources: Vector


class IndexHit(NamedTuple):  # hundreds a search: three times as quick to make as a frozen dataclass
    """One hit: cosine similarity of the summary, and of the nearest source window (None where it has none).

    ``summary_apart`` and ``source_apart`` are the same of what is left of the query without a common part; None where
    none was given.
    """

    memory_id: str
    summary_score: float
    source_score: float | None
    summary_apart: float | None = None
    source_apart: float | None = None


class VectorIndex(Protocol):
    """One generation of the index: one point a memory, all of one fingerprint. Safe to call from several threads."""

    def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Write or replace points; durable on return, in a generation begun at its swap.

        Raises PermanentError on a wrong dimension.
        """
        ...

    def delete(self, memory_ids: Sequence[str]) -> None:
        """Remove points; unknown ids are ignored; durable on return."""
        ...

    def search(self, query: Vector, where: IndexFilter, limit: int, common: CommonPart | None = None) -> list[IndexHit]:
        """Return the best ``limit`` points by summary and the best ``limit`` by sources, each with both scores.

        At most 2 x limit hits, each memory once, in no promised order. ``query`` has shape (dim,). With ``common`` the
        best are those nearest to the query less that part.
        """
        ...

    def scan(self, owner: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (memory_id, payload) of every point, of one owner where given, in order of id."""
        ...


class IndexStore(Protocol):
    """The place where generations of the index live. One process owns it; search never stops while one is rebuilt."""

    kind: str  # "edge", "local" or "server"

    def open(self, fingerprint: Fingerprint) -> VectorIndex | None:
        """Return the current generation, or None where there is none that can be opened with this fingerprint."""
        ...

    def begin(self, fingerprint: Fingerprint) -> VectorIndex:
        """Return a new, empty generation beside the current one; an orphan of an earlier try is removed."""
        ...

    def swap(self) -> VectorIndex:
        """Make the generation begun last the current one, durably, and return it; the old one is dropped."""
        ...

    def close(self) -> None:
        """Flush, close every handle and give up the lock."""
        ...


# --- background ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hint:
    """A piece of work that may be waiting: the task's name and the id it takes."""

    task: Literal["remember", "index", "compare", "reindex"]
    id: int | str


class Queue(Protocol):
    """Hands hints to the workers. A hint may be lost: the database knows what is waiting."""

    def put(self, hint: Hint) -> None:
        """Hand over one hint; never raises and never waits more than milliseconds."""
        ...


# --- watching --------------------------------------------------------------------------------------------------------


class Meter(Protocol):
    """Takes what happened and how long it took. Labels are words of ours, never an owner's; nothing is ever raised."""

    def turn(self, durations_ms: Mapping[str, float], *, degraded: bool) -> None:
        """Take one answered turn: milliseconds by part, ``total`` among them; degraded: by a fallback line."""
        ...

    def spent(self, kind: Literal["tool", "part"], name: str, duration_ms: float) -> None:
        """Take one tool call, or a part of a turn that ended after it (``tts``, ``first_sound``)."""
        ...

    def model_call(self, purpose: Purpose, duration_ms: float, answer: ChatAnswer | None) -> None:
        """Take one call of a model; ``answer`` is None where it failed."""
        ...

    def error(self, where: str, kind: str) -> None:
        """Take one error: where (``http``, ``model``, ``task``, ``queue``), and the name of its type."""
        ...
