"""The project's own OpenAPI file: it holds every route, and a real server keeps what it promises, whatever is sent."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS, load_all_checks, not_a_server_error

from tests.routes import as_openapi, routes
from tests.running import RunningServer
from tests.speech import Services, services

load_all_checks()


@schemathesis.serializer("audio/wav", "audio/L16")
def _sound(_: Any, value: Any) -> bytes:
    return bytes(getattr(value, "data", value))


SPEC = yaml.safe_load((Path(__file__).parents[2] / "web" / "openapi.yaml").read_text("utf-8"))
KEPT = ("status_code_conformance", "content_type_conformance", "response_schema_conformance")
CHECKED = [not_a_server_error, *(CHECKS.get_one(name) for name in (*KEPT, "response_headers_conformance"))]
UNDOCUMENTED = ("pages.", "static", "admin.")  # for people; and the command line of this machine, which goes with it
EXAMPLES = int(os.environ.get("STACKMEM_TEST_EXAMPLES", "12"))  # requests of each operation; 200 now and then


def documented() -> set[tuple[str, str]]:
    methods = ("get", "post", "patch", "put", "delete")
    return {
        (method.upper(), re.sub(r"\{[^}]+\}", "{}", path))
        for path, item in SPEC["paths"].items()
        for method in methods
        if method in item
    }


def built() -> set[tuple[str, str]]:
    return {(m, as_openapi(rule)) for m, rule, endpoint in routes() if not endpoint.startswith(UNDOCUMENTED)}


def test_every_route_is_documented_and_nothing_else() -> None:
    assert built() - documented() == set()
    assert documented() - built() == set()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("fuzz") / "home"
    home.mkdir()
    with services() as heard, RunningServer(home, **speech_settings(heard)) as running:
        running.say("うちの猫の名前はミケっていうの", "a")
        running.post("/v1/sessions/a/close")
        running.settle()
        yield running
        assert running.say("まだちゃんと話せる？")["reply"]
        assert "Traceback" not in running.said(), running.said()[-3000:]


def speech_settings(heard: Services) -> dict[str, str]:
    """Return the settings that give the server ears and a voice; the offline rules talk."""
    return {name: value for name, value in heard.settings.items() if name.startswith(("asr", "tts"))}


def operations() -> list[Any]:
    found = [result.ok() for result in schemathesis.openapi.from_dict(SPEC).get_all_operations()]
    return [one for one in found if (one.method.upper(), re.sub(r"\{[^}]+\}", "{}", one.path)) in built()]


def cases() -> list[Any]:
    """Each operation with what is allowed; and with what is not, where there is anything that can be wrong."""
    good, bad = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    wrong = [
        one
        for one in operations()
        if list(one.query) or any(body.media_type == "application/json" for body in one.body)
    ]
    pairs = [*((one, good) for one in operations()), *((one, bad) for one in wrong)]
    return [pytest.param(one, mode, id=f"{mode.value} {one.method.upper()} {one.path}") for one, mode in pairs]


@pytest.mark.parametrize(("operation", "mode"), cases())
def test_whatever_is_sent_is_answered_as_documented(server: RunningServer, operation: Any, mode: Any) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=EXAMPLES <= 12,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any) -> None:
        response = case.call(base_url=server.url, timeout=30)
        case.validate_response(response, checks=CHECKED)

    send()


def test_the_server_hands_out_the_same_file(server: RunningServer) -> None:
    status, text = server.get("/openapi.yaml")
    assert (status, yaml.safe_load(text)) == (200, SPEC)
