"""Turns that a robot polls for."""

from typing import Any

from peewee import SQL, AutoField, IntegerField, Model, SqliteDatabase, TextField

from stackmem.fields import UTCField


def up(migrator: Any, db: Any) -> None:
    """Add a table; nothing that is there changes."""
    never_reused: Any = [SQL("AUTOINCREMENT")] if isinstance(db, SqliteDatabase) else []

    class TurnJob(Model):
        id = AutoField(constraints=never_reused)
        owner = TextField()
        turn = IntegerField(null=True)
        key = TextField(null=True, unique=True)
        state = TextField(default="waiting")
        message = TextField(default="")
        created_at = UTCField()
        finished_at = UTCField(null=True)

        class Meta:
            database = db
            legacy_table_names = False

    db.create_tables([TurnJob])
