"""A backup is one whole file, of either database; a restore gives back all of it or changes nothing."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from stackmem import backup as backing
from stackmem import store_copy
from stackmem.backup import check_backup, write_backup
from stackmem.exceptions import InvalidInput, StackmemError
from stackmem.exporting import export_lines
from stackmem.models import Job, Lease, Memory, Turn
from stackmem.reindexing import reindex
from stackmem.restore import is_empty, restore
from tests.unit.filled import fill, next_turn_id
from tests.unit.test_upgrade import first_release  # noqa: F401  a fixture
from tests.unit.world import World

both = pytest.mark.parametrize("database_kind", ["sqlite", "postgres"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.db"


@pytest.fixture
def small(offline: World, database: Any, home: Path, file: Path) -> Path:
    """A backup of one turn."""
    offline.turn("うちの猫はミケ")
    write_backup(database, home, file, offline.clock.now())
    return file


@both
def test_a_backup_restored_elsewhere_holds_the_same_rows(
    offline: World, database: Any, new_database: Callable[[], Any], home: Path, file: Path
) -> None:
    fill(offline)
    there, last = store_copy.content(database), store_copy.last_ids(database)
    made = write_backup(database, home, file, offline.clock.now())
    assert (made.turns, made.memories) == (Turn.select().count(), Memory.select().count())
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(f".{file.name}")] == []
    other, progress = new_database(), list[tuple[int, int]]()
    with other.connection_context():
        assert is_empty()
        job = restore(other, home, file, offline.clock.now(), lambda done, total: progress.append((done, total)))
        assert not Lease.select().exists()
        assert not is_empty()
        assert progress[-1] == (store_copy.size(database), store_copy.size(database))
        Job.delete().where(Job.id == job).execute()
        assert store_copy.content(other) == there
        assert next_turn_id() == last["turn"] + 1


@both
def test_what_was_there_is_replaced_and_its_ids_are_not_given_again(
    offline: World, database: Any, small: Path, home: Path
) -> None:
    for _ in range(3):
        offline.turn("これは消える")
    restore(database, home, small, offline.clock.now())
    assert [turn.user for turn in Turn.select()] == ["うちの猫はミケ"]
    assert next_turn_id() == 5


def test_a_restored_store_searches_by_its_stored_vectors(offline: World, database: Any, home: Path, file: Path) -> None:
    memory = offline.memory("猫の名前はミケ")
    offline.settle()
    write_backup(database, home, file, offline.clock.now())
    offline.memory("これは消える")
    offline.settle()
    job = restore(database, home, file, offline.clock.now())
    offline.work.rebuild(job)
    assert offline.points() == {memory.id: "active"}
    assert Job.get_by_id(job).state == "done"


def test_persona_files_of_the_home_folder_come_along(offline: World, database: Any, home: Path, file: Path) -> None:
    (home / "persona").mkdir()
    for name in ("my.toml", "persona/ミケ.toml", ".hidden.toml", "notes.txt"):
        (home / name).write_text(f'name = "{name}"', "utf-8")
    write_backup(database, home, file, offline.clock.now())
    shutil.rmtree(home)
    home.mkdir()
    (home / "my.toml").write_text("changed")
    restore(database, home, file, offline.clock.now())
    found = {str(path.relative_to(home)): path.read_text("utf-8") for path in home.rglob("*") if path.is_file()}
    assert found == {"my.toml": 'name = "my.toml"', "persona/ミケ.toml": 'name = "persona/ミケ.toml"'}


@contextmanager
def changed_as_if_whole(file: Path) -> Iterator[sqlite3.Connection]:
    """Change a backup, its hash too: as another version, or somebody with bad intentions, would have made it."""
    with closing(sqlite3.connect(file)) as opened, opened:
        yield opened
        note = json.loads(opened.execute("SELECT note FROM stackmem_backup").fetchone()[0])
        note["sha256"] = backing._digest(opened)
        opened.execute("UPDATE stackmem_backup SET note = ?", (json.dumps(note),))


def test_no_file_of_a_backup_is_written_outside_the_home_folder(database: Any, small: Path, home: Path) -> None:
    with changed_as_if_whole(small) as opened:
        for name in ("../evil.toml", "/tmp/evil.toml", "persona/../../evil.toml", "server.json"):
            opened.execute("INSERT INTO stackmem_file VALUES (?, ?)", (name, b""))
    assert check_backup(small).files == {}


def test_what_was_deleted_leaves_no_piece_in_a_backup(offline: World, database: Any, home: Path, file: Path) -> None:
    gone = [offline.turn(f"ひみつの話{number}" * 20) for number in range(50)]
    Turn.delete().where(Turn.id.in_([turn.id for turn in gone])).execute()
    write_backup(database, home, file, offline.clock.now())
    assert "ひみつ".encode() not in file.read_bytes()


def test_turns_written_meanwhile_are_in_it_or_not_but_never_half(
    offline: World, database: Any, home: Path, file: Path
) -> None:
    offline.turn("一")
    with closing(sqlite3.connect(database.database)) as other:
        other.execute("BEGIN IMMEDIATE")  # somebody is writing just now
        other.execute("UPDATE turn SET user = '二'")
        write_backup(database, home, file, offline.clock.now())
        other.rollback()
    with closing(sqlite3.connect(file)) as opened:
        assert opened.execute("SELECT user FROM turn").fetchall() == [("一",)]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda data: data[:100], "damaged"),
        (lambda data: data.replace("ミケ".encode(), "タマ".encode()), "damaged"),
        (lambda data: data[:5000] + bytes(3000) + data[8000:], "damaged"),
        (lambda data: b"", "no backup"),
        (lambda data: b"PK\x03\x04" + data, "no backup"),
        (lambda data: b'{"kind": "session"}\n', "no backup"),
        (lambda data: data.replace(b"stackmem_backup", b"stackmem_bakkup"), "no backup"),
    ],
    ids=["half", "only a head", "a word changed", "zeros", "empty", "zip", "export", "foreign"],
)
def test_a_file_that_is_not_whole_is_refused_with_one_sentence_and_nothing_changes(
    offline: World, database: Any, small: Path, home: Path, change: Callable[[bytes], bytes], sentence: str
) -> None:
    small.write_bytes(change(small.read_bytes()))
    there = store_copy.content(database)
    with pytest.raises(InvalidInput, match=sentence) as caught:
        restore(database, home, small, offline.clock.now())
    assert "\n" not in str(caught.value)
    assert store_copy.content(database) == there


def test_a_backup_of_a_newer_version_is_refused(database: Any, small: Path) -> None:
    with changed_as_if_whole(small) as opened:
        opened.execute("INSERT INTO schema_migration (name, applied) VALUES ('9999_future', '')")
    with pytest.raises(InvalidInput, match="newer stackmem .*: install that version"):
        check_backup(small)
    with changed_as_if_whole(small) as opened:
        opened.execute("UPDATE stackmem_backup SET note = replace(note, '\"format\": 1', '\"format\": 2')")
    with pytest.raises(InvalidInput, match="newer stackmem .*: install that version"):
        check_backup(small)


def test_a_missing_file_and_a_folder_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        check_backup(tmp_path / "none.db")
    with pytest.raises(InvalidInput, match="cannot be read"):
        check_backup(tmp_path)


def test_a_backup_of_an_older_version_is_brought_up_to_date(
    first_release: Path,  # noqa: F811
    offline: World,
    database: Any,
    home: Path,
    file: Path,
) -> None:
    shutil.copy(first_release, file)
    with closing(sqlite3.connect(file)) as opened, opened:
        backing._complete(opened, home, offline.clock.now())
    before = file.read_bytes()
    (home / ".restore-of-one-that-was-killed").mkdir()
    restore(database, home, file, offline.clock.now())
    assert Turn.select().count() == 4
    assert not Turn.get_by_id(1).settled  # a column that is newer than the backup
    assert file.read_bytes() == before
    assert [path.name for path in home.iterdir()] == []


def test_rows_that_arrive_changed_are_not_taken(
    offline: World, database: Any, small: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline.turn("これは残る")
    there = store_copy.content(database)
    insert = store_copy.insert
    monkeypatch.setattr(
        store_copy, "insert", lambda to, model, batch: insert(to, model, batch[1:]) if batch[1:] else None
    )
    with pytest.raises(StackmemError, match="nothing was changed"):
        restore(database, home, small, offline.clock.now())
    assert store_copy.content(database) == there


def test_only_an_older_backup_is_replaced(offline: World, database: Any, small: Path, home: Path) -> None:
    now = offline.clock.now()
    offline.turn("もうひとつ")
    assert write_backup(database, home, small, now).turns == 2
    store = Path(database.database)
    for place, sentence in (
        (store, "no backup"), (small.parent, "is a folder"), (small.parent / "none" / "b.db", "is no folder"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=sentence):
            write_backup(database, home, place, now)
    assert Turn.select().count() == 2


def test_an_empty_store_replaces_no_full_backup(
    offline: World, small: Path, new_database: Callable[[], Any], home: Path
) -> None:
    empty = new_database()
    with empty.connection_context():
        with pytest.raises(InvalidInput, match="Is STACKMEM_HOME right"):
            write_backup(empty, home, small, offline.clock.now())
        assert write_backup(empty, home, small.with_name("new.db"), offline.clock.now()).turns == 0
    assert check_backup(small).turns == 1


def test_what_a_killed_backup_left_goes_with_the_next(offline: World, database: Any, small: Path, home: Path) -> None:
    left = small.with_name(f".{small.name}.abc{backing.LEFTOVER}")
    left.write_bytes(b"words")
    write_backup(database, home, small, offline.clock.now())
    assert not left.exists()


def test_a_disk_that_is_full_leaves_the_older_backup(
    offline: World, database: Any, small: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = small.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_backup(database, home, small, offline.clock.now())
    assert small.read_bytes() == before
    assert list(small.parent.glob(f".{small.name}*")) == []


def test_the_index_can_be_made_of_what_was_restored(offline: World, database: Any, small: Path, home: Path) -> None:
    restore(database, home, small, offline.clock.now())
    assert reindex(offline.index) == 0


def test_a_link_stays_and_a_pipe_is_left_alone(offline: World, database: Any, small: Path, home: Path) -> None:
    link, pipe = small.with_name("link.db"), small.with_name("pipe")
    link.symlink_to(small)
    os.mkfifo(pipe)
    offline.turn("もうひとつ")
    assert write_backup(database, home, link, offline.clock.now()).turns == 2
    assert link.is_symlink()
    assert check_backup(small).turns == 2
    with pytest.raises(InvalidInput, match="a device or a pipe"):
        write_backup(database, home, pipe, offline.clock.now())
    assert pipe.is_fifo()
    with pytest.raises(InvalidInput, match="more than once"):  # and nobody waits for who writes into it
        check_backup(pipe)


def test_a_backup_that_another_process_makes_now_is_left_alone(
    offline: World, database: Any, small: Path, home: Path
) -> None:
    other = small.with_name(f".{small.name}.{os.getppid()}.abc{backing.LEFTOVER}")
    other.write_bytes(b"words")
    write_backup(database, home, small, offline.clock.now())
    assert other.exists()


def test_a_row_whose_bytes_are_damaged_stops_nothing(
    offline: World, database: Any, new_database: Callable[[], Any], home: Path, file: Path
) -> None:
    for text in ("うちの猫はミケ", "うちの犬はポチ"):
        offline.turn(text)
    database.execute_sql("UPDATE turn SET user = CAST(x'ff61eda080' AS TEXT), reply = 'a' || char(0) WHERE id = 1")
    write_backup(database, home, file, offline.clock.now())
    assert "\ufffda" in "".join(export_lines("home", UTC))
    other = new_database()
    with other.connection_context():
        restore(other, home, file, offline.clock.now())
        assert [(row.user[:2], row.reply[:2]) for row in Turn.select().order_by(Turn.id)][0] == ("\ufffda", "a\ufffd")
        assert Turn.get_by_id(2).user == "うちの犬はポチ"
