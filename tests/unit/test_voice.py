"""The speech of replies: made while the model still writes, shared, kept, made again; the synthesis is over HTTP."""

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stackmem import kept_speech
from stackmem import voice as module
from stackmem.adapters.openai_speaker import OpenAISpeaker
from stackmem.adapters.openai_transcriber import OpenAITranscriber
from stackmem.aloud import APOLOGIES, Aloud, NoEars, fixed_lines
from stackmem.converse import Said
from stackmem.exceptions import InvalidInput, NotFound, TransientError
from stackmem.kept_speech import KeptSpeech
from stackmem.models import Turn, proxy
from stackmem.persona import load_persona
from stackmem.sound import Sound
from stackmem.thinking import Deadline
from stackmem.voice import Voice, is_speakable
from tests.running import until
from tests.scripted import DONE, Answer, ScriptedServer, delta, error, say, speech, sse, tone, transcript
from tests.speech import Service
from tests.unit.conftest import ScriptedModel
from tests.unit.world import World, again

PATIENCE = 30.0
TONE = tone(0.1, 8000)


@pytest.fixture
def tts() -> Iterator[Service]:
    service = Service(speech(TONE))
    with service.server:
        yield service


@pytest.fixture
def kept(tmp_path: Path) -> KeptSpeech:
    return KeptSpeech(tmp_path / "speech", "v1")


@pytest.fixture
def voice(tts: Service, kept: KeptSpeech) -> Iterator[Voice]:
    speaker = OpenAISpeaker(tts.server.base_url, "", "irodori-tts", "none")
    yield Voice(speaker, kept, PATIENCE, lambda: fixed_lines(load_persona("stackchan")))
    speaker.close()


@pytest.fixture
def aloud(world: World, voice: Voice) -> Aloud:
    return Aloud(world.conversation, None, voice, 5.0)


def spoken(tts: Service) -> list[str]:
    return [request.json["input"] for request in tts.requests]


def files(kept: KeptSpeech) -> list[Path]:
    return sorted(path for path in kept._folder.rglob("*") if path.is_file())


# --- while the turn is answered ---


def test_the_first_sentence_is_synthesised_before_the_model_has_said_the_rest(
    aloud: Aloud, model: ScriptedModel, tts: Service
) -> None:
    begun = threading.Event()

    def synthesis(_: Any) -> Answer:
        begun.set()
        return speech(TONE)

    tts.answer = synthesis
    rest = 'い天気だね。散歩に行こう。", "emotion": "happy", "action": "nod"}'
    model.script = [
        sse(delta('{"reply": "おはよう。い'), begun, delta(rest), delta(finish_reason="stop"), DONE),
    ]
    turn, utterance = aloud.turn(Said("home", "おはよう", "s"))
    assert utterance is not None
    assert utterance.has_begun(Deadline(PATIENCE))
    assert utterance.whole() is not None
    assert spoken(tts)[0] == "おはよう。"
    assert "".join(spoken(tts)) == turn.reply == "おはよう。いい天気だね。散歩に行こう。"


def test_what_came_meanwhile_is_synthesised_in_one_piece(aloud: Aloud, model: ScriptedModel, tts: Service) -> None:
    model.script = [say("一つ。二つ。三つ。四つ。")]
    stored = threading.Event()

    def synthesis(_: Any) -> Answer:
        stored.wait(PATIENCE)
        return speech(TONE)

    tts.answer = synthesis
    _, utterance = aloud.turn(Said("home", "数えて", "s"))
    stored.set()
    assert utterance is not None
    assert utterance.whole() is not None
    assert spoken(tts) == ["一つ。", "二つ。三つ。四つ。"]


class Slow:
    """A synthesis that goes on when it may."""

    def __init__(self, tts: Service):
        self.may, self.asked = threading.Event(), threading.Event()
        tts.answer = self._answer

    def _answer(self, _: Any) -> Answer:
        self.asked.set()
        self.may.wait(PATIENCE)
        return speech(TONE)


