"""The main jobs in every shape: one process without services, and several over PostgreSQL and a broker.

The rest of the suite runs in the shape that STACKMEM_TEST_SHAPE names (`make shapes`: in each).
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.checking import check_store, rows
from tests.running import RunningServer, command, environment, json_of, request
from tests.services import required
from tests.shapes import ONE_PROCESS, SHAPES
from tests.waiting import until

TOLD = (
    "うちの猫の名前はミケっていうの",
    "きのう富士通のノートPCを12万円で買ったんだ",
    "アレルギーがあるからエビは食べられない",
)


@pytest.fixture(scope="module", params=[shape for shape in SHAPES if shape != ONE_PROCESS])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Several processes, one after the other asked for everything; the store is checked at the end."""
    for kind in SHAPES[request.param]:
        required(kind)
    home = tmp_path_factory.mktemp(request.param) / "home"
    home.mkdir()
    with RunningServer(home, shape=request.param) as running:
        yield running
        running.settle()
    check_store(home, rows(home, "SELECT count(*) FROM turn")[0][0])


def test_what_was_told_in_one_session_is_found_in_the_next(server: RunningServer) -> None:
    for text in TOLD:
        server.say(text, "monday")
    server.post("/v1/sessions/monday/close")
    server.settle()
    answer = server.say("飼ってるペットの名前おぼえてる？", "friday")
    assert answer["searched"]
    assert "ミケ" in answer["reply"]
    turn = server.get(f"/v1/turns/{answer['turn_id']}")[1]
    assert turn["trace"]["calls"][0]["hits"][0]["memory_id"] in answer["memory_ids"]
    assert server.say("こんにちは", "friday")["searched"] is False
    server.post("/v1/sessions/friday/close")
    server.settle()


def test_the_command_line_finds_a_server_that_others_started(server: RunningServer) -> None:
    found = json_of(server.home, "memories", "search", "猫の名前")
    assert found["memories"][0]["summary"].count("ミケ") == 1
    now = json_of(server.home, "status")
    assert now["index"]["points"] == now["memories"]["active"] == len(TOLD)


def test_a_correction_and_what_is_forgotten(server: RunningServer) -> None:
    (cat,) = [m for m in server.get("/v1/memories?q=%E7%8C%AB")[1]["memories"] if "ミケ" in m["summary"]]
    status, corrected = request(
        "PATCH", f"{server.url}/v1/memories/{cat['memory_id']}", {"summary": "猫の名前はモモ。"}
    )
    assert status == 200
    server.settle()
    assert corrected["memory_id"] in {m["memory_id"] for m in server.get("/v1/memories?q=%E7%8C%AB")[1]["memories"]}
    (shrimp,) = rows(server.home, "SELECT id FROM memory WHERE summary LIKE '%エビ%'")
    done = command(server.home, "memories", "forget", shrimp[0], "--turns", "--now")
    assert done.returncode == 0, done.stderr
    server.settle()
    assert rows(server.home, "SELECT id FROM turn WHERE user LIKE '%エビ%'") == []
    found = json.dumps(server.get("/v1/memories?q=%E3%82%A8%E3%83%93")[1], ensure_ascii=False)
    assert "エビ" not in found


def test_an_import_an_export_and_the_same_again(server: RunningServer) -> None:
    lines = [
        {
            "session": "line",
            "role": "user",
            "text": f"{month}月に{month}回目の旅行で温泉に行った",
            "at": f"2026-{month:02}-01",
        }
        for month in range(1, 6)
    ]
    file = server.home.parent / "log.jsonl"
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    for _ in range(2):
        done = command(server.home, "import", str(file), "--owner", "mari")
        assert done.returncode == 0, done.stdout + done.stderr
    assert json_of(server.home, "status", "--owner", "mari")["turns"]["kept"] > 0
    assert rows(server.home, "SELECT count(*) FROM turn WHERE owner = 'mari'") == [(len(lines),)]
    exported = command(server.home, "export", "--owner", "mari").stdout
    assert {json.loads(line)["kind"] for line in exported.splitlines()} >= {"session", "turn", "memory"}


@pytest.mark.parametrize("source", ["memories", "turns"])
def test_a_rebuild_gives_the_same_index(server: RunningServer, source: str) -> None:
    before = json_of(server.home, "memories", "search", "ノートPC")
    done = command(server.home, "reindex", "--from", source)
    assert done.returncode == 0, done.stderr
    server.settle()
    assert (
        json_of(server.home, "memories", "search", "ノートPC")["memories"][0]["summary"]
        == before["memories"][0]["summary"]
    )


def test_the_pages_show_a_memory_with_its_words(server: RunningServer) -> None:
    status, page = server.get("/memories")
    assert status == 200
    assert "富士通" in page
    assert server.get("/")[0] == server.get("/health")[0] == server.get("/scores")[0] == 200


def test_scoring_goes_to_a_worker_of_its_own(server: RunningServer) -> None:
    send = [sys.executable, "-c", "from workers import app; app.send_task('workers.score')"]
    assert subprocess.run(send, env=environment(server.home), check=False).returncode == 0
    until(lambda: "Task workers.score" in server.log_of("batch").read_text(), "it is scored")
    assert "Task workers.score" not in server.log_of("live").read_text()
    assert "Task workers.remember" not in server.log_of("batch").read_text()
