"""How things stand: counted in the rows, and in the index itself."""

import pytest

from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.index_handle import IndexHandle
from stackmem.models import PointDeletion
from stackmem.status import active_points, pending, status
from tests.fakes import MemoryIndexStore
from tests.unit.world import ZONE, World

EMPTY = {
    "turns": {"open": 0, "pending": 0, "kept": 0, "skipped": 0, "failed": 0},
    "memories": {"active": 0, "superseded": 0, "forgotten": 0},
    "index": {"kind": "memory", "points": 0, "pending": 0, "embedder": "use", "dim": 512},
    "oldest_pending_s": None,
    "forget_requests": [],
    "reasons": [],
}


def test_an_empty_store_has_every_count(world: World) -> None:
    assert status("home", world.index, "memory", world.clock.now(), ZONE) == EMPTY


def test_counts_are_those_of_the_owner(world: World) -> None:
    for state in ("open", "pending", "pending", "skipped", "failed"):
        world.turn(state, state=state)
    world.memory("猫がいる。")
    world.memory("犬がいた。", status="superseded")
    world.memory("忘れた。", status="forgotten")
    world.memory("秘密。", owner="mari")
    now = status("home", world.index, "memory", world.clock.now(), ZONE)
    assert now["turns"] == {"open": 1, "pending": 2, "kept": 3, "skipped": 1, "failed": 1}
    assert now["memories"] == {"active": 1, "superseded": 1, "forgotten": 1}
    assert (now["index"]["points"], now["index"]["pending"]) == (0, 3)
    world.indexed()
    now = status("home", world.index, "memory", world.clock.now(), ZONE)
    assert (now["index"]["points"], now["index"]["pending"]) == (1, 0)
    assert status("mari", world.index, "memory", world.clock.now(), ZONE)["memories"]["active"] == 1


def test_points_are_the_active_ones_of_the_index_itself(world: World) -> None:
    world.memory("猫がいる。")
    world.memory("犬がいた。", status="superseded")
    world.indexed()
    assert active_points(world.index, "home") == 1
    assert len(world.points()) == 2


def test_a_process_without_the_index_says_null_and_one_whose_index_is_lost_zero(
    world: World, embedder: UseEmbedder
) -> None:
    assert active_points(IndexHandle(None, embedder), "home") is None
    assert active_points(IndexHandle(MemoryIndexStore(), embedder), "home") == 0


def test_what_waits_for_index_comparison_or_removal_is_pending(world: World) -> None:
    world.memory("猫がいる。", compared=False)
    assert pending("home") == 1
    world.indexed()
    assert pending("home") == 1
    world.comparing.compare("home")
    assert pending("home") == 0
    PointDeletion.create(memory_id="mem_x", owner="home")
    assert (pending("home"), pending("mari")) == (1, 0)


@pytest.mark.parametrize(("state", "seconds"), [("open", 90), ("pending", 90), ("kept", None)])
def test_the_oldest_pending_turn_is_told_in_seconds(world: World, state: str, seconds: int | None) -> None:
    world.turn("古い", state=state)
    world.clock.advance(seconds=60)
    world.turn("新しい", state=state)
    now = world.clock.advance(seconds=30)
    assert status("home", world.index, "memory", now, ZONE)["oldest_pending_s"] == seconds
