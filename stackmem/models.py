"""The rows. Turns are the truth; memories, vectors and the index are derived from them."""

from peewee import (
    AutoField,
    BlobField,
    BooleanField,
    CompositeKey,
    DatabaseProxy,
    FloatField,
    ForeignKeyField,
    IntegerField,
    Model,
    TextField,
)

from stackmem.fields import ReadableJSONField, UTCField

proxy = DatabaseProxy()  # bound by database.open_database; nothing connects at import


class Row(Model):
    """What every table shares."""

    class Meta:
        database = proxy
        legacy_table_names = False


class Owner(Row):
    """Whose memories: the unit of order for compare and index, and of every filter."""

    name = TextField(primary_key=True)
    index_enqueued_at = UTCField(null=True)
    compare_enqueued_at = UTCField(null=True)
    retry_at = UTCField(null=True)  # compare not before this, after the model was down
    delays = IntegerField(default=0)  # how often in a row it was down


class Session(Row):
    """Turns of one owner. ``name`` is the session_id outside; the same name again opens the next ``seq``."""

    id = AutoField()
    owner = TextField()
    name = TextField()
    seq = IntegerField()
    named = BooleanField()  # by the client
    device = TextField(null=True)
    imported = TextField(null=True)  # the key by which the same file again finds it
    both_speakers = BooleanField(default=False)
    started_at = UTCField()
    received_at = UTCField()  # our clock at the last turn: the idle limit counts from here
    ended_at = UTCField(null=True)
    looked_to = IntegerField(default=0)  # the last turn a look has seen
    look_due = BooleanField(default=False)  # the owner began another session since
    enqueued_at = UTCField(null=True)
    retry_at = UTCField(null=True)
    delays = IntegerField(default=0)  # how often in a row the model was down
    attempts = IntegerField(default=0)  # how often in a row its answer was bad
    open_topic = ReadableJSONField(null=True)  # what the last look said of the turns it left pending
    attempts_to = IntegerField(null=True)  # the last turn of the look that was bad: newer ones are not drawn into it

    class Meta:
        indexes = ((("owner", "name", "seq"), True), (("owner", "imported"), True))


class Turn(Row):
    """One exchange. ``state``: open, pending, kept, skipped or failed."""

    id = AutoField()
    uid = TextField(unique=True)
    session = ForeignKeyField(Session, backref="turns", on_delete="RESTRICT")
    session_id: int
    ordinal = IntegerField()
    owner = TextField()
    at = UTCField()
    received_at = UTCField()
    user = TextField()
    reply = TextField(default="")
    emotion = TextField(default="neutral")
    action = TextField(default="none")
    state = TextField()
    key = TextField(null=True, unique=True)  # owner, device and the client's key: a retry finds the stored answer
    model = TextField(null=True)
    prompts = TextField(null=True)  # a short hash of prompts and persona it was answered with
    degraded = BooleanField(default=False)
    imported = BooleanField(default=False)
    searched = BooleanField(default=False)
    memory_ids = ReadableJSONField(default=list)
    model_calls = IntegerField(default=0)
    tokens = ReadableJSONField(default=dict)
    durations_ms = ReadableJSONField(default=dict)
    withheld = BooleanField(default=False)  # the chat service refuses to read it: it leaves the context
    settled = BooleanField(default=False)  # a person decided about its memories: it is never remembered again

    class Meta:
        indexes = ((("session", "ordinal"), True), (("owner", "state"), False), (("session", "state"), False))


class ToolTrace(Row):
    """One tool call of a turn: what was asked, what came back, how long it took."""

    id = AutoField()
    turn = ForeignKeyField(Turn, backref="calls", on_delete="CASCADE")
    ordinal = IntegerField()
    tool = TextField()
    arguments = ReadableJSONField()
    hits = ReadableJSONField(default=list)
    relaxed = ReadableJSONField(default=list)
    note = TextField(default="")
    duration_ms = FloatField()
    looked_for = ReadableJSONField(null=True)  # query as searched, names, type, time, floor
    result = ReadableJSONField(null=True)  # what the model was given


class Window(Row):
    """One look of the memory model at a session, as it can be replayed: which turns, which prompt, which model."""

    id = AutoField()
    session = ForeignKeyField(Session, backref="windows", on_delete="CASCADE")
    session_id: int
    owner = TextField(index=True)
    turn_ids = ReadableJSONField()
    final = BooleanField()  # the session had ended
    prompt_version = TextField()
    model = TextField()
    created_at = UTCField()
    compared = BooleanField(default=False)
    compare_attempts = IntegerField(default=0)