def test_a_new_turn_of_the_same_robot_stops_the_speech_of_the_last(
    aloud: Aloud, model: ScriptedModel, tts: Service, voice: Voice
) -> None:
    model.script = [say("とても長い話。その続き。"), say("べつの話。")]
    slow = Slow(tts)
    first, stopped = aloud.turn(Said("home", "話して", "s", "desk"))
    assert slow.asked.wait(PATIENCE)
    _, speaks = aloud.turn(Said("home", "やっぱりいい", "s", "desk"))
    slow.may.set()
    assert stopped is not None
    assert speaks is not None
    assert speaks.whole() is not None
    assert (stopped.whole(), stopped.fault) == (None, module.NEWER)
    assert spoken(tts) == ["とても長い話。", "べつの話。"]
    assert voice.of(first).seconds > 0, "who asks for it now hears it after all"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Said("home", "話して", "s", "desk"), Said("home", "ねえ", "s", "shelf")),
        (Said("home", "話して", "s", "desk"), Said("mari", "ねえ", "s", "desk")),
        (Said("home", "話して", "s"), Said("home", "ねえ", "s")),
        (Said("home", "話して", "s", "kitchen"), Said("home", "ねえ", "t", "kitchen")),  # two, and one token
        (Said("home", "話して", "s", "desk", key="k"), Said("home", "話して", "s", "desk", key="k")),
    ],
)
def test_another_robot_or_a_retry_stops_nobody(
    aloud: Aloud, model: ScriptedModel, tts: Service, first: Said, second: Said
) -> None:
    model.script = lambda _: say("一つめ。二つめ。")
    slow = Slow(tts)
    _, utterance = aloud.turn(first)
    assert slow.asked.wait(PATIENCE)
    aloud.turn(second)
    slow.may.set()
    assert utterance is not None
    assert utterance.whole() is not None


def test_a_retry_beside_its_turn_and_a_polled_turn_leave_one_speech(
    aloud: Aloud, model: ScriptedModel, tts: Service
) -> None:
    model.script = lambda _: say("一つめ。")
    said = Said("home", "話して", "s", "desk", key="k")
    turn, is_new = aloud.begin(said)
    slow = Slow(tts)
    answered = aloud.finish(turn, is_new)
    assert slow.asked.wait(PATIENCE)
    _, again_asked = aloud.turn(said)
    slow.may.set()
    assert again_asked is None
    assert aloud.voice is not None
    assert aloud.voice.of(answered).seconds > 0
    polled, is_new = aloud.begin(Said("home", "もっと", "s", "desk"))
    assert aloud.voice.of(aloud.finish(polled, is_new)).seconds > 0
    assert len(aloud._speaking) == 1


def test_the_trace_says_when_the_first_sound_was_there(aloud: Aloud, model: ScriptedModel) -> None:
    model.script = [say("はい。")]
    turn, _ = aloud.turn(Said("home", "ねえ", "s", took_ms={"asr": 12.3456}))
    spent = until(lambda: (now := again(turn).durations_ms).get("tts") and now, "the speech is noted")
    assert spent["asr"] == 12.346
    assert spent["first_sound"] >= spent["model"]
    assert aloud.reasons() == []


def test_a_turn_without_a_voice_is_a_turn(world: World, model: ScriptedModel) -> None:
    model.script = [say("はい。")]
    turn, utterance = Aloud(world.conversation, None, None, 5.0).turn(Said("home", "ねえ", "s"))
    assert (turn.reply, utterance) == ("はい。", None)


def test_who_does_not_listen_is_not_spoken_to(aloud: Aloud, model: ScriptedModel, tts: Service, voice: Voice) -> None:
    model.script = [say("はい。")]
    turn, utterance = aloud.turn(Said("home", "ねえ", "s"), speak=False)
    assert (utterance, spoken(tts)) == (None, [])
    assert len(voice.of(turn).samples) == len(TONE.samples)


def test_a_stored_answer_is_not_spoken_again(aloud: Aloud, model: ScriptedModel, tts: Service) -> None:
    model.script = [say("はい。")]
    said = Said("home", "ねえ", "s", key="k")
    turn, utterance = aloud.turn(said)
    assert utterance is not None
    utterance.whole()
    assert aloud.turn(said) == (turn, None)
    assert spoken(tts) == ["はい。"]


def test_a_turn_that_is_refused_is_not_spoken(aloud: Aloud, tts: Service) -> None:
    with pytest.raises(InvalidInput):
        aloud.turn(Said("home", " ", "s"))
    assert spoken(tts) == []


def test_a_polled_turn_speaks_too(aloud: Aloud, model: ScriptedModel, voice: Voice, tts: Service) -> None:
    model.script = [say("おまたせ。")]
    turn = aloud.finish(*aloud.begin(Said("home", "ねえ", "s", took_ms={"asr": 5.0})))
    assert voice.of(turn).seconds == pytest.approx(0.1)
    assert spoken(tts) == ["おまたせ。"]
    assert again(turn).durations_ms["asr"] == 5.0


