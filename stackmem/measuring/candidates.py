"""Which embedders are measured: those that are installed, with weights at hand, or set."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stackmem.config import Settings
from stackmem.extras import install, missing

EMBEDDERS = ("use", "e5", "qwen3", "openai")
DIMS = (1024, 512, 256, 128, 64)  # of embedders whose vectors may be cut (MRL)
PRECISIONS = ("fp32", "bf16", "int8")  # the reference first
REFERENCE = PRECISIONS[0]
# Peak while loading, by the size of the weights on disk (bf16), measured on Qwen3-Embedding-0.6B.
PEAK_OF_WEIGHTS = {"fp32": 3.4, "bf16": 1.6, "int8": 2.0}


@dataclass(frozen=True)
class Candidate:
    """One embedder in one precision: what of the settings it changes, and whether its vectors may be cut."""

    embedder: str
    precision: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    cuttable: bool = False
    why_not: str = ""  # a sentence, where it cannot be measured
    needs_mb: float = 0.0  # while it loads, estimated; 0: little

    @property
    def name(self) -> str:
        """The name as shown."""
        return f"{self.embedder} {self.precision}".strip()


def candidates(settings: Settings, wanted: Collection[str] = ()) -> Iterator[Candidate]:
    """Yield what can be measured here; ``wanted`` restricts it to these embedders, and then says what is missing."""
    for embedder in EMBEDDERS:
        if wanted and embedder not in wanted:
            continue
        asked_for = embedder in wanted or settings.embedder == embedder
        if packages := missing(embedder):
            if asked_for:
                why_not = f"It needs {', '.join(packages)}: {install(embedder)}."
                yield Candidate(embedder, why_not=why_not)
        elif embedder == "qwen3":
            yield from _qwen3(settings)
        elif embedder == "openai":
            if asked_for:  # its address, model and dimension are settings
                yield Candidate(embedder, changes={"embedder": embedder})
        else:
            yield Candidate(embedder, changes={"embedder": embedder, "embedding_dim": None})


def _qwen3(settings: Settings) -> Iterator[Candidate]:
    from stackmem.adapters.qwen3_files import DEFAULT_MODEL, size_at_hand

    # With openai set, the same setting holds the name of a server's model.
    model = settings.embedding_model if settings.embedder != "openai" else ""
    size_mb = size_at_hand(model or DEFAULT_MODEL) / 1e6
    if not size_mb:
        yield Candidate(
            "qwen3",
            why_not=f"The weights of {model or DEFAULT_MODEL} are not here: start stackmem once with "
            "STACKMEM_EMBEDDER=qwen3, which fetches them, or set STACKMEM_EMBEDDING_MODEL to their folder.",
        )
        return
    for precision in PRECISIONS:
        changes = {
            "embedder": "qwen3",
            "embedding_model": model,
            "embedding_dim": None,
            "qwen3_precision": precision,
        }
        yield Candidate("qwen3", precision, changes, cuttable=True, needs_mb=size_mb * PEAK_OF_WEIGHTS[precision])


def dims_of(candidate: Candidate, width: int, wanted: Sequence[int]) -> list[int]:
    """Return the dimensions to judge vectors of this width in, widest first; those too wide are left out."""
    if not candidate.cuttable:
        return [width]
    return sorted({dim for dim in wanted if dim <= width}, reverse=True) or [width]
