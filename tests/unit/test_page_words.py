"""The words of the pages."""

import re
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest

from stackmem.answers import TYPES
from stackmem.browsing import STATES
from stackmem.listing import STATUSES
from web.pages.shown import texts


def keys(value: Any, path: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every text's name, with the placeholders in it."""
    if isinstance(value, str):
        yield path, tuple(sorted(re.findall(r"{(\w*)}", value)))
        return
    for name, inner in value.items():
        yield from keys(inner, f"{path}.{name}")


def test_both_languages_have_the_same_words_with_the_same_placeholders() -> None:
    assert dict(keys(texts("ja"))) == dict(keys(texts("en")))


@pytest.mark.parametrize("language", ["ja", "en"])
def test_every_kind_state_and_status_has_a_word(language: str) -> None:
    words = texts(language)
    assert set(words["types"]) == set(TYPES)
    assert set(words["statuses"]) == set(STATUSES)
    assert set(words["states"]) == {*STATES, "kept"}


def test_every_word_of_the_templates_is_there() -> None:
    known = dict(keys(texts("ja")))
    for file in resources.files("web").joinpath("templates").iterdir():
        for name in re.findall(r"\bt((?:\.\w+){2})\b", file.read_text("utf-8")):
            assert name in known, f"{file.name}: t{name}"