def test_a_polled_turn_without_a_voice_is_answered(world: World, model: ScriptedModel) -> None:
    model.script = [say("おまたせ。")]
    aloud = Aloud(world.conversation, None, None, 5.0)
    assert aloud.finish(*aloud.begin(Said("home", "ねえ", "s"))).reply == "おまたせ。"


def test_the_model_has_only_what_is_left_of_the_one_deadline(world: World, model: ScriptedModel) -> None:
    model.script = [say("はい。")]
    with ScriptedServer(lambda _: say("はい。")) as server:
        from stackmem.adapters.openai_chat import OpenAIChat

        chat = OpenAIChat(server.base_url, "", "m", extra_body={})
        slow = World(world.embedder, chat, clock=world.clock)
        aloud = Aloud(slow.conversation, None, None, 5.0)
        aloud.turn(Said("home", "ねえ", "s"), Deadline(4.0).moved(-2.0))
        chat.close()
        assert float(server.requests[0].headers["x-stainless-read-timeout"]) <= 2.0
    late, _ = aloud.turn(Said("home", "ねえ", "s"), Deadline(0))
    assert late.degraded


def test_a_reply_without_words_makes_no_sound(aloud: Aloud, model: ScriptedModel, tts: Service) -> None:
    model.script = [say("……！")]
    _, utterance = aloud.turn(Said("home", "えっ", "s"))
    assert utterance is not None
    assert not utterance.has_begun(Deadline(PATIENCE))
    assert (utterance.whole(), utterance.fault) == (None, "There is nothing to say aloud.")
    assert spoken(tts) == []


def test_of_two_requests_for_the_same_turn_one_speaks(world: World, voice: Voice, tts: Service) -> None:
    go = threading.Event()

    def synthesis(_: Any) -> Answer:
        go.wait(PATIENCE)
        return speech(TONE)

    tts.answer = synthesis
    turn = world.turn("ねえ", "はい。うん。")
    first, second = (voice.begin(Deadline(PATIENCE)) for _ in range(2))
    first.add("はい。うん。")
    first.finish(turn)
    second.finish(turn)
    go.set()
    assert first.whole() is not None
    assert second.whole() is None
    assert spoken(tts) == ["はい。うん。"]


