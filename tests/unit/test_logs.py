"""The log says which turn it is about, and nothing of what was said."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stackmem.logs import JsonLines, TextLines, about, set_up

log = logging.getLogger("tests.logs")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back afterwards."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield root
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def written(formatter: logging.Formatter, *arguments: Any, fail: bool = False) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log.addHandler(handler)
    try:
        try:
            raise ValueError("猫のミケ") if fail else KeyError
        except ValueError:
            log.exception(*arguments)
        except KeyError:
            log.warning(*arguments)
    finally:
        log.removeHandler(handler)
    return stream.getvalue()


def test_a_line_is_one_json_object_with_the_ids() -> None:
    with about(session_id="居間\u2028"), about(turn_id=7):
        line = written(JsonLines(), "%s\n%s", "a", "\ud800")
    assert line.count("\n") == 1
    found = json.loads(line)
    assert (found["level"], found["logger"], found["message"]) == ("WARNING", "tests.logs", "a\n\ud800")
    assert (found["turn_id"], found["session_id"]) == (7, "居間\u2028")
    assert "turn_id" not in json.loads(written(JsonLines(), "after"))


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()], ids=["json", "text"])
def test_what_was_spoken_is_left_out_wherever_it_stands(formatter: logging.Formatter) -> None:
    with about("猫のミケ", " a  b ", "", "x"):
        line = written(formatter, "the server said: 猫のミケ, a b, x", fail=True)
    assert "ミケ" not in line
    assert "a b" not in line
    assert "\\u30df" not in line
    assert "x" in line
    assert "ValueError" in line


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()], ids=["json", "text"])
def test_an_exception_that_is_logged_outside_keeps_its_ids_and_none_of_the_words(formatter: logging.Formatter) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log.addHandler(handler)
    try:
        with about("猫のミケ", turn_id=7):
            raise ValueError("it was 猫のミケ")
    except ValueError:
        log.exception("a request failed")
    finally:
        log.removeHandler(handler)
    line = stream.getvalue()
    assert "ValueError" in line
    assert "ミケ" not in (json.loads(line)["stack"] if isinstance(formatter, JsonLines) else line)
    if isinstance(formatter, JsonLines):
        assert json.loads(line)["turn_id"] == 7


def test_a_row_that_postgresql_refuses_is_left_out() -> None:
    line = written(TextLines(), "null value in column\nDETAIL:  Failing row contains (1, 猫のミケ).\nHINT: x")
    assert "ミケ" not in line
    assert "HINT" in line


@pytest.mark.parametrize("form", ["text", "json"])
def test_everything_goes_to_a_file_where_one_is_named(root: logging.Logger, tmp_path: Path, form: Any) -> None:
    plain = logging.StreamHandler()
    root.addHandler(plain)
    set_up(form, logging.INFO, str(tmp_path / "log"))
    log.info("こんにちは")
    assert plain not in root.handlers
    line = (tmp_path / "log").read_text()
    assert (json.loads(line)["message"] if form == "json" else line[-6:-1]) == "こんにちは"


def test_it_goes_to_stderr_else(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    set_up("json")
    log.warning("hello")
    assert json.loads(capsys.readouterr().err)["message"] == "hello"
