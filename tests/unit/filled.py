"""A store with rows in its tables, odd characters and numbers included."""

from stackmem.devices import add as add_device
from stackmem.models import Alias, ForgetRequest, Job, Lease, PointDeletion, ToolTrace, Turn, TurnJob
from stackmem.score_models import JudgeDay, JudgeStanding, Label, Mark, Score
from tests.unit.world import World, ingest

ODD = "𠮷野家で㍿ｶﾌｪ　が\u3099 👩‍👩‍👧 \u202eabc\\ \"'%s ?"


def fill(world: World) -> None:
    """Talk, remember, index, compare, and write the rows that only scoring, people and robots cause."""
    ingest(world)
    now = world.clock.now()
    turn = world.turn(ODD, session="🐱", tokens={"prompt": 3}, durations_ms={"total": 0.1 + 0.2, "model": 1e16})
    hits = [{"memory_id": "mem_x", "retrieval_score": -0.0, "z": 1e-07, "a": None, "ok": True}]
    ToolTrace.create(
        turn=turn, ordinal=0, tool="search_memory", arguments={"query": ODD, "b": 1, "a": 2}, hits=hits,
        duration_ms=12.345678901, looked_for=None, result=[1, 2.0, "x"],
    )  # fmt: skip
    Alias.create(owner="home", key="a", other_key="b", name="富士通", other_name="Fujitsu", turn=None, created_at=now)
    ForgetRequest.create(owner="home", turn=turn.id, created_at=now)
    PointDeletion.create(memory_id="mem_gone", owner="home")
    Job.create(kind="check", created_at=now, state="done")
    TurnJob.create(owner="home", turn=turn.id, created_at=now)
    Lease.create(name="x", holder="somebody", until=now)
    add_device("kitchen", "home", now)
    Label.create(
        turn=turn, owner="home", state="judged", needed=False, found=None, right_ids=["x"], judge="j",
        prompt_version="1", created_at=now,
    )  # fmt: skip
    Mark.create(turn=turn, owner="home", kind="wrong", created_at=now)
    JudgeDay.create(day="2026-07-23", calls=3)
    JudgeStanding.create(judge="j", prompt_version="1", labels_version="1", agreement=None, created_at=now)
    numbers = dict.fromkeys(("needless", "false_triggers", "findable", "not_searched", "not_found"), 1)
    Score.create(
        owner="home", judge="j", prompt_version="1", size=10, ordinal=0, first_turn=1, last_turn=10, from_at=now,
        to_at=now, created_at=now, **numbers,
    )  # fmt: skip
    gone = world.turn("消える", session="🐱")
    Turn.delete().where(Turn.id == gone.id).execute()  # its number must never come again


def next_turn_id() -> int:
    """Return the id that a new turn gets; the turn stays."""
    like = Turn.select().order_by(Turn.id.desc()).dicts().get()
    like |= {"uid": f"{like['uid']}+", "ordinal": like["ordinal"] + 1000, "id": None}
    return int(Turn.create(**{name: value for name, value in like.items() if name != "id"}).id)
