"""「それ忘れて」 deletes nothing: it waits, with what it would concern, until a person does it or drops it."""

import json
from typing import Any

import pytest

from stackmem import forget_requests
from stackmem.exceptions import NotFound
from stackmem.forget_requests import open_requests, request_lines
from stackmem.forgetting import forget
from stackmem.models import ForgetRequest, Memory, Session, Turn
from stackmem.rebuilding import rebuild_from_turns
from tests.unit.conftest import ScriptedModel
from tests.unit.world import ZONE, World, keep, segments, skip, states, summaries


def asked(turn_id: int, what: str) -> dict[str, object]:
    return skip(turn_id) | {"forget": what}


def end(world: World, name: str = "s") -> None:
    Session.update(ended_at=world.clock.now()).where(Session.name == name).execute()


def test_a_wish_to_forget_becomes_a_request_and_deletes_nothing(world: World, model: ScriptedModel) -> None:
    world.turn("暗証番号は4649だよ")
    world.turn("あ、それ忘れて", "わかった")
    end(world)
    model.script = [segments(keep([1], "暗証番号は4649。"), asked(2, "それ"))]
    world.settle()
    assert summaries() == ["暗証番号は4649。"]
    assert states() == ["kept", "skipped"]
    (line,) = request_lines("home", ZONE)
    memory = Memory.get()
    assert line["text"] == "あ、それ忘れて"
    assert line["memories"] == [{"memory_id": memory.id, "topic": memory.topic, "summary": memory.summary}]
    assert (line["turn_id"], line["at"]) == (2, "2026-07-23T10:00:00+09:00")


def test_it_is_noted_once_however_often_the_turn_is_looked_at(world: World, model: ScriptedModel) -> None:
    world.turns(5)
    world.turn("それ忘れて")

    def script(request: Any) -> Any:
        count = len(json.loads(request["messages"][1]["content"])["turns"])
        return segments(keep([1], "話。"), asked(count, "それ"))

    model.script = script
    world.settle()
    assert ForgetRequest.select().count() == 1
    assert states() == ["kept", *["skipped"] * 4, "pending"]  # the open topic is looked at again
    end(world)
    world.settle()
    rebuild_from_turns(world.remembering)
    assert ForgetRequest.select().count() == 1


@pytest.mark.parametrize(
    ("what", "meant"),
    [
        ("富士通のPCのこと", ["富士通のPCは13万円。"]),
        ("ＦＵＪＩＴＳＵ", ["Fujitsuのプリンタがある。"]),
        ("猫の名前がミケという話", ["猫の名前はミケ。"]),
        ("猫", ["猫の名前はミケ。"]),
        ("猫のこと", ["猫の名前はミケ。"]),
        ("猫って話", ["猫の名前はミケ。"]),
        ("それ", ["妹は大阪に住む。"]),
        ("今の", ["妹は大阪に住む。"]),
        ("さっきの話", ["妹は大阪に住む。"]),
    ],
)
def test_what_it_would_concern(world: World, what: str, meant: list[str]) -> None:
    world.memory("富士通のPCは13万円。", entities=["富士通", "PC"])
    world.memory("Fujitsuのプリンタがある。", entities=["Fujitsu"])
    world.memory("猫の名前はミケ。", entities=["ミケ"])
    world.memory("妹は大阪に住む。", entities=["大阪"], session="s")
    world.memory("秘密の猫の名前はミケ。", entities=["ミケ"], owner="mari")
    turn = world.turn("忘れて", session="s")
    request = ForgetRequest.create(owner="home", turn=turn.id, what=what, created_at=world.clock.now())
    assert [memory.summary for memory in forget_requests.concerned(request)] == meant


def test_it_may_be_about_what_the_robot_just_recalled(world: World) -> None:
    memory = world.memory("猫の名前はミケ。")
    world.turn("猫の名前は？", "ミケだよ", session="later", searched=True, memory_ids=[memory.id])
    turn = world.turn("その話はもう忘れて", session="later")
    ForgetRequest.create(owner="home", turn=turn.id, what="その話", created_at=world.clock.now())
    ((_, memories),) = open_requests("home")
    assert memories == [memory]


def test_it_is_done_when_all_it_concerns_is_forgotten(world: World) -> None:
    memory = world.memory("暗証番号は4649。", session="s")
    turn = world.turn("それ忘れて", session="s")
    ForgetRequest.create(owner="home", turn=turn.id, what="それ", created_at=world.clock.now())
    forget("home", [memory.id], world.clock.now())
    assert open_requests("home") == []
    assert ForgetRequest.get().what == ""


def test_a_person_may_drop_it(world: World) -> None:
    turn = world.turn("それ忘れて")
    request = ForgetRequest.create(owner="home", turn=turn.id, what="それ", created_at=world.clock.now())
    with pytest.raises(NotFound, match="no open forget request"):
        forget_requests.one("mari", request.id)
    forget_requests.close([forget_requests.one("home", request.id)])
    assert request_lines("home", ZONE) == []
    with pytest.raises(NotFound):
        forget_requests.one("home", request.id)


def test_two_people_talking_ask_the_robot_nothing(world: World, model: ScriptedModel) -> None:
    world.turn("その話は忘れて")
    Session.update(both_speakers=True, ended_at=world.clock.now()).execute()
    model.script = [segments(asked(1, "その話"))]
    world.settle()
    assert not ForgetRequest.select().exists()


def test_a_request_whose_turn_has_gone_shows_no_words(world: World) -> None:
    turn = world.turn("それ忘れて")
    ForgetRequest.create(owner="home", turn=turn.id, what="", created_at=world.clock.now())
    Turn.delete().where(Turn.id == turn.id).execute()
    (line,) = request_lines("home", ZONE)
    assert (line["text"], line["memories"], line["at"]) == ("", [], None)
