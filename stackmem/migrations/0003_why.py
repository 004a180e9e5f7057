"""What a tool call looked for and gave the model, and turns that a chat service refuses to read."""

from typing import Any

from peewee import SqliteDatabase

COLUMNS = (
    ("turn", "withheld", "BOOLEAN NOT NULL DEFAULT FALSE"),
    ("tool_trace", "looked_for", "{json}"),
    ("tool_trace", "result", "{json}"),
)


def up(migrator: Any, db: Any) -> None:
    """Add columns; nothing that is there changes."""
    json = "TEXT" if isinstance(db, SqliteDatabase) else "JSON"
    for table, column, kind in COLUMNS:
        db.execute_sql(f'ALTER TABLE "{table}" ADD COLUMN "{column}" {kind.format(json=json)}')
