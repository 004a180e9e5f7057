"""What the judge said of live turns, windows of it, its calls a day, and what it is worth."""

from typing import Any

from peewee import AutoField, BooleanField, CompositeKey, ForeignKeyField, IntegerField, Model, TextField

from stackmem.fields import ReadableJSONField, UTCField


def up(migrator: Any, db: Any) -> None:
    """Add four tables; nothing that is there changes."""

    class Row(Model):
        class Meta:
            database = db
            legacy_table_names = False

    class Turn(Row):
        id = AutoField()

    class Label(Row):
        turn = ForeignKeyField(Turn, primary_key=True, on_delete="CASCADE")
        owner = TextField()
        state = TextField()
        attempts = IntegerField(default=0)
        retry_at = UTCField(null=True)
        needed = BooleanField(null=True)
        found = BooleanField(null=True)
        searched = BooleanField(default=False)
        right_ids = ReadableJSONField(default=list)
        shown_ids = ReadableJSONField(default=list)
        reason = TextField(default="")
        judge = TextField()
        prompt_version = TextField()
        created_at = UTCField()

        class Meta:
            indexes = ((("owner", "state"), False),)

    class Score(Row):
        id = AutoField()
        owner = TextField()
        judge = TextField()
        prompt_version = TextField()
        size = IntegerField()
        ordinal = IntegerField()
        first_turn = IntegerField()
        last_turn = IntegerField()
        from_at = UTCField()
        to_at = UTCField()
        needless = IntegerField()
        false_triggers = IntegerField()
        findable = IntegerField()
        not_searched = IntegerField()
        not_found = IntegerField()
        created_at = UTCField()

        class Meta:
            indexes = ((("owner", "judge", "prompt_version", "size", "ordinal"), True),)

    class JudgeDay(Row):
        day = TextField(primary_key=True)
        calls = IntegerField(default=0)
        delays = IntegerField(default=0)
        retry_at = UTCField(null=True)

    class JudgeStanding(Row):
        judge = TextField()
        prompt_version = TextField()
        labels_version = TextField()
        verdicts = ReadableJSONField(default=dict)
        agreement = ReadableJSONField(null=True)
        created_at = UTCField()

        class Meta:
            primary_key = CompositeKey("judge", "prompt_version")

    db.create_tables([Label, Score, JudgeDay, JudgeStanding])
