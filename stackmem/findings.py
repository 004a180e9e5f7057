"""What a check of `stackmem doctor` finds; other packages add checks by the entry-point group ``stackmem.checks``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from stackmem.bootstrap import Runtime

State = Literal["ok", "note", "failed"]


@dataclass(frozen=True)
class Finding:
    """What a check found: ``ok``, ``note`` (works, but somebody should know) or ``failed``; one sentence."""

    state: State
    sentence: str


Check = Callable[["Runtime"], Finding]
