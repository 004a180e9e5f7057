"""What every command says of itself, and of a use that is wrong."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from stackmem.cli import main


def names(command: click.Command, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield how each command is called."""
    yield before
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from names(found, (*before, name))


COMMANDS = list(names(main))


def run(*arguments: str) -> Result:
    """Run a command in this process; it must not come further than its usage."""
    return CliRunner().invoke(main, arguments, prog_name="stackmem")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("memories", "nonsense"),
        ("memories", "search"),
        ("memories", "search", "x", "--limit", "0"),
        ("memories", "list", "--type", "dream"),
        ("memories", "list", "--status", "gone"),
        ("memories", "list", "--limit", "many"),
        ("reindex", "--from", "scratch"),
        ("import",),
        ("devices", "add"),
        ("up", "--port", "70000"),
        ("up", "--port", "x"),
        ("status", "--owner", ""),
        ("status", "--owner", "x" * 101),
        ("chat", "--owner", "a\nb"),
        ("status", "--nonsense"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_sentence(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: "), done.stderr


def test_all_commands_are_known_here() -> None:
    assert {("up",), ("chat",), ("memories", "forget"), ("devices", "add"), ("eval", "run")} < set(COMMANDS)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_every_command_says_what_it_does(arguments: tuple[str, ...]) -> None:
    done = run(*arguments, "--help")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == run(*arguments, "-h").stdout
    assert done.stdout.startswith("Usage: stackmem ")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "..." not in re.sub(r"(\[[A-Z_]+\]|[A-Z]+S)\.\.\.", "", done.stdout), "a text is cut off"
