"""What use cases refuse is told on the pages in Japanese: every sentence that a person can meet there."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import web.pages
from web.pages.shown import in_japanese

MODULES = [
    "evals.marks", "stackmem.clock", "stackmem.editing", "stackmem.forget_requests", "stackmem.forgetting",
    "stackmem.listing", "stackmem.naming", "stackmem.why",
    *(f"web.pages.{module.name}" for module in pkgutil.iter_modules(web.pages.__path__)),
]  # fmt: skip
REFUSALS = ("InvalidInput", "NotFound", "Conflict", "Forbidden")


def literals(node: ast.expr) -> Iterator[str]:
    """Yield the sentences an expression can be; a value in one stands as 値."""
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)
    elif isinstance(node, ast.JoinedStr):
        shown = [""]
        for part in node.values:
            quoted = isinstance(part, ast.FormattedValue) and part.conversion == ord("r")
            more = [f"'{word}'" if quoted else word for word in _values(part)]
            shown = [before + after for before in shown for after in more]
        yield from shown


def _values(part: ast.expr) -> list[str]:
    if isinstance(part, ast.Constant):
        return [str(part.value)]
    inner = part.value if isinstance(part, ast.FormattedValue) else part
    return list(literals(inner)) if isinstance(inner, ast.IfExp) else ["値"]


def sentences(module: str) -> list[str]:
    """Return the sentences of all refusals that a module raises."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    calls = [call for call in raised if isinstance(call.func, ast.Name) and call.func.id in REFUSALS]
    return [sentence for call in calls for sentence in literals(call.args[0])]


@pytest.mark.parametrize("sentence", sorted({one for module in MODULES for one in sentences(module)}))
def test_a_refusal_is_told_in_japanese(sentence: str) -> None:
    told = in_japanese(sentence)
    assert told is not None, sentence
    assert told.count("値") == sentence.count("値") or "brings it back" in sentence or "mark it" in sentence


def test_values_stand_in_the_sentence_and_what_is_not_known_stays() -> None:
    assert in_japanese("There is no memory mem_1.") == "記憶 mem_1 はありません。"
    assert in_japanese("{1} and {0} are one name already: spelling does not count.") == (
        "{1} と {0} はもう同じ名前です。書き方のちがいは区別しません。"
    )
    assert in_japanese("Something else.") is None
