"""Read YAML so that every value is known by its line."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

Path = tuple[Hashable, ...]  # keys and places from the top, as pydantic's errors name them


_FULL_WIDTH = re.compile(r"[ -]*(\u3000|[A-Za-z_]+(\uff1a|:\u3000))")
MOST = 100_000  # values of a file; aliases of aliases would be billions


class Loader(yaml.SafeLoader):
    """YAML without its dates: `2026-07-01` stays the text that was written."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class YamlFault(Exception):
    """The file is no YAML."""

    def __init__(self, line: int, reason: str):
        super().__init__(reason)
        self.line = line


def load(text: str) -> tuple[Any, dict[Path, int]]:
    """Return the value, and the line (from 1) of every key and list item in it.

    Raises YamlFault with the line for what is no YAML, names a key twice or refers to itself.
    """
    loader = None
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        lines: dict[Path, int] = {(): 1}
        if node is None:
            return None, lines
        _walk(loader, node, (), lines, set())
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        line = mark.line + 1 if mark else 1
        raise YamlFault(line, f"{exc.problem or exc.context}{_full_width(text, line)}") from exc
    except RecursionError as exc:
        raise YamlFault(1, "values stand too deep in one another") from exc
    except (yaml.YAMLError, ValueError) as exc:
        raise YamlFault(1, str(exc).splitlines()[0]) from exc
    finally:
        if loader is not None:
            loader.dispose()


def _full_width(text: str, line: int) -> str:
    """Return a hint where a full-width colon or blank stands before or on the line YAML stumbled on."""
    for number, written in enumerate(text.splitlines()[:line], 1):
        if _FULL_WIDTH.match(written):
            return f"; line {number} has a full-width colon or blank: write : and spaces"
    return ""


def _walk(loader: Loader, node: yaml.Node, path: Path, lines: dict[Path, int], above: set[int]) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if len(lines) > MOST:
        raise YamlFault(node.start_mark.line + 1, f"more than {MOST} values are no scenario")
    if id(node) in above:
        raise YamlFault(node.start_mark.line + 1, "a value refers to itself")
    above = above | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for place, item in enumerate(node.value):
            _walk(loader, item, (*path, place), lines, above)
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key_node, value_node in node.value:
            line, key = key_node.start_mark.line + 1, loader.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise YamlFault(line, "a key is no plain word")
            if key in seen:
                raise YamlFault(line, f"the key {key!r} stands here twice")
            seen.add(key)
            lines[(*path, key)] = line
            _walk(loader, value_node, (*path, key), lines, above)
