"""The settings tables of the READMEs say what the code reads."""

import re
from pathlib import Path

import pytest
from pydantic import SecretStr

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
