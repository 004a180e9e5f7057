"""The settings tables of the READMEs say what the code reads."""

import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from stackmem.body import CLIENTS
from stackmem.config import PREFIX, Settings

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "README.ja.md")


def table(name: str) -> dict[str, str]:
    rows = re.findall(r"^\| `(STACKMEM_\w+)` \|(.*?)\| .+ \|$", (ROOT / name).read_text("utf-8"), re.MULTILINE)
    return {setting: default.strip("` ") for setting, default in rows}


def shown_default(value: object) -> str:
    if isinstance(value, SecretStr) or value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("name", READMES)
def test_every_setting_stands_in_the_table_with_its_default(name: str) -> None:
    defaults = {PREFIX + field.upper(): shown_default(info.default) for field, info in Settings.model_fields.items()}
    assert table(name) == defaults


@pytest.mark.parametrize("name", READMES)
def test_no_setting_is_named_that_nothing_reads(name: str) -> None:
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    named = set(re.findall(r"STACKMEM_[A-Z0-9_]+[A-Z]", (ROOT / name).read_text("utf-8")))
    assert named - known <= {"STACKMEM_MEMORY", "STACKMEM_JUDGE"}  # STACKMEM_MEMORY_* stands for all of them


def code_of(name: str) -> list[str]:
    """Return the lines of a page's code blocks, without their comments and white space."""
    blocks = re.findall(r"^ *```\w+\n(.*?)^ *```", (ROOT / name).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]


def test_the_way_to_a_talking_robot_has_the_same_lines_in_both_languages() -> None:
    lines = code_of("docs/robot.ja.md")
    assert len(lines) > 30
    assert code_of("docs/robot.md") == lines


@pytest.mark.parametrize("name", ["docs/robot.md", "docs/robot.ja.md"])
def test_the_way_to_a_talking_robot_names_what_is_there(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert set(re.findall(r"STACKMEM_[A-Z_]+[A-Z]", text)) <= {
        PREFIX + field.upper() for field in Settings.model_fields
    }
    for path in ("examples/cores3/main.py", "examples/cores3/stackmem_client.py", "persona/stackchan.toml"):
        assert path in text
        assert (ROOT / path).is_file()
    example = (ROOT / "examples/cores3/main.py").read_text("utf-8")
    for constant in ("URL", "TOKEN", "WIFI", "STARTS_BY_VOICE"):
        assert f"\n{constant} = " in example
    assert set(re.findall(r"client=([a-z-]+)", text)) == set(CLIENTS)
