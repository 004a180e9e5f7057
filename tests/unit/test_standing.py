"""What a person is told of how the work stands."""

from datetime import timedelta

import pytest

from stackmem.jobs import check_job
from stackmem.models import Job, Owner, Session, Turn
from stackmem.places import place
from stackmem.standing import calls_since, last_comparison, troubles, waiting
from tests.unit.world import World


def kinds(world: World, owner: str = "home") -> list[str]:
    return [trouble.kind for trouble in troubles(owner, world.clock.now())]


def test_where_all_is_well_nothing_waits_and_nothing_is_wrong(offline: World) -> None:
    found = waiting("home", offline.clock.now())
    assert (found.turns, found.memories, found.oldest_s, found.jobs) == (0, 0, None, [])
    assert kinds(offline) == []


def test_what_waits_is_counted_with_the_age_of_the_oldest(offline: World) -> None:
    offline.say("うちの猫の名前はミケ")
    offline.clock.advance(seconds=90)
    offline.say("あしたは晴れるかな")
    found = waiting("home", offline.clock.now())
    assert (found.turns, found.oldest_s) == (2, 90)
    assert waiting("alice", offline.clock.now()).turns == 0


def test_every_trouble_is_named_for_its_owner_alone(offline: World) -> None:
    now = offline.clock.now()
    turn = offline.say("うちの猫の名前はミケ")
    Session.update(delays=2, retry_at=now + timedelta(seconds=10)).execute()
    offline.say("もうひとつ", session="other")
    Session.update(attempts=3).where(Session.name == "other").execute()
    Turn.update(state="failed", degraded=True).where(Turn.id == turn.id).execute()
    Owner.update(delays=1, retry_at=now).execute()
    Job.create(kind="reindex", state="failed", message="The disk is full.", created_at=now, finished_at=now)
    assert kinds(offline) == ["model down", "bad answers", "failed turns", "fallback lines", "compare", "job"]
    first = troubles("home", now)[0]
    assert (first.count, first.until) == (1, now + timedelta(seconds=10))
    assert kinds(offline, "alice") == ["job"]
    offline.clock.advance(hours=25)
    assert "fallback lines" not in kinds(offline)
    assert "job" not in kinds(offline)


def test_calls_are_counted_from_a_moment_on(offline: World) -> None:
    offline.say("うちの猫の名前はミケ")
    Turn.update(model_calls=3).execute()
    assert calls_since("home", offline.clock.now()) == 3
    assert calls_since("home", offline.clock.now() + timedelta(seconds=1)) == 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5432/db?password=x", "postgresql://host:5432/db"),
        ("amqp://me:secret@host//", "amqp://host//"),
        ("memory://", "memory://"),
        ("sqlite:////home/me/stackmem.db", "sqlite:////home/me/stackmem.db"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert place(url) == shown


def test_the_last_comparison_of_index_and_database_is_told(offline: World) -> None:
    assert last_comparison() is None
    Job.create(kind="check", state="running", arguments={"mend": False}, created_at=offline.clock.now())
    assert last_comparison() is None
    run_check(offline)
    found = last_comparison()
    assert found == (offline.clock.now(), "Database and index agree: 0 points.")


def run_check(world: World) -> None:
    job = check_job(False, world.clock.now())
    world.work.rebuild(job.id)
