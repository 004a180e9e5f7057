"""Forgetting, forget requests, spellings and aliases of names, and where a bad look ends."""

from typing import Any

from peewee import SQL, AutoField, BooleanField, IntegerField, Model, SqliteDatabase, TextField

from stackmem.fields import ReadableJSONField, UTCField

COLUMNS = (
    ("session", "attempts_to", "INTEGER"),
    ("session", "open_topic", "{json}"),
    ("turn", "settled", "BOOLEAN NOT NULL DEFAULT FALSE"),
    ("memory", "forgotten_at", "{time}"),
    ("memory", "purge_at", "{time}"),
    ("memory", "purge_turns", "BOOLEAN NOT NULL DEFAULT FALSE"),
    ("memory", "status_before", "TEXT"),
    ("memory", "handed_on", "TEXT NOT NULL DEFAULT ''"),
    ("memory_entity", "name", "TEXT NOT NULL DEFAULT ''"),
    ("memory_entity", "said", "INTEGER NOT NULL DEFAULT 0"),
)
_POSTGRES = {"time": "TIMESTAMPTZ", "json": "JSON"}


def up(migrator: Any, db: Any) -> None:
    """Add columns and two tables; nothing that is there changes."""
    never_reused: Any = [SQL("AUTOINCREMENT")] if isinstance(db, SqliteDatabase) else []
    kinds = {"time": "TEXT", "json": "TEXT"} if isinstance(db, SqliteDatabase) else _POSTGRES
    for table, column, kind in COLUMNS:
        db.execute_sql(f'ALTER TABLE "{table}" ADD COLUMN "{column}" {kind.format(**kinds)}')

    class Row(Model):
        class Meta:
            database = db
            legacy_table_names = False

    class Alias(Row):
        id = AutoField(constraints=never_reused)
        owner = TextField()
        key = TextField()
        other_key = TextField()
        name = TextField()
        other_name = TextField()
        turn = IntegerField(null=True)
        created_at = UTCField()

        class Meta:
            indexes = ((("owner", "key", "other_key"), True),)

    class ForgetRequest(Row):
        id = AutoField(constraints=never_reused)
        owner = TextField(index=True)
        turn = IntegerField(unique=True)
        what = TextField(default="")
        is_open = BooleanField(default=True)
        created_at = UTCField()

    class Memory(Row):
        id = TextField(primary_key=True)
        entities = ReadableJSONField()
        entity_keys = ReadableJSONField()

    class MemoryEntity(Row):
        memory_id = TextField()
        key = TextField()
        name = TextField()

        class Meta:
            primary_key = False

    db.create_tables([Alias, ForgetRequest])
    MemoryEntity.update(name=MemoryEntity.key).execute()
    for memory in Memory.select():  # shown as its memory spells it
        for key, name in zip(memory.entity_keys, memory.entities, strict=False):
            MemoryEntity.update(name=name).where(MemoryEntity.memory_id == memory.id, MemoryEntity.key == key).execute()
