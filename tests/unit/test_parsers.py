"""What is read from outside: whatever it is, it is understood or refused in one sentence, never anything else."""

import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st
from werkzeug.exceptions import UnsupportedMediaType

from evals.scenario import ScenarioFaults, read
from evals.yaml_lines import YamlFault, load
from stackmem.editing import FIELDS, read_changes
from stackmem.exceptions import InvalidInput, SettingsError
from stackmem.persona import load_persona
from stackmem.search_arguments import read_arguments
from web.bodies import flag_in_query, json_object, number_in_query, text_in_header, text_in_query

ZONE = ZoneInfo("Asia/Tokyo")
APP = Flask("test")
TEXT = st.text(max_size=30) | st.sampled_from(
    ["\ud800", "\0", "ﾐｹ", "ｶﾞ", "が", "2026-02-30", "9999-12-31T23:59", "昨日"]
)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
FEW = settings(max_examples=150, deadline=None)


def is_said(words: str | None) -> None:
    assert words
    words.encode()


def is_a_line(line: object) -> None:
    assert isinstance(line, int)
    assert line >= 1


def is_a_sentence(error: Exception) -> None:
    text = str(error)
    assert text.endswith((".", "?")), text
    assert "\n" not in text
    text.encode()  # no half character


@FEW
@given(st.binary(max_size=60) | VALUE.map(lambda value: json.dumps(value).encode()), st.sampled_from(["json", "xml"]))
def test_a_body_is_an_object_or_refused(body: bytes, kind: str) -> None:
    with APP.test_request_context("/", method="POST", data=body, content_type=f"application/{kind}"):
        try:
            assert isinstance(json_object(), dict)
        except InvalidInput as exc:
            is_a_sentence(exc)
        except UnsupportedMediaType as exc:
            is_said(exc.description)


@FEW
@given(TEXT, TEXT)
def test_a_query_and_a_header_are_read_or_refused(value: str, header: str) -> None:
    environ = {"HTTP_X_SESSION_ID": header.encode("utf-8", "replace").decode("latin-1")}
    with APP.test_request_context("/", query_string={"n": value.encode("utf-8", "replace")}, environ_base=environ):
        (text_in_query("n") or "").encode()
        (text_in_header("X-Session-Id") or "").encode()
        for read_one in (lambda: number_in_query("n", 5, 100), lambda: flag_in_query("n")):
            try:
                read_one()
            except InvalidInput as exc:
                is_a_sentence(exc)


@FEW
@given(st.dictionaries(st.sampled_from(["query", "entities", "memory_type", "since", "until", "exact"]), VALUE))
def test_what_a_model_asks_of_a_search_is_read_or_refused(given_: dict[str, Any]) -> None:
    try:
        arguments = read_arguments("home", given_, ZONE)
    except InvalidInput as exc:
        is_a_sentence(exc)
    else:
        assert arguments.where.owner == "home"
        arguments.query.encode()


@FEW
@given(st.dictionaries(st.sampled_from(FIELDS) | TEXT, VALUE, max_size=4))
def test_a_correction_is_read_or_refused(changes: dict[str, Any]) -> None:
    try:
        assert set(read_changes(changes)) <= {*FIELDS, "entity_keys"}
    except InvalidInput as exc:
        is_a_sentence(exc)


YAML = st.text(alphabet="abc猫: -[]{}&*!|>'\"#%\n\t\\\ud800\0", max_size=60)


@FEW
@given(YAML)
def test_yaml_is_read_or_refused_with_its_line(text: str) -> None:
    try:
        load(text)
    except YamlFault as exc:
        is_a_line(exc.line)


def test_any_bytes_as_a_scenario_or_persona_are_refused_in_words(tmp_path: Path) -> None:
    scenario, persona = tmp_path / "x.yaml", tmp_path / "x.toml"

    @FEW
    @given(st.binary(max_size=60) | YAML.map(lambda text: text.encode("utf-8", "replace")))
    def check(data: bytes) -> None:
        scenario.write_bytes(data)
        persona.write_bytes(data)
        try:
            read(scenario, ZONE)
        except ScenarioFaults as exc:
            is_said(str(exc))
        try:
            load_persona(str(persona))
        except SettingsError as exc:
            is_a_sentence(exc)

    check()
