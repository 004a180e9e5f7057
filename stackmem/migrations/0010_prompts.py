"""Which prompts and persona a turn was answered with: the charts of the scores show where they changed."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    """Add a column; of the turns before it stays empty."""
    db.execute_sql('ALTER TABLE "turn" ADD COLUMN "prompts" TEXT')
