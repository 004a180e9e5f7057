"""The command line, with and without a running server: the same answers, two owners that never mix, nothing lost."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from stackmem.loading import LOADING
from tests.checking import LONG_AGO, check_store, execute, rows
from tests.running import PATIENCE, RunningServer, command, environment, json_of, until
from tests.shapes import copy_home

Done = subprocess.CompletedProcess[str]
TOLD = {
    "home": ("うちの猫の名前はミケっていうの", "きのう富士通のノートPCを12万円で買ったんだ"),
    "alice": ("My dog is called Pochi", "I decided to move to Kyoto next month"),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder in which two owners told something, by a pipe, without a server."""
    home = tmp_path_factory.mktemp("told") / "home"
    for owner, lines in TOLD.items():
        done = command(home, "chat", "--owner", owner, "--session", "s", stdin="\n".join(lines) + "\n")
        assert (done.returncode, done.stderr) == (0, ""), done
    return home


@pytest.fixture(scope="module", params=["alone", "with a server"])
def either(request: pytest.FixtureRequest, told: Path) -> Iterator[Path]:
    """The same home folder, without and with a running server."""
    home = told.parent / request.param / "home"
    copy_home(told, home)
    if request.param == "alone":
        yield home
        return
    with RunningServer(home) as server:
        yield home
        assert "Traceback" not in server.said(), server.said()


