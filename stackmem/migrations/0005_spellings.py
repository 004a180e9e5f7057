"""The spellings of a name are read from an index alone: a name may stand in thousands of memories."""

from typing import Any

from peewee import SQL, IntegerField, Model, TextField


def up(migrator: Any, db: Any) -> None:
    """Replace an index; no row changes."""

    class MemoryEntity(Model):
        owner = TextField()
        key = TextField()
        name = TextField()
        said = IntegerField()

        class Meta:
            database = db
            legacy_table_names = False
            primary_key = False

    db.execute(MemoryEntity.index(MemoryEntity.owner, MemoryEntity.key, MemoryEntity.name, MemoryEntity.said))
    db.execute(SQL('DROP INDEX IF EXISTS "memory_entity_owner_key"'))