class Memory(Row):
    """One topic over several turns.

    ``origin``: made, edited, merged, imported, or kept (made from turns that are not remembered again). Only what is
    made and has its window is made again by a rebuild.
    """

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
    window_id: int | None
    created_at = UTCField()
    version = IntegerField(default=1)  # raised by every change the index must see
    outdated = BooleanField(default=True, index=True)  # the index does not hold this version yet
    neighbours = ReadableJSONField(default=list)  # nearest other memories, found while indexing; compare reads them
    forgotten_at = UTCField(null=True)
    purge_at = UTCField(null=True)  # when its words go; None: it is not forgotten, or they are gone
    purge_turns = BooleanField(default=False)  # the words of its turns go with it
    handed_on = TextField(default="")  # the sentence of it that the memory which replaced it carries on
    status_before = TextField(null=True)  # what undoing brings back

    class Meta:
        indexes = ((("owner", "status"), False),)


class MemoryEntity(Row):
    """A memory under one of its normalised names."""

    memory = ForeignKeyField(Memory, on_delete="CASCADE")
    owner = TextField()
    key = TextField()
    name = TextField(default="")  # the spelling said most often in its turns, else the memory's own
    said = IntegerField(default=0)  # how often it was said there

    class Meta:
        primary_key = CompositeKey("memory", "key")
        indexes = ((("owner", "key", "name", "said"), False),)  # the spellings are read from the index alone


class Alias(Row):
    """Two names of one thing, as a turn stated (``turn``) or a person added (None); it only widens searches."""

    id = AutoField()
    owner = TextField()
    key = TextField()  # the smaller of the two keys
    other_key = TextField()
    name = TextField()
    other_name = TextField()
    turn = IntegerField(null=True)
    created_at = UTCField()

    class Meta:
        indexes = ((("owner", "key", "other_key"), True),)


class MemorySource(Row):
    """A memory and one of the turns it was made of."""

    memory = ForeignKeyField(Memory, backref="sources", on_delete="CASCADE")
    turn = ForeignKeyField(Turn, backref="memories", on_delete="CASCADE")
    memory_id: str
    turn_id: int

    class Meta:
        primary_key = CompositeKey("memory", "turn")


class MemoryVector(Row):
    """One stored vector: of the summary (ordinal 0) or of one window of source words (1, 2, …)."""

    memory = ForeignKeyField(Memory, backref="vectors", on_delete="CASCADE")
    memory_id: str
    fingerprint = TextField()
    ordinal = IntegerField()
    text_hash = TextField()  # of the text it was made from: another text needs another vector
    vector = BlobField()  # float32, little-endian

    class Meta:
        primary_key = CompositeKey("memory", "fingerprint", "ordinal")


class PointDeletion(Row):
    """A point that must leave the index; the row goes when it has left."""

    memory_id = TextField(primary_key=True)
    owner = TextField()


class ForgetRequest(Row):
    """The user asked the robot to forget something. It deletes nothing: a person decides."""

    id = AutoField()
    owner = TextField(index=True)
    turn = IntegerField(unique=True)
    what = TextField(default="")  # what it is about, where the words name it
    is_open = BooleanField(default=True)
    created_at = UTCField()


class Job(Row):
    """Long work that whoever owns the index does, with its progress."""

    id = AutoField()
    kind = TextField()
    owner = TextField(null=True)
    arguments = ReadableJSONField(default=dict)
    state = TextField(default="waiting")  # waiting, running, done, failed
    done = IntegerField(default=0)
    total = IntegerField(default=0)
    message = TextField(default="")
    created_at = UTCField()
    enqueued_at = UTCField(null=True)
    finished_at = UTCField(null=True)


class TurnJob(Row):
    """A turn that a robot polls for; it holds no words. ``state``: waiting, running, done or failed."""

    id = AutoField()
    owner = TextField()
    turn = IntegerField(null=True)
    key = TextField(null=True, unique=True)  # one job a turn, whoever asks
    state = TextField(default="waiting")
    message = TextField(default="")  # why it failed
    created_at = UTCField()
    finished_at = UTCField(null=True)


class Lease(Row):
    """Who works at something, until when. A dead worker's lease runs out."""

    name = TextField(primary_key=True)
    holder = TextField()
    until = UTCField()


class Device(Row):
    """A robot or client with a token. Only the token's hash is stored."""

    id = AutoField()
    name = TextField(unique=True)
    owner = TextField()
    token_hash = TextField(unique=True)
    created_at = UTCField()


TABLES = [
    Owner, Session, Turn, ToolTrace, Window, Memory, MemoryEntity, MemorySource, MemoryVector,
    PointDeletion, Job, Lease, Device, Alias, ForgetRequest,
    TurnJob,
]  # fmt: skip
