"""docs/deploy.md and the files of deploy/: every setting and every command in them exists."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from waitress.adjustments import Adjustments

from stackmem.cli import main
from stackmem.config import PREFIX, Settings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "deploy.md"
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
FILES = [PAGE, *(path for path in sorted(DEPLOY.rglob("*")) if path.is_file())]
QUEUES = {"live", "index", "batch"}


def fenced() -> list[str]:
    """Return the lines of the page's shell examples, without their remarks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.split("   #")[0].split(" # ")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(("#", PREFIX))]


def exec_start(unit: Path) -> list[str]:
    text = unit.read_text("utf-8").replace("\\\n", " ").replace("%%", "%")
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    return shlex.split(command)


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]  # type: ignore[no-any-return]


def commands() -> list[list[str]]:
    """Return every command of the page, the units and the compose file, from its program on."""
    found = [exec_start(unit) for unit in UNITS]
    found += [shlex.split(part["command"]) for part in compose().values() if "command" in part]
    for line in fenced():
        inner = re.sub(r"^(sm|docker compose .* exec web stackmem) ", "stackmem ", line)
        found.append(shlex.split(inner))
    found += [shlex.split(command) for command in re.findall(r"`(stackmem [^`]+ [^`]+)`", PAGE.read_text("utf-8"))]
    return [[Path(command[0]).name, *command[1:]] for command in found]


def of(program: str) -> list[list[str]]:
    return [command[1:] for command in commands() if command[0] == program]


def arguments(values: list[str]) -> str:
    return " ".join(values)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_setting_exists(file: Path) -> None:
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    assert set(re.findall(r"STACKMEM_[A-Z0-9_]+[A-Z]", file.read_text("utf-8"))) <= known


@pytest.mark.parametrize("values", of("stackmem"), ids=arguments)
def test_every_command_of_ours_is_understood(values: list[str]) -> None:
    group: click.Command = main
    context = click.Context(main, **main.context_settings)
    while isinstance(group, click.Group):
        name, *values = values
        command = group.get_command(context, name)
        assert command is not None, name
        group = command
    group.make_context(name, values, parent=context, resilient_parsing=False)


def test_there_are_commands_of_every_kind() -> None:
    assert len(of("stackmem")) >= 10
    assert len(of("waitress-serve")) == 3
    assert len(of("celery")) == 9


@pytest.mark.parametrize("values", of("celery"), ids=arguments)
def test_every_worker_takes_queues_that_exist(values: list[str]) -> None:
    assert values[:2] == ["-A", "workers"]
    if values[2] == "beat":
        return
    queues = set(values[values.index("-Q") + 1].split(","))
    assert queues <= QUEUES
    assert "batch" not in queues or (queues, values[values.index("-c") + 1]) == ({"batch"}, "1")


@pytest.mark.parametrize("values", of("waitress-serve"), ids=arguments)
def test_waitress_understands_its_options(values: list[str]) -> None:
    understood, app = Adjustments.parse_args(values)
    assert app == ["web:create_app"]
    assert understood["call"] is True
    assert understood["clear_untrusted_proxy_headers"] == "false"


@pytest.mark.parametrize("kind", ["beat", "worker"])
def test_every_option_of_celery_exists(kind: str) -> None:
    script = [str(Path(sys.executable).with_name("celery")), "-A", "workers", kind, "--help"]
    text = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT, timeout=120).stdout
    options = {value for values in of("celery") if kind in values for value in values[2:] if value.startswith("-")}
    assert [option for option in options if option not in text] == []


def test_a_proxy_is_never_taken_for_this_machines_user() -> None:
    # What waitress would drop is what stackmem knows a proxy by.
    assert all("--no-clear-untrusted-proxy-headers" in values for values in of("waitress-serve"))
    assert "proxy_set_header X-Forwarded-For" in PAGE.read_text("utf-8")


def test_compose_has_one_beat_and_somebody_for_every_queue() -> None:
    services = compose()
    workers = [shlex.split(part["command"]) for part in services.values() if " worker " in part.get("command", "")]
    taken = [queue for values in workers for queue in values[values.index("-Q") + 1].split(",")]
    assert sorted(taken) == sorted(QUEUES)
    assert [name for name, part in services.items() if " beat " in part.get("command", "")] == ["beat"]
    ours = [part for part in services.values() if part["image"] == "stackmem"]
    assert all(part["environment"]["STACKMEM_INDEX_URL"].startswith("http") for part in ours)
    assert all(part["env_file"] == ".env" for part in ours)
    assert all(":" in part["image"] for part in services.values() if part not in ours)
    assert "replicas" not in services["batch"].get("deploy", {})


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_every_unit_is_one(unit: Path, tmp_path: Path) -> None:
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # names of units have capitals
    parsed.read(unit)
    assert parsed["Service"]["WorkingDirectory"] == "/var/lib/stackmem"  # whose .env holds the settings
    assert parsed["Service"]["UMask"] == "0077"
    if (verify := shutil.which("systemd-analyze")) is not None:
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text("utf-8").replace("/opt/stackmem/bin", str(Path(sys.executable).parent)), "utf-8")
        done = subprocess.run([verify, "verify", copy], capture_output=True, text=True, check=False, timeout=60)
        assert unit.name not in done.stderr, done.stderr


def test_every_file_the_page_names_is_there() -> None:
    for link in re.findall(r"\]\(\.\./(.*?)\)", PAGE.read_text("utf-8")):
        assert (ROOT / link).exists(), link
    for name in re.findall(r"`(stackmem-[a-z]+(?:\.timer)?)`", PAGE.read_text("utf-8")):
        assert list((DEPLOY / "systemd").glob(f"{name}*")), name
