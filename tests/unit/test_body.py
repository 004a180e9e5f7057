"""What a model or another robot calls an emotion, and the ids it becomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackmem.body import CLIENTS, action_id, check_client, emotion_id, word_for, words_for
from stackmem.exceptions import InvalidInput

EMOTIONS = ["neutral", "happy", "angry", "sad", "doubt", "sleepy"]
ACTIONS = ["none", "nod", "shake", "look_up", "look_down", "tilt"]
KAI = {"neutral", "happy", "sleepy", "surprised", "sad", "angry"}
MODDABLE = {"neutral", "happy", "sleepy", "doubtful", "sad", "angry"}
VRM = {"neutral", "joy", "angry", "sorrow", "fun"}


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("happy", "happy"),
        (" Happy\n", "happy"),
        ("surprised", "doubt"),
        ("joy", "happy"),
        ("fun", "happy"),
        ("Sorrow", "sad"),
        ("doubtful", "doubt"),
        ("", "neutral"),
        ("うれしい", "neutral"),
        ("\ud800", "neutral"),
        ("neutral", "neutral"),
    ],
)
def test_a_word_becomes_an_id_of_the_persona(word: str, meant: str) -> None:
    assert emotion_id(word, EMOTIONS) == meant


def test_an_id_that_the_persona_adds_is_its_own() -> None:
    assert emotion_id("surprised", [*EMOTIONS, "surprised"]) == "surprised"
    assert emotion_id("照れ", [*EMOTIONS, "照れ"]) == "照れ"
    assert emotion_id("fun", ["neutral", "sad"]) == "neutral"
    assert emotion_id("shy", ["neutral", "Shy", "shy"]) == "shy"
    assert emotion_id("SHY", ["neutral", "Shy"]) == "Shy"


def test_an_unknown_action_is_none() -> None:
    assert action_id("Nod", ACTIONS) == "nod"
    assert action_id("dance", ACTIONS) == "none"
    assert action_id("dance", [*ACTIONS, "dance"]) == "dance"


@pytest.mark.parametrize(("client", "words"), [("kai", KAI), ("stack-chan", MODDABLE), ("vrm", VRM)])
@given(emotion=st.sampled_from(EMOTIONS) | st.text())
def test_a_client_only_gets_words_it_knows(client: str, words: set[str], emotion: str) -> None:
    assert word_for(client, emotion) in words


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_client_calls_an_emotion_is_read_back_as_that(client: str) -> None:
    for emotion, word in CLIENTS[client].items():
        assert emotion_id(word, EMOTIONS) == emotion


def test_doubt_is_surprise_for_kai_and_joy_is_joy_for_an_avatar() -> None:
    assert word_for("kai", "doubt") == "surprised"
    assert word_for("stack-chan", "doubt") == "doubtful"
    assert (word_for("vrm", "happy"), word_for("vrm", "sad"), word_for("vrm", "sleepy")) == ("joy", "sorrow", "neutral")
    assert words_for("vrm", EMOTIONS) == ["neutral", "joy", "angry", "sorrow"]
    assert words_for("", EMOTIONS) == EMOTIONS


def test_a_client_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    assert check_client(None) == check_client("") == ""
    assert check_client("vrm") == "vrm"
    with pytest.raises(InvalidInput, match="kai, stack-chan, vrm"):
        check_client("aibo")
