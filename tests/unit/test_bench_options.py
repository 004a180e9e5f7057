"""What ``stackmem bench embed`` takes: a wrong option is one sentence, before anything is measured."""

import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from stackmem.cli import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--beside", "/no/such/program"], "--beside: /no/such/program cannot be started"),
        (["--beside", "999999999"], "--beside: there is no process 999999999."),
        (["--dims", "1024,abc"], "'1024,abc' are no dimensions of 32 or more"),
        (["--dims", "16"], "'16' are no dimensions of 32 or more"),
        (["--embedder", "bert"], "'bert' is not one of"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.setenv("STACKMEM_HOME", str(tmp_path / "home"))
    before = signal.getsignal(signal.SIGTERM)
    done = CliRunner().invoke(main, ["bench", "embed", "--embedder", "use", *arguments])
    assert done.exit_code in (1, 2)
    assert words in done.output
    assert signal.getsignal(signal.SIGTERM) is before
