"""Two peewee fields: a time that is always aware and UTC, and JSON that keeps Japanese readable."""

import json
from datetime import UTC, datetime
from functools import partial
from typing import Any

from peewee import Field, JSONField


class UTCField(Field):
    """An aware datetime; ISO 8601 text of fixed width in SQLite (so it sorts), timestamptz in PostgreSQL."""

    field_type = "TIMESTAMPTZ"

    def db_value(self, value: datetime | None) -> str | None:
        """Return UTC with microseconds. Raises ValueError for a naive time."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive time reached the database")
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def python_value(self, value: Any) -> datetime | None:
        """Return an aware UTC datetime."""
        if value is None:
            return None
        when = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return when if when.tzinfo is UTC else when.astimezone(UTC)


# Unescaped: half the size, and a search for forgotten words finds them.
json_text = partial(json.dumps, ensure_ascii=False)
ReadableJSONField = partial(JSONField, dumps=json_text)
