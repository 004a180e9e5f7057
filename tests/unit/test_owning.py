"""Of two home folders with an index each, one alone is the index of a database."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from stackmem import owning, store_copy
from stackmem.bootstrap import Runtime, build
from stackmem.config import load_settings
from stackmem.database import INDEX_OWNER, drop_leases
from stackmem.exceptions import Busy, SettingsError
from stackmem.models import Job, Lease
from stackmem.owning import IndexOwner
from tests.fakes import FixedClock
from tests.waiting import until

both = pytest.mark.parametrize("database_kind", ["sqlite", "postgres"])


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


def jobs() -> int:
    return int(Job.select().where(Job.kind == "reindex").count())


@both
def test_the_second_folder_is_refused_and_later_makes_the_index_anew(
    database: Any, tmp_path: Path, clock: FixedClock
) -> None:
    one, two = (IndexOwner(tmp_path / name, clock) for name in ("one", "two"))
    one.take(0)
    with pytest.raises(Busy, match="another home folder .* STACKMEM_INDEX_URL=http"):
        two.take(0)
    IndexOwner(tmp_path / "one", clock).take(0)  # killed and started again
    assert jobs() == 0
    one.release()
    two.take(0)
    assert jobs() == 1
    one.release()  # it is not its own any more
    with pytest.raises(Busy):
        one.take(0)


def test_a_killed_owner_is_followed_by_another_folder_when_its_lease_has_run_out(
    database: Any, tmp_path: Path, clock: FixedClock
) -> None:
    IndexOwner(tmp_path / "one", clock).take(0)
    clock.advance(seconds=91)
    IndexOwner(tmp_path / "two", clock).take(0)
    assert jobs() == 1


def test_a_copy_of_a_folder_is_another_one(database: Any, tmp_path: Path, clock: FixedClock) -> None:
    IndexOwner(tmp_path / "one", clock).take(0)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with pytest.raises(Busy):
        IndexOwner(tmp_path / "two", clock).take(0)


def test_whose_index_it_is_outlives_leases_and_a_restore(database: Any, tmp_path: Path, clock: FixedClock) -> None:
    IndexOwner(tmp_path / "one", clock).take(0)
    drop_leases(database)
    store_copy.empty(database)
    assert Lease.select().where(Lease.name == INDEX_OWNER).count() == 1


def test_it_is_renewed_and_a_loss_is_logged(
    database: Any, tmp_path: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(owning, "RENEW", 0.01)
    one = IndexOwner(tmp_path / "one", clock)
    one.take(0)
    Lease.delete().where(Lease.name == INDEX_OWNER).execute()  # as when the clock was set back
    one.keep()
    until(lambda: Lease.select().where(Lease.name == INDEX_OWNER).exists(), "it is renewed")
    Lease.update(holder="other").where(Lease.name == INDEX_OWNER).execute()
    until(lambda: "end one of both" in caplog.text, "the loss is logged")
    one.release()
    assert Lease.get(Lease.name == INDEX_OWNER).holder == "other"


def test_two_homes_over_one_database_are_refused_unless_a_server_keeps_the_index(tmp_path: Path) -> None:
    def home(name: str) -> Runtime:
        address = f"sqlite:///{tmp_path / 'shared.db'}"
        return build(load_settings(home=tmp_path / name, database_url=address), owns_index=True, lock_wait_s=0)

    one = home("one")
    with pytest.raises(Busy, match="another home folder"):
        home("two")
    one.close()
    home("two").close()
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / "index").write_text("a file")
    with pytest.raises(SettingsError, match="cannot be written"):
        home("three")