def ok(home: Path, *arguments: str, stdin: str = "") -> str:
    """Return what a command prints; it must end well and without a complaint."""
    done = command(home, *arguments, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def check_error(done: Done, code: int, *words: str) -> None:
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: "), done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def conversation(file: Path, sessions: int, turns: int = 6) -> int:
    """Write a log; return how many turns it holds."""
    lines = [
        {"session": f"s{s}", "at": f"2026-05-{1 + s % 28:02}T{10 + t // 60}:{t % 60:02}:00", "role": role, "text": text}
        for s in range(sessions)
        for t in range(turns)
        for role, text in (("user", f"{s}番の店で{t * 100 + s}円のりんごを買った"), ("assistant", "そうなんだ"))
    ]
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return sessions * turns


# --- the same with and without a server ------------------------------------------------------------------------------


def test_status_counts(either: Path) -> None:
    for owner in TOLD:
        ((made,),) = rows(either, "SELECT count(*) FROM memory WHERE owner = ?", owner)
        assert made > 0
        status = json_of(either, "status", "--owner", owner)
        assert status.pop("reasons") in ([], [LOADING])  # a server that has just started
        assert status == {
            "turns": {"open": 0, "pending": 0, "kept": 2, "skipped": 0, "failed": 0},
            "memories": {"active": made, "superseded": 0, "forgotten": 0},
            "index": {"kind": "edge", "points": made, "pending": 0, "embedder": "use", "dim": 512},
            "oldest_pending_s": None,
            "forget_requests": [],
        }
    assert sum(json_of(either, "status", "--owner", "nobody")["turns"].values()) == 0
    said = ok(either, "status")
    assert "kept 2" in said
    assert "edge  points" in said


def test_two_owners_never_mix(either: Path) -> None:
    for owner, other in (("home", "alice"), ("alice", "home")):
        export = ok(either, "export", "--owner", owner)
        found = json_of(either, "memories", "search", "pet", "--owner", owner)["memories"]
        listed = json_of(either, "memories", "list", "--owner", owner)["memories"]
        assert {memory["owner"] for memory in (*found, *listed)} == {owner}
        assert all(text in export for text in TOLD[owner])
        assert not any(text in export for text in TOLD[other])
        check_error(command(either, "memories", "show", listed[0]["memory_id"], "--owner", other), 1, "no memory")


def test_a_search_is_the_same_everywhere(told: Path) -> None:
    queries = ("pet", "いくらで買った？", "猫 \"' & % ?", "x" * 3_000)
    alone = {query: json_of(told, "memories", "search", query, "--limit", "3") for query in queries}
    assert alone["pet"]["count"] > 0
    with RunningServer(told) as server:
        for query, found in alone.items():
            assert json_of(told, "memories", "search", query, "--limit", "3") == found
            assert server.get(f"/v1/memories?limit=3&q={quote(query, safe='')}")[1] == found
        assert server.get("/v1/memories")[1] == json_of(told, "memories", "list")


def test_a_memory_is_shown_with_its_words(either: Path) -> None:
    found = json_of(either, "memories", "search", "cat", "--limit", "1")["memories"][0]
    shown = json_of(either, "memories", "show", found["memory_id"])
    assert shown["turns"][0]["user"] == TOLD["home"][0]
    assert [turn["turn_id"] for turn in shown["turns"]] == shown["source_turn_ids"]
    for text in (ok(either, "memories", "show", found["memory_id"]), ok(either, "memories", "search", "cat")):
        assert found["memory_id"] in text
        assert found["summary"] in text


def test_an_empty_query_and_bad_filters_are_refused(either: Path) -> None:
    check_error(command(either, "memories", "search", " "), 1, "query is empty")
    check_error(command(either, "memories", "list", "--since", "soon"), 1, "not a time")
    check_error(command(either, "memories", "show", "mem_x"), 1, "no memory mem_x")


def test_text_that_is_no_utf8_harms_nothing(either: Path) -> None:
    bad = "\udcff\udcfe"
    assert json_of(either, "memories", "search", bad)["memories"] is not None
    check_error(command(either, "memories", "show", bad), 1, "no memory")
    done = subprocess.run(
        [sys.executable, "-m", "stackmem", "chat", "--owner", "bytes", "--json"],
        env=environment(either),
        input=b"\xff\xfe hi\n",
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["text"] == "�� hi"


def test_reindex_says_how_many_points_there_are(either: Path) -> None:
    points = rows(either, "SELECT count(*) FROM memory")[0][0]
    assert json_of(either, "reindex") == {"points": points}
    assert ok(either, "reindex", "--from", "memories") == f"Rebuilt: {points} points.\n"


def test_devices_are_added_listed_and_revoked(either: Path) -> None:
    said = ok(either, "devices", "add", "台所", "--owner", "alice")
    assert "sm_" in said
    assert "Authorization: Bearer" in said
    listed = json_of(either, "devices", "list")
    assert [(row["name"], row["owner"]) for row in listed["devices"]] == [("台所", "alice")]
    assert json_of(either, "devices", "list", "--owner", "home")["count"] == 0
    assert "台所" in ok(either, "devices", "list")
    check_error(command(either, "devices", "add", "台所"), 1, "already")
    check_error(command(either, "devices", "add", "a\nb"), 1, "printable")
    ok(either, "devices", "revoke", "台所")
    check_error(command(either, "devices", "revoke", "台所"), 1, "no device")
    assert "No devices yet" in ok(either, "devices", "list")


# --- chat ------------------------------------------------------------------------------------------------------------


def test_a_piped_chat_is_answered_line_by_line_closed_and_remembered(either: Path) -> None:
    owner = "pipe-" + ("server" if (either / "server.json").exists() else "alone")
    lines = "ぼくの自転車は青いんだ\n\n先週フランス語の勉強を始めた\n"
    answers = [json.loads(line) for line in ok(either, "chat", "--owner", owner, "--json", stdin=lines).splitlines()]
    assert [answer["text"] for answer in answers] == ["ぼくの自転車は青いんだ", "先週フランス語の勉強を始めた"]
    assert len({answer["session_id"] for answer in answers}) == 1
    ended = rows(either, f"SELECT ended_at IS NOT NULL FROM session WHERE owner = '{owner}'")
    assert ended == [(1,)]
    until(lambda: json_of(either, "memories", "search", "bicycle", "--owner", owner)["count"], "it is remembered")
    spoken = ok(either, "chat", "--owner", owner, stdin="ぼくの自転車は何色？\n")
    assert "青" in spoken
    assert "searched: mem_" in spoken


def test_a_chat_without_a_word_leaves_nothing(either: Path) -> None:
    assert ok(either, "chat", "--owner", "silent") == ""
    assert ok(either, "chat", "--owner", "silent", stdin="\n \n") == ""
    assert rows(either, "SELECT count(*) FROM session WHERE owner = 'silent'") == [(0,)]


def test_a_chat_goes_on_after_a_line_that_is_refused(either: Path) -> None:
    done = command(either, "chat", "--owner", "long", "--session", "x" * 201, stdin="hi\nhi\n")
    assert done.returncode == 0
    assert done.stderr.count("A session id has 1 to 200 characters.") == 2


@pytest.mark.parametrize("with_server", [False, True])
def test_ctrl_c_ends_a_chat_and_what_was_said_is_remembered(home: Path, with_server: bool) -> None:
    server = RunningServer(home)
    if with_server:
        server.start()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "stackmem", "chat"],
            env=environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin
            process.stdin.write(TOLD["home"][0] + "\n")
            process.stdin.flush()
            until(lambda: (home / "stackmem.db").exists() and _turns(home, "pending", "kept"), "the turn is answered")
            assert process.stdout
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
            error = process.stderr.read() if process.stderr else ""
        assert (process.returncode, error) == (0, "")
        assert rows(home, "SELECT ended_at IS NOT NULL FROM session") == [(1,)]
        until(lambda: json_of(home, "memories", "search", "cat")["count"], "it is remembered")
    finally:
        if with_server:
            assert server.stop() == 0
    check_store(home, turns=1)


def _turns(home: Path, *states: str) -> int:
    try:
        return sum(row[0] in states for row in rows(home, "SELECT state FROM turn"))
    except Exception as exc:  # the tables are just being made
        if "no such table" in str(exc):
            return 0
        raise


# --- import and export -----------------------------------------------------------------------------------------------


def test_the_good_lines_of_a_file_are_taken_and_the_bad_ones_named(either: Path) -> None:
    file = either.parent / f"mixed-{(either / 'server.json').exists()}.jsonl"
    good = {"session": file.name, "at": None, "role": "user", "text": "ぶどうを食べた"}
    lines = [
        "\ufeff" + json.dumps(good),
        "{",
        "",
        '{"session": "x"}',
        "[" * 100_000,
        json.dumps(good | {"text": "梨も"}),
    ]
    file.write_bytes("\r\n".join(lines).encode() + b"\r\n\xff\xfe\r\n")
    done = command(either, "import", str(file), "--owner", "mixed")
    assert done.returncode == 0, done
    assert [line.split(": ")[0].rpartition(":")[2] for line in done.stderr.splitlines()] == ["2", "4", "5", "7"]
    assert f"{file}: 1 new turns, 0 already there" in done.stdout
    again = json_of(either, "import", str(file), "--owner", "mixed")["files"][0]
    assert (again["turns"], again["already_there"], len(again["skipped_lines"])) == (0, 1, 4)


def test_a_file_without_a_usable_line_is_an_error_and_an_empty_one_is_none(either: Path) -> None:
    garbage, empty = either.parent / "garbage.bin", either.parent / "empty.jsonl"
    garbage.write_bytes(bytes(range(256)) * 200)
    empty.touch()
    done = command(either, "import", str(garbage), str(empty), "--owner", "garbage")
    check_error(done, 1, "garbage.bin: no line could be used", "more lines skipped")
    assert len(done.stderr.splitlines()) <= 22
    assert "0 new turns" in ok(either, "import", str(empty), "--owner", "garbage")


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_file_that_is_none_is_a_usage_error(either: Path, kind: str) -> None:
    path = either.parent / "missing.jsonl" if kind == "missing" else either.parent
    check_error(command(either, "import", str(path)), 2, str(path))


def test_an_import_returns_when_all_is_remembered(either: Path) -> None:
    file = either.parent / "log.jsonl"
    turns = conversation(file, sessions=3)
    owner = f"import-{(either / 'server.json').exists()}"
    states = json_of(either, "import", str(file), "--owner", owner)["states"]
    assert sum(states.values()) == turns
    status = json_of(either, "status", "--owner", owner)
    assert (status["turns"]["pending"], status["index"]["pending"], status["turns"]["failed"]) == (0, 0, 0)
    assert status["index"]["points"] == status["memories"]["active"] > 0


@pytest.mark.slow
def test_an_import_survives_the_death_of_the_server_that_remembers_for_it(home: Path) -> None:
    file = home.parent / "log.jsonl"
    turns = conversation(file, sessions=25)
    server = RunningServer(home)
    server.start()
    with subprocess.Popen(
        [sys.executable, "-m", "stackmem", "import", str(file)], env=environment(home), stdout=subprocess.DEVNULL
    ) as process:
        until(lambda: _turns(home, "kept", "skipped"), "something is remembered")
        server.kill()
        # What the dead server was doing is leased to it for 90 s: let these pass.
        execute(home, "UPDATE lease SET until = ?", LONG_AGO)
        assert process.wait(2 * PATIENCE) == 0
    assert _turns(home, "kept", "skipped") == turns
    check_store(home, turns)


def test_ctrl_c_stops_an_import_and_loses_nothing(home: Path) -> None:
    file = home.parent / "log.jsonl"
    turns = conversation(file, sessions=25)
    with subprocess.Popen(
        [sys.executable, "-m", "stackmem", "import", str(file)],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until(lambda: (home / "stackmem.db").exists() and _turns(home, "kept", "skipped"), "something is remembered")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (130, "Stopped; nothing is lost.\n")
    assert rows(home, "SELECT count(*) FROM turn") == [(turns,)]
    assert _turns(home, "pending") > 0
    assert rows(home, "SELECT name FROM lease") == []  # else the next command would wait for it to run out
    assert f"0 new turns, {turns} already there" in ok(home, "import", str(file))
    check_store(home, turns)


def test_what_is_exported_and_imported_elsewhere_is_exported_the_same(told: Path, tmp_path: Path) -> None:
    def lines(home: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in ok(home, "export").splitlines()]

    file, fresh = tmp_path / "export.jsonl", tmp_path / "fresh"
    assert ok(told, "export", "--output", str(file)) == ""
    assert "0 failed" in ok(fresh, "import", str(file)).replace("turns failed", "failed")
    before, after = lines(told), lines(fresh)
    numbers = [line["turn_id"] for line in before if line["kind"] == "turn"]
    mapped = {number: place for place, number in enumerate(numbers, 1)}
    for line in before:
        if line["kind"] == "turn":
            line["turn_id"] = mapped[line["turn_id"]]
        if line["kind"] == "memory":
            line["source_turn_ids"] = [mapped[number] for number in line["source_turn_ids"]]
    assert after == before
    found = [json_of(home, "memories", "search", "cat")["memories"][0] for home in (told, fresh)]
    assert found[0]["memory_id"] == found[1]["memory_id"]
    assert found[0]["retrieval_score"] == found[1]["retrieval_score"]
    again = json_of(fresh, "import", str(file))["files"][0]
    assert (again["turns"], again["memories"], again["skipped_lines"]) == (0, 0, [])


def test_an_export_that_cannot_be_written_is_named(told: Path) -> None:
    check_error(command(told, "export", "-o", str(told / "no" / "such" / "folder.jsonl")), 1, "No such file")
    check_error(command(told, "export", "-o", str(told)), 2)


def test_an_export_into_a_pipe_leaves_it_a_pipe(told: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        assert ok(told, "export", "-o", str(pipe)) == ""
        out, _ = reader.communicate(timeout=PATIENCE)
    assert pipe.is_fifo()
    assert out == ok(told, "export")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="There is no /dev/full here (it is Linux's).")
@pytest.mark.parametrize("arguments", [("export",), ("memories", "list"), ("status", "--json")])
def test_a_full_disk_is_named(told: Path, arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "stackmem", *arguments],
            env=environment(told),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "Error: No space left on device.\n")


def test_a_reader_that_has_seen_enough_is_no_error(told: Path) -> None:
    pipe = f"{sys.executable} -m stackmem export | head -c 10; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", pipe], env=environment(told), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.stderr == ""
    assert done.stdout.endswith("0\n")


def test_a_terminal_that_cannot_show_japanese_is_no_error(told: Path) -> None:
    environ = environment(told) | {"PYTHONIOENCODING": "ascii"}
    show = [sys.executable, "-m", "stackmem", "memories", "list"]
    done = subprocess.run(show, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mem_" in done.stdout


# --- usage (every command: tests/unit/test_usage.py) -----------------------------------------------------------------


def test_wrong_usage_is_exit_code_2_and_one_sentence(told: Path) -> None:
    done = command(told, "memories", "list", "--limit", "many")
    check_error(done, 2)
    assert done.stdout == ""


def test_the_version_is_told(told: Path) -> None:
    assert ok(told, "--version").startswith("stackmem, version ")
