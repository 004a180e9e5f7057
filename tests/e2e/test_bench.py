"""`stackmem bench` as a person runs it: real embedders in processes of their own, a program beside them, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import qwen3
from tests.running import PATIENCE, RunningServer, command, environment, json_of, until

WAITS = "import time; time.sleep(600)"


def beside(folder: Path, code: str = WAITS) -> str:
    """Return a command that leaves its process id in a file, then does this."""
    script = folder / "other.py"
    script.write_text(f"import os, pathlib\npathlib.Path({str(folder / 'pid')!r}).write_text(str(os.getpid()))\n{code}")
    return f"{sys.executable} {script}"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What is measured of an embedder that works, and of one that does not, beside a process that ran before."""
    with subprocess.Popen([sys.executable, "-c", WAITS]) as process:
        found = json_of(
            tmp_path_factory.mktemp("watched") / "home",
            *("bench", "embed", "--embedder", "use", "--embedder", "openai", "--beside", str(process.pid)),
            embedding_base_url="http://127.0.0.1:1/v1", embedding_model="m", embedding_dim="64",
        )  # fmt: skip
        found["goes on"] = process.poll() is None
        process.kill()
    return found


def test_an_embedder_gets_a_row_with_its_costs_and_what_it_finds(watched: Any) -> None:
    row = watched["rows"][0]
    assert (row["embedder"], row["dim"], row["bytes_per_vector"], row["error"]) == ("use", 512, 2048, "")
    assert (row["recall"]["questions"], row["cosine"], row["alone"]) == (60, None, None)
    assert row["recall"]["at_5"] > 50
    costs = row["beside"]
    assert 50 < costs["resident_mb"] <= costs["peak_mb"] < 1000
    assert 0 < costs["query_ms"] <= costs["query_p95_ms"]


def test_one_that_fails_gets_a_sentence_in_its_row(watched: Any) -> None:
    row = watched["rows"][1]
    assert (row["embedder"], row["beside"], row["recall"]) == ("openai", None, None)
    assert row["error"].startswith("The embedder at 127.0.0.1:1 cannot be reached")


def test_a_process_beside_is_watched_and_goes_on(watched: Any) -> None:
    assert watched["goes on"]
    assert 1 < watched["rows"][0]["beside"]["usage"]["memory_mb"] < 100
    assert 1 < watched["beside"]["memory_mb"] < 100


def test_a_program_beside_is_measured_and_ended_and_the_table_says_it_all(tmp_path: Path) -> None:
    done = command(tmp_path / "home", "bench", "embed", "--embedder", "use", "--beside", beside(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done
    for words in ("other.py by itself:", "Beside it", "its cores", "Without it", "60 questions", "Take use"):
        assert words in done.stdout
    assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_the_program_beside_too(tmp_path: Path, stop: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "stackmem", "bench", "embed", "--embedder", "use", "--beside", beside(tmp_path)],
        env=environment(tmp_path / "home"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        pid = until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "it was started")
        process.send_signal(stop)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, "", "Stopped; nothing is lost.\n")
    assert not is_running(int(pid))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A home folder, and what was measured there of a tiny Qwen3 model in all precisions."""
    qwen3.require_packages()
    folder = tmp_path_factory.mktemp("tiny")
    model = qwen3.make_model(folder / "Tiny")
    found = json_of(
        folder / "home", "bench", "embed", "--embedder", "qwen3", "--dims", "1024,32", embedding_model=str(model),
        embedding_dim="48",
    )  # fmt: skip
    return folder / "home", found


def test_qwen3_is_measured_in_every_precision_and_dimension(tiny: tuple[Path, Any]) -> None:
    _, found = tiny
    shape = [(row["precision"], row["dim"], row["error"]) for row in found["rows"]]
    assert shape == [(precision, dim, "") for precision in ("fp32", "bf16", "int8") for dim in (48, 32)]
    assert all(row["recall"]["questions"] == 60 for row in found["rows"])


def test_its_nearness_to_fp32_is_measured_and_kept(tiny: tuple[Path, Any]) -> None:
    home, found = tiny
    cosines = {(row["precision"], row["dim"]): row["cosine"] for row in found["rows"]}
    assert cosines["fp32", 48] is None
    assert all(0.95 < cosine < 1 for (precision, _), cosine in cosines.items() if precision != "fp32")
    kept = json.loads((home / "measured.json").read_text())
    assert {name.split("-", 2)[2].rsplit("-", 1)[0] for name in kept} == {"48-bf16", "32-bf16", "48-int8", "32-int8"}


# --- bench search ----------------------------------------------------------------------------------------------------

STAGES = ["query embedded", "index searched", "rows, order and words", "whole search"]


def test_searches_are_timed_through_a_server_and_without_one_stage_by_stage(home: Path) -> None:
    with RunningServer(home) as server:
        server.say("うちの猫の名前はミケっていうの", "s")
        server.say("きのう富士通のノートPCを12万円で買ったんだ", "s")
        server.post("/v1/sessions/s/close")
        server.settle()
        done = command(home, "bench", "search", "--times", "3")
    first, second, last = done.stdout.splitlines()
    assert first == "3 searches among 2 memories"
    assert second.startswith("  whole search ")
    assert last.startswith("Through the running server.")

    found = json_of(home, "bench", "search", "--times", "5")
    assert (found["memories"], found["searches"]) == (2, 5)
    assert [stage["stage"] for stage in found["stages"]] == STAGES
    assert all(0 < stage["p50_ms"] <= stage["p95_ms"] for stage in found["stages"])
