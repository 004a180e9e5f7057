"""Many turns at once, in few statements: an import holds the write lock, and a live turn waits for it."""

from collections.abc import Sequence
from typing import Any

from stackmem.models import Session, Turn

READ = 500  # values in one query
INSERTED = 100  # rows in one statement


def turns_by_uid(uids: Sequence[str]) -> dict[str, Turn]:
    """Return the stored turns of these uids with their sessions, whoever owns them."""
    found: dict[str, Turn] = {}
    for start in range(0, len(uids), READ):
        rows = Turn.select(Turn, Session).join(Session).where(Turn.uid.in_(uids[start : start + READ]))
        found |= {row.uid: row for row in rows}
    return found


def insert_turns(rows: Sequence[dict[str, Any]]) -> None:
    """Insert turns in this order; all rows have the same columns."""
    for start in range(0, len(rows), INSERTED):
        Turn.insert_many(rows[start : start + INSERTED]).execute()
