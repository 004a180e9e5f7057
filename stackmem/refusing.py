"""What an import leaves out for a reason of the store's: one sentence a kind, with a count and the first line."""

from typing import Any

_OTHERS = "to another owner of this store: an export can be taken back under its own owner, or into another home folder"

# One of it, and several.
REASONS = {
    "foreign turn": (f"1 turn belongs {_OTHERS}.", f"{{}} turns belong {_OTHERS}."),
    "foreign memory": (f"1 memory belongs {_OTHERS}.", f"{{}} memories belong {_OTHERS}."),
    "forgotten memory": (
        "1 memory was forgotten here and is not brought back.",
        "{} memories were forgotten here and are not brought back.",
    ),
    "forgotten alias": (
        "1 alias was forgotten here and is not brought back.",
        "{} aliases were forgotten here and are not brought back.",
    ),
    "forgotten request": (
        "1 request to forget is done with here and is not brought back.",
        "{} requests to forget are done with here and are not brought back.",
    ),
    "alias without its turn": (
        "1 alias was stated in a turn that is not here.",
        "{} aliases were stated in turns that are not here.",
    ),
    "request without its turn": (
        "1 request to forget was made in a turn that is not here.",
        "{} requests to forget were made in turns that are not here.",
    ),
}


class Refused:
    """Counts what was left out."""

    def __init__(self) -> None:
        self._lines: dict[str, list[int]] = {}

    def add(self, kind: str, line: int) -> None:
        """Count one more of a kind of ``REASONS``, on this line."""
        self._lines.setdefault(kind, []).append(line)

    def faults(self) -> list[dict[str, Any]]:
        """Return one fault a kind, with the number of the first line."""
        return [
            {"line": min(lines), "reason": REASONS[kind][len(lines) > 1].format(len(lines))}
            for kind, lines in self._lines.items()
        ]
