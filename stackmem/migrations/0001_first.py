"""The first schema: sessions, turns, windows, memories and their vectors, jobs, leases, devices."""

from typing import Any

from peewee import (
    SQL,
    AutoField,
    BlobField,
    BooleanField,
    CompositeKey,
    FloatField,
    ForeignKeyField,
    IntegerField,
    Model,
    SqliteDatabase,
    TextField,
)

from stackmem.fields import ReadableJSONField, UTCField


def up(migrator: Any, db: Any) -> None:
    """Create every table."""
    # SQLite gives the id of a deleted last row again unless told otherwise; PostgreSQL never does.
    never_reused: Any = [SQL("AUTOINCREMENT")] if isinstance(db, SqliteDatabase) else []

    class Row(Model):
        class Meta:
            database = db
            legacy_table_names = False

    class Owner(Row):
        name = TextField(primary_key=True)
        index_enqueued_at = UTCField(null=True)
        compare_enqueued_at = UTCField(null=True)
        retry_at = UTCField(null=True)
        delays = IntegerField(default=0)

    class Session(Row):
        id = AutoField()
        owner = TextField()
        name = TextField()
        seq = IntegerField()
        named = BooleanField()
        device = TextField(null=True)
        imported = TextField(null=True)
        both_speakers = BooleanField(default=False)
        started_at = UTCField()
        received_at = UTCField()
        ended_at = UTCField(null=True)
        looked_to = IntegerField(default=0)
        look_due = BooleanField(default=False)
        enqueued_at = UTCField(null=True)
        retry_at = UTCField(null=True)
        delays = IntegerField(default=0)
        attempts = IntegerField(default=0)

        class Meta:
            indexes = ((("owner", "name", "seq"), True), (("owner", "imported"), True))

    class Turn(Row):
        id = AutoField(constraints=never_reused)
        uid = TextField(unique=True)
        session = ForeignKeyField(Session, backref="turns", on_delete="RESTRICT")
        ordinal = IntegerField()
        owner = TextField()
        at = UTCField()
        received_at = UTCField()
        user = TextField()
        reply = TextField(default="")
        emotion = TextField(default="neutral")
        action = TextField(default="none")
        state = TextField()
        key = TextField(null=True, unique=True)
        model = TextField(null=True)
        degraded = BooleanField(default=False)
        imported = BooleanField(default=False)
        searched = BooleanField(default=False)
        memory_ids = ReadableJSONField(default=list)
        model_calls = IntegerField(default=0)
        tokens = ReadableJSONField(default=dict)
        durations_ms = ReadableJSONField(default=dict)

        class Meta:
            indexes = ((("session", "ordinal"), True), (("owner", "state"), False), (("session", "state"), False))

    class ToolTrace(Row):
        id = AutoField()
        turn = ForeignKeyField(Turn, backref="calls", on_delete="CASCADE")
        ordinal = IntegerField()
        tool = TextField()
        arguments = ReadableJSONField()
        hits = ReadableJSONField(default=list)
        relaxed = ReadableJSONField(default=list)
        note = TextField(default="")
        duration_ms = FloatField()

    class Window(Row):
        id = AutoField(constraints=never_reused)
        session = ForeignKeyField(Session, backref="windows", on_delete="CASCADE")
        owner = TextField(index=True)
        turn_ids = ReadableJSONField()
        final = BooleanField()
        prompt_version = TextField()
        model = TextField()
        created_at = UTCField()
        compared = BooleanField(default=False)
        compare_attempts = IntegerField(default=0)

    class Memory(Row):
        id = TextField(primary_key=True)
        owner = TextField()
        topic = TextField()
        summary = TextField()
        entities = ReadableJSONField(default=list)
        entity_keys = ReadableJSONField(default=list)
        memory_type = TextField()
        occurred_at = UTCField()
        occurred_from = UTCField()
        occurred_to = UTCField()
        said_at = UTCField()
        status = TextField(default="active")
        superseded_by = TextField(null=True)
        revision = IntegerField(default=0)
        origin = TextField(default="made")
        window = ForeignKeyField(Window, null=True, backref="memories", on_delete="SET NULL")
        created_at = UTCField()
        version = IntegerField(default=1)
        outdated = BooleanField(default=True, index=True)
        neighbours = ReadableJSONField(default=list)

        class Meta:
            indexes = ((("owner", "status"), False),)

    class MemoryEntity(Row):
        memory = ForeignKeyField(Memory, on_delete="CASCADE")
        owner = TextField()
        key = TextField()

        class Meta:
            primary_key = CompositeKey("memory", "key")
            indexes = ((("owner", "key"), False),)

    class MemorySource(Row):
        memory = ForeignKeyField(Memory, backref="sources", on_delete="CASCADE")
        turn = ForeignKeyField(Turn, backref="memories", on_delete="CASCADE")

        class Meta:
            primary_key = CompositeKey("memory", "turn")

    class MemoryVector(Row):
        memory = ForeignKeyField(Memory, backref="vectors", on_delete="CASCADE")
        fingerprint = TextField()
        ordinal = IntegerField()
        text_hash = TextField()
        vector = BlobField()

        class Meta:
            primary_key = CompositeKey("memory", "fingerprint", "ordinal")

    class PointDeletion(Row):
        memory_id = TextField(primary_key=True)
        owner = TextField()

    class Job(Row):
        id = AutoField(constraints=never_reused)
        kind = TextField()
        owner = TextField(null=True)
        arguments = ReadableJSONField(default=dict)
        state = TextField(default="waiting")
        done = IntegerField(default=0)
        total = IntegerField(default=0)
        message = TextField(default="")
        created_at = UTCField()
        enqueued_at = UTCField(null=True)
        finished_at = UTCField(null=True)

    class Lease(Row):
        name = TextField(primary_key=True)
        holder = TextField()
        until = UTCField()

    class Device(Row):
        id = AutoField()
        name = TextField(unique=True)
        owner = TextField()
        token_hash = TextField(unique=True)
        created_at = UTCField()

    db.create_tables(
        [
            Owner,
            Session,
            Turn,
            ToolTrace,
            Window,
            Memory,
            MemoryEntity,
            MemorySource,
            MemoryVector,
            PointDeletion,
            Job,
            Lease,
            Device,
        ]
    )
