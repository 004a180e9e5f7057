"""``auto``: by tool calls until the model's own answers, or its server, show that it cannot. Never a probe."""

from dataclasses import replace
from typing import Any

import pytest

from stackmem.converse import Said
from stackmem.tool_mode import STRIKES, ToolUse
from tests.scripted import Answer, content, error
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World

UNKNOWN = [
    "ごめん、覚えていないみたい。",
    "それは覚えてないなあ",
    "記憶にありません",
    "思い出せないや",
    "まだ聞いていないよ",
]
ENGLISH = ["Sorry, I don't remember that.", "I have no record of it.", "I can’t recall — I cannot recall."]


@pytest.mark.parametrize("reply", UNKNOWN + ENGLISH)
def test_not_to_remember_without_a_search_speaks_against_tool_calls(reply: str) -> None:
    use = ToolUse("auto")
    for _ in range(STRIKES):
        assert use.mode == "native"
        use.answered(reply, called=False)
    assert use.mode == "json"


@pytest.mark.parametrize("reply", ["こんにちは！", "よく覚えているよ", "覚えておくね", "I remember that!", ""])
def test_other_answers_do_not(reply: str) -> None:
    use = ToolUse("auto")
    for _ in range(10):
        use.answered(reply, called=False)
    assert use.mode == "native"


def test_one_call_proves_that_the_model_can() -> None:
    use = ToolUse("auto")
    use.answered(UNKNOWN[0], called=False)
    use.answered("13万円だったよ", called=True)
    for _ in range(10):
        use.answered(UNKNOWN[0], called=False)
    assert use.mode == "native"
    assert not use.refused()


@pytest.mark.parametrize(("setting", "mode"), [("native", "native"), ("json", "json")])
def test_what_was_set_stays(setting: Any, mode: str) -> None:
    use = ToolUse(setting)
    for _ in range(5):
        use.answered(UNKNOWN[0], called=False)
    assert not use.refused()
    assert use.mode == mode


REFUSALS = [
    (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
    (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    (500, "tools param requires --jinja flag"),
    (404, "No endpoints found that support tool use."),
]


@pytest.mark.parametrize(("status", "words"), REFUSALS)
def test_a_server_without_tools_is_asked_in_json_from_then_on(
    world: World, model: ScriptedModel, status: int, words: str
) -> None:
    def script(request: Any) -> Answer:
        if request.get("tools"):
            return error(status, {"error": {"message": words}})
        return content('{"search": null, "reply": "やあ！", "emotion": "happy", "action": "nod"}')

    model.script = script
    auto = replace(world.conversation, thinker=replace(world.thinker, tool_use=ToolUse("auto")))
    for _ in range(2):
        turn = auto.turn(Said("home", "こんにちは", "s"))
        assert (turn.reply, turn.degraded) == ("やあ！", False)
    assert [bool(request.get("tools")) for request in model.asked][-1] is False
    assert sum(bool(request.get("tools")) for request in model.asked) <= 2  # the first turn's alone
    stays = world.say("こんにちは", session="native")
    assert stays.degraded