def test_only_so_many_utterances_are_at_hand(world: World, voice: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    turns = [world.turn("ねえ", f"……{'！' * number}") for number in range(1, 4)]
    for turn in turns:
        voice.begin(Deadline(PATIENCE)).finish(turn)
    assert list(voice._utterances) == [turn.id for turn in turns[1:]]


# --- asking for it ---


def test_two_who_ask_at_once_share_one_synthesis(world: World, voice: Voice, tts: Service) -> None:
    asked, go = threading.Semaphore(0), threading.Event()

    def synthesis(_: Any) -> Answer:
        go.wait(PATIENCE)
        return speech(TONE)

    tts.answer = synthesis
    turn, found = world.turn("ねえ", "はい。"), list[Sound]()

    def ask() -> None:
        asked.release()
        with proxy.connection_context():  # as a request has
            found.append(voice.of(turn))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        asked.acquire()
    go.set()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert spoken(tts) == ["はい。"]


def test_words_forgotten_while_somebody_waits_for_them_are_not_heard(world: World, voice: Voice, tts: Service) -> None:
    slow, turn = Slow(tts), world.turn("ねえ", "ひみつ。")

    def forget() -> None:
        slow.asked.wait(PATIENCE)
        with proxy.connection_context():
            Turn.update(reply="").where(Turn.id == turn.id).execute()
        slow.may.set()

    forgetting = threading.Thread(target=forget)
    forgetting.start()
    with pytest.raises(NotFound, match="changed or forgotten"):
        voice.of(turn)
    forgetting.join()


def test_what_is_kept_is_not_made_again_and_another_reply_is(
    world: World, voice: Voice, tts: Service, kept: KeptSpeech
) -> None:
    turn = world.turn("ねえ", "はい。")
    voice.of(turn)
    until(lambda: kept.of_turn(turn), "it is kept")
    assert (voice.of(turn).samples == TONE.samples).all()
    turn.reply = "いいえ。"  # as regenerating does
    turn.save()
    voice.of(turn)
    assert spoken(tts) == ["はい。", "いいえ。"]


def test_a_failure_is_told_with_its_reason_and_tried_again(world: World, voice: Voice, tts: Service) -> None:
    turn = world.turn("ねえ", "はい。")
    tts.answer = error(503, "no slot became available")
    with pytest.raises(NotFound, match=f"turn {turn.id} could not be made.*no slot became available"):
        voice.of(turn)
    assert "no slot" in voice.fault
    tts.answer = speech(TONE)
    assert voice.of(turn).seconds == pytest.approx(0.1)
    assert voice.fault == ""


def test_what_nobody_can_say_is_told(world: World, voice: Voice) -> None:
    for turn in (
        world.turn("ねえ", "……！"),
        world.turn("ねえ", ""),
        world.turn("ねえ", "はい", imported=True),
        world.turn("ねえ", "はい", state="open"),
    ):
        assert not is_speakable(turn)
        with pytest.raises(NotFound, match="no words"):
            voice.of(turn)


def test_a_full_disk_costs_nothing_but_the_file(
    world: World, voice: Voice, tts: Service, kept: KeptSpeech, tmp_path: Path
) -> None:
    (tmp_path / "speech").write_text("in the way of a folder")
    turn = world.turn("ねえ", "はい。")
    assert voice.of(turn).seconds == pytest.approx(0.1)
    assert voice.of(turn).seconds == pytest.approx(0.1)  # it is still at hand
    assert voice.line(APOLOGIES["ja"]["no_ears"], Deadline(PATIENCE)).seconds == pytest.approx(0.1)
    assert spoken(tts) == ["はい。", APOLOGIES["ja"]["no_ears"]]


def test_a_synthesis_out_of_order_is_one_sentence(world: World, tts: Service, kept: KeptSpeech) -> None:
    class Broken:
        voice = "x"

        def speak(self, text: str, timeout_s: float) -> Sound:
            raise RuntimeError(text)

    with pytest.raises(NotFound, match="the log says more"):
        Voice(Broken(), kept, PATIENCE, list).of(world.turn("ねえ", "はい。"))


def test_speech_that_is_not_ready_in_time_is_told(world: World, tts: Service, kept: KeptSpeech) -> None:
    tts.answer = Answer(end="never")
    speaker = OpenAISpeaker(tts.server.base_url, "", "irodori-tts", "none")
    with pytest.raises(NotFound, match="did not answer in time"):
        Voice(speaker, kept, 0.2, list).of(world.turn("ねえ", "はい。"))
    speaker.close()


# --- fixed lines ---


def test_fixed_lines_are_spoken_once_and_then_without_the_synthesis(
    world: World, voice: Voice, tts: Service, model: ScriptedModel, aloud: Aloud
) -> None:
    voice.prepare().join()
    made = spoken(tts)
    assert len(made) == len(set(made)) == 7
    tts.answer = error(500, "down")
    voice.prepare().join()
    model.script = [error(400, "no")]
    turn, utterance = aloud.turn(Said("home", "もしもし", "s"))
    assert turn.degraded
    assert utterance is not None
    assert utterance.has_begun(Deadline(PATIENCE))
    assert voice.of(turn).seconds > 0.2
    for line in APOLOGIES["ja"].values():
        assert voice.can_say(line, Deadline(PATIENCE))
    assert spoken(tts) == made


def test_lines_that_cannot_be_spoken_now_are_spoken_when_they_can(voice: Voice, tts: Service) -> None:
    tts.answer = error(500, "down")
    voice.prepare().join()
    line = APOLOGIES["ja"]["deaf"]
    assert not voice.can_say(line, Deadline(PATIENCE))
    tts.answer = speech(TONE)
    assert voice.can_say(line, Deadline(PATIENCE))


def test_both_languages_have_the_same_apologies() -> None:
    assert APOLOGIES["ja"].keys() == APOLOGIES["en"].keys()


# --- ears ---


def test_listening_tells_words_time_and_silence(world: World) -> None:
    asr = Service(transcript("language Japanese<asr_text>やあ"))
    with asr.server:
        ears = OpenAITranscriber(asr.server.base_url, "", "qwen")
        aloud = Aloud(world.conversation, ears, None, 5.0)
        said = aloud.listen(Said("home", "", "s", key="k"), TONE, Deadline(PATIENCE))
        assert said is not None
        assert (said.text, said.session_id, said.key) == ("やあ", "s", "k")
        assert said.took_ms["asr"] > 0
        asr.answer = transcript("language None<asr_text>")
        assert aloud.listen(said, TONE, Deadline(PATIENCE)) is None
        asr.answer = error(500, "CUDA")
        with pytest.raises(TransientError, match="CUDA"):
            aloud.listen(said, TONE, Deadline(PATIENCE))
        assert "CUDA" in aloud.reasons()[0]
        ears.close()


def test_what_is_too_short_for_a_word_or_could_not_be_stored_is_not_listened_to(world: World) -> None:
    asr = Service(transcript("まぼろし"))
    with asr.server:
        ears = OpenAITranscriber(asr.server.base_url, "", "qwen")
        aloud = Aloud(world.conversation, ears, None, 5.0)
        for seconds in (0.001, 0.05):
            assert aloud.listen(Said("home", "", "s"), tone(seconds, 16000), Deadline(PATIENCE)) is None
        late = world.clock.now() + timedelta(hours=1)
        for said, why in ((Said("home", "", "s" * 201), "session id"), (Said("home", "", at=late), "future")):
            with pytest.raises(InvalidInput, match=why):
                aloud.listen(said, TONE, Deadline(PATIENCE))
        assert asr.requests == []
        ears.close()


def test_without_ears_it_says_what_to_set(world: World) -> None:
    with pytest.raises(NoEars, match="STACKMEM_ASR_BASE_URL"):
        Aloud(world.conversation, None, None, 5.0).listen(Said("home", ""), TONE, Deadline(1))


# --- what is kept ---


def test_files_are_whole_or_not_there(world: World, kept: KeptSpeech) -> None:
    turn = world.turn("ねえ", "はい。")
    assert kept.of_turn(turn) is None
    assert kept.prune(datetime.now(UTC)) == 0
    kept.keep(turn, TONE)
    (path,) = files(kept)
    assert path.stat().st_mode & 0o777 in (0o644, 0o600, 0o664)
    path.write_bytes(b"RIFF half a fi")
    assert kept.of_turn(turn) is None
    kept.keep(turn, TONE)
    found = kept.of_turn(turn)
    assert found is not None
    assert (found.samples == TONE.samples).all()
    other = KeptSpeech(path.parent, "v2")
    assert other.of_turn(turn) is None


def test_what_is_old_goes(world: World, kept: KeptSpeech) -> None:
    old, new = world.turn("ねえ", "はい。"), world.turn("ねえ", "いいえ。")
    for turn in (old, new):
        kept.keep(turn, TONE)
    kept.keep_line("ごめん。", TONE)
    now = datetime.now(UTC)
    (path,) = [path for path in files(kept) if path.name.startswith(f"{old.id}-")]
    long_ago = (now - timedelta(hours=25)).timestamp()
    os.utime(path, (long_ago, long_ago))
    assert kept.prune(now) == 1
    assert (kept.of_turn(old), kept.of_turn(new) is None) == (None, False)
    assert kept.prune(now + timedelta(days=31)) == 2
    assert files(kept) == []


def test_what_a_killed_process_left_half_written_goes_soon(world: World, kept: KeptSpeech) -> None:
    turn = world.turn("ねえ", "はい。")
    kept.keep(turn, TONE)
    kept.keep_line("ごめん。", TONE)
    for path in files(kept):
        path.with_name(f".{path.name}.1.1").write_bytes(b"RIFF")
    now = datetime.now(UTC)
    assert kept.prune(now) == 0  # another process may be writing it
    assert kept.prune(now + timedelta(minutes=2)) == 2
    assert all(not path.name.startswith(".") for path in files(kept))
    assert kept.of_turn(turn) is not None


def test_what_is_too_much_goes_the_oldest_first(
    world: World, kept: KeptSpeech, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [world.turn("ねえ", f"はい{number}") for number in range(4)]
    for age, turn in enumerate(reversed(turns)):
        kept.keep(turn, TONE)
        path = max(files(kept), key=lambda path: path.stat().st_mtime_ns)
        moment = datetime.now(UTC).timestamp() - 60 * (age + 1)
        os.utime(path, (moment, moment))
    monkeypatch.setattr(kept_speech, "BYTES", 2 * files(kept)[0].stat().st_size)
    assert kept.prune(datetime.now(UTC)) == 2
    assert [kept.of_turn(turn) is not None for turn in turns] == [False, False, True, True]


def test_speech_of_words_that_have_gone_or_changed_goes(world: World, kept: KeptSpeech) -> None:
    turns = [world.turn("ねえ", f"はい{number}") for number in range(3)]
    for turn in turns:
        kept.keep(turn, TONE)
    Turn.update(reply="").where(Turn.id == turns[0].id).execute()
    Turn.update(reply="べつの返事").where(Turn.id == turns[1].id).execute()
    assert kept.prune(datetime.now(UTC)) == 2
    assert [path.name.split("-")[0] for path in files(kept)] == [str(turns[2].id)]
