"""The store in which a script runs: its clock is the script's, and nothing in it counts real seconds."""

from datetime import UTC, datetime
from pathlib import Path

from evals.stage import Hints, SetClock, opened
from stackmem.circuit import Circuit


def test_a_slow_answer_closes_no_circuit_to_the_turns_after_it(tmp_path: Path) -> None:
    with opened(tmp_path / "home", SetClock(datetime(2026, 8, 1, tzinfo=UTC)), Hints()) as runtime:
        assert runtime.conversation.thinker.chat is runtime.chat
        assert not isinstance(runtime.chat, Circuit)
