"""What people say of live turns; and the turns that searched are found without reading all others."""

from typing import Any

from peewee import AutoField, BooleanField, ForeignKeyField, Model, TextField

from stackmem.fields import ReadableJSONField, UTCField


def up(migrator: Any, db: Any) -> None:
    """Add a table and an index; nothing that is there changes."""

    class Row(Model):
        class Meta:
            database = db
            legacy_table_names = False

    class Turn(Row):
        id = AutoField()
        owner = TextField()
        searched = BooleanField()

    class Mark(Row):
        turn = ForeignKeyField(Turn, primary_key=True, on_delete="CASCADE")
        owner = TextField(index=True)
        kind = TextField()
        right_ids = ReadableJSONField(default=list)
        created_at = UTCField()

    db.create_tables([Mark])
    db.execute(Turn.index(Turn.owner, Turn.id, where=Turn.searched, name="turn_searched"))
