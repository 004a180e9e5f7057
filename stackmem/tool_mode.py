"""How the model is asked to say that it wants to search: by a tool call, or inside its JSON answer."""

import re
from typing import Literal

ToolMode = Literal["native", "json"]
Setting = Literal["native", "json", "auto"]

STRIKES = 2  # answers that say "I do not remember" without having searched
_UNSEARCHED = re.compile(
    r"覚えて(?:い|おら)?(?:な|ま)|おぼえて(?:い)?な|記憶(?:に|が|は)(?:あり|な)|思い出せ(?:な|ま)|聞いて(?:い)?な(?:い|か)"
    r"|\b(?:don't|do not|can't|cannot) (?:remember|recall)\b|\bno (?:memory|record) of\b",
    re.IGNORECASE,
)


class ToolUse:
    """The mode of one chat model. ``auto`` is native until the model's own answers show that it cannot."""

    def __init__(self, setting: Setting):
        self._auto = setting == "auto"
        self.mode: ToolMode = "json" if setting == "json" else "native"
        self._strikes = 0

    def refused(self) -> bool:
        """Note that the server refuses requests with tools; tell whether the other way may be tried."""
        changed = self._auto and self.mode == "native"
        if changed:
            self.mode = "json"
        return changed

    def answered(self, reply: str, *, called: bool) -> None:
        """Note a native answer: a call proves that the model can; not to remember without a search speaks against it.

        After a first call it stays native for good: then such an answer is the model's choice.
        """
        if called:
            self._auto = False
        elif self._auto and _UNSEARCHED.search(reply):
            self._strikes += 1
            if self._strikes >= STRIKES:
                self.mode = "json"
