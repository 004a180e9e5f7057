"""The rows of scoring live talk: what the judge said of each turn, the windows made of it, and what it is worth."""

from peewee import (
    AutoField,
    BooleanField,
    CompositeKey,
    ForeignKeyField,
    IntegerField,
    TextField,
)

from stackmem.fields import ReadableJSONField, UTCField
from stackmem.models import Row, Turn


class Label(Row):
    """What the judge said of one live turn. ``state``: waiting (its answers were bad so far), judged or unjudgeable."""

    turn = ForeignKeyField(Turn, primary_key=True, on_delete="CASCADE")
    turn_id: int
    owner = TextField()
    state = TextField()
    attempts = IntegerField(default=0)  # bad answers
    retry_at = UTCField(null=True)
    needed = BooleanField(null=True)
    found = BooleanField(null=True)  # None: nothing was searched, or there was nothing to find
    searched = BooleanField(default=False)
    right_ids = ReadableJSONField(default=list)  # memories that hold the answer, by the judge
    shown_ids = ReadableJSONField(default=list)  # all it was shown: its reason may repeat them
    reason = TextField(default="")
    judge = TextField()
    prompt_version = TextField()
    created_at = UTCField()

    class Meta:
        indexes = ((("owner", "state"), False),)


class Score(Row):
    """A full window of consecutive judged turns of an owner and a judge. Counts only; it holds no words."""

    id = AutoField()
    owner = TextField()
    judge = TextField()
    prompt_version = TextField()
    size = IntegerField()  # 10 or 50 turns
    ordinal = IntegerField()  # 0, 1, … among those of its size
    first_turn = IntegerField()
    last_turn = IntegerField()
    from_at = UTCField()
    to_at = UTCField()
    needless = IntegerField()  # turns that needed no memory
    false_triggers = IntegerField()  # of them: those that searched
    findable = IntegerField()  # turns that needed a memory, and it was there
    not_searched = IntegerField()  # of them
    not_found = IntegerField()  # of them: searched, and not returned
    created_at = UTCField()

    class Meta:
        indexes = ((("owner", "judge", "prompt_version", "size", "ordinal"), True),)


class JudgeDay(Row):
    """How often the judge was asked about live turns on one day, and whether it is down."""

    day = TextField(primary_key=True)  # in the zone of the settings
    calls = IntegerField(default=0)
    delays = IntegerField(default=0)  # how often in a row it did not answer
    retry_at = UTCField(null=True)


class JudgeStanding(Row):
    """What a judge said of the hand-labelled turns, and how it agrees with the people who labelled them."""

    judge = TextField()
    prompt_version = TextField()
    labels_version = TextField()  # hash of the labelled turns
    verdicts = ReadableJSONField(default=dict)  # by label: {"needed", "right"}, or null where its answer was bad
    agreement = ReadableJSONField(null=True)  # by question, four counts; None until every label is judged
    created_at = UTCField()

    class Meta:
        primary_key = CompositeKey("judge", "prompt_version")


class Mark(Row):
    """What a person says of one live turn: it goes before what a judge says. ``kind``: see evals.marks."""

    turn = ForeignKeyField(Turn, primary_key=True, on_delete="CASCADE")
    turn_id: int
    owner = TextField(index=True)
    kind = TextField()
    right_ids = ReadableJSONField(default=list)  # memories that hold the answer, where the person named them
    created_at = UTCField()


SCORE_TABLES = [Label, Score, JudgeDay, JudgeStanding, Mark]
