"""The robot's body as we know it: ids of emotions and actions, and what other clients call them. Angles are its own."""

from collections.abc import Mapping, Sequence

from stackmem.exceptions import InvalidInput
from stackmem.persona import REST

# What models and other robots say for an id of m5stack-avatar, which are ours.
OTHER_WORDS = {
    "surprised": "doubt", "surprise": "doubt", "doubtful": "doubt",
    "joy": "happy", "fun": "happy", "sorrow": "sad",
}  # fmt: skip

# A client and its word for each emotion; what it has no word for is neutral. Actions have the same ids everywhere.
CLIENTS: Mapping[str, Mapping[str, str]] = {
    # stackchan-kai's sidecar
    "kai": {"happy": "happy", "angry": "angry", "sad": "sad", "doubt": "surprised", "sleepy": "sleepy"},
    # The first Stack-chan's firmware (Moddable), https://github.com/stack-chan/stack-chan
    "stack-chan": {"happy": "happy", "angry": "angry", "sad": "sad", "doubt": "doubtful", "sleepy": "sleepy"},
    # VRM 0.x avatars, AIAvatarKit among them: neutral, joy, angry, sorrow, fun
    "vrm": {"happy": "joy", "angry": "angry", "sad": "sorrow"},
}


def emotion_id(word: str, ids: Sequence[str]) -> str:
    """Return which of the persona's emotions a model's word means; ``neutral`` where it is none."""
    return _id(word, ids, REST["emotions"])


def action_id(word: str, ids: Sequence[str]) -> str:
    """Return which of the persona's actions a model's word means; ``none`` where it is none."""
    return _id(word, ids, REST["actions"])


def _id(word: str, ids: Sequence[str], rest: str) -> str:
    known = {each.casefold(): each for each in reversed(ids)}
    said = word.strip().casefold()
    return word if word in ids else known.get(said) or known.get(OTHER_WORDS.get(said, ""), rest)


def check_client(client: str | None) -> str:
    """Return the name of a client whose words we know, "" for one that takes our ids. Raises InvalidInput."""
    if client and client not in CLIENTS:
        raise InvalidInput(f"client must be one of {', '.join(CLIENTS)}; without it the ids of the persona are sent.")
    return client or ""


def word_for(client: str, emotion: str) -> str:
    """Return a client's word for an emotion."""
    return CLIENTS[client].get(emotion, REST["emotions"]) if client else emotion


def words_for(client: str, emotions: Sequence[str]) -> list[str]:
    """Return all words that a client may get for these emotions, each once."""
    return list(dict.fromkeys(word_for(client, emotion) for emotion in emotions))
