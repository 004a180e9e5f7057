"""Small talk by rules: greetings, thanks, orders to move, statements; anything else is answered honestly."""

import re
from dataclasses import dataclass

from stackmem.adapters.offline.forgetting import asks_to_forget
from stackmem.adapters.offline.words import LOOKED_AT, is_japanese, is_question
from stackmem.adapters.offline.worth import is_chatter, is_command
from stackmem.text import fold


@dataclass(frozen=True)
class Reply:
    """What the robot says, with the ids of an emotion and an action."""

    text: str
    emotion: str = "neutral"
    action: str = "none"


_JAPANESE: tuple[tuple[re.Pattern[str], Reply], ...] = tuple(
    (re.compile(pattern), reply)
    for pattern, reply in (
        (r"おはよう", Reply("おはよう！", "happy", "nod")),
        (r"こんにち[はわ]", Reply("こんにちは！", "happy", "nod")),
        (r"こんばん[はわ]", Reply("こんばんは！", "happy", "nod")),
        (r"ただいま", Reply("おかえり！", "happy", "nod")),
        (r"おやすみ", Reply("おやすみ、また明日ね。", "sleepy", "nod")),
        (r"(?:行|い)ってきます|(?:行|い)ってくるね", Reply("いってらっしゃい！", "happy", "nod")),
        (r"さようなら|バイバイ|ばいばい|またね|じゃあね", Reply("またね！", "happy", "nod")),
        (r"よろしく|はじめまして|初めまして", Reply("よろしくね！", "happy", "nod")),
        (r"ありがと", Reply("どういたしまして。", "happy", "nod")),
        (r"ごめん(?!、)", Reply("ううん、大丈夫だよ。", "neutral", "nod")),
        (r"元気[?？]|元気(?:です|だった|にして)|調子は", Reply("元気だよ。きみは？", "happy", "nod")),
        (r"(?:何|なに)して(?:い)?[たる]", Reply("きみの話を聞いてるよ。", "neutral", "tilt")),
    )
)
_ENGLISH: tuple[tuple[re.Pattern[str], Reply], ...] = tuple(
    (re.compile(pattern), reply)
    for pattern, reply in (
        (r"\bgood morning\b", Reply("Good morning!", "happy", "nod")),
        (r"\bgood night\b", Reply("Good night, see you tomorrow.", "sleepy", "nod")),
        (r"\b(?:bye|goodbye|see you)\b", Reply("See you!", "happy", "nod")),
        (r"\bthank(?:s| you)\b", Reply("You're welcome.", "happy", "nod")),
        (r"\bhow are you\b|\bhow's it going\b", Reply("I'm fine. And you?", "happy", "nod")),
        (r"\A\W*(?:hi|hello|hey|good (?:afternoon|evening))\b(?!.{30})", Reply("Hello!", "happy", "nod")),
        (r"\bwhat are you doing\b", Reply("I'm listening to you.", "neutral", "tilt")),
        (r"\bi'?m home\b", Reply("Welcome back!", "happy", "nod")),
    )
)
# (what is ordered, Japanese reply, English reply, action)
_MOVES: tuple[tuple[re.Pattern[str], str, str, str], ...] = tuple(
    (re.compile(pattern), japanese, english, action)
    for pattern, japanese, english, action in (
        (r"止ま|とま(?:って|れ)|ストップ|\bstop\b", "了解、止まるね。", "OK, stopping.", "nod"),
        (r"(?:うなず|頷)|\bnod\b", "了解、うなずくね。", "OK, nodding.", "nod"),
        (r"首を?(?:振|ふ)|\bshake\b", "了解、首を振るね。", "OK, shaking my head.", "shake"),
        (r"上を?(?:向|見)|\blook up\b", "了解、上を向くね。", "OK, looking up.", "look_up"),
        (r"下を?(?:向|見)|\blook down\b", "了解、下を向くね。", "OK, looking down.", "look_down"),
        (
            r"前(?:に|へ|まで)?(?:進|歩|行|来)|\b(?:go|move|come) (?:forward|ahead)\b",
            "了解、前に進むね。",
            "OK, moving forward.",
            "nod",
        ),
        (
            r"(?:後ろ|うしろ|バック).*(?:下が|さが|進|し)|下が(?:って|れ)|\b(?:back up|go back|move back)\b",
            "了解、後ろに下がるね。",
            "OK, backing up.",
            "nod",
        ),
        (r"右|\bright\b", "了解、右を向くね。", "OK, turning right.", "nod"),
        (r"左|\bleft\b", "了解、左を向くね。", "OK, turning left.", "nod"),
        (r"前を?(?:向|見)|\blook ahead\b", "了解、前を向くね。", "OK, looking ahead.", "nod"),
    )
)
_GLAD = re.compile(
    r"嬉し|うれし|楽し|たのし|美味し|おいし|合格|買っ|できた|好き|\b(?:happy|glad|fun|great|love|bought|passed)\b"
)
_SORRY = re.compile(
    r"悲し|かなし|疲れ|つかれ|痛|つら|辛い|寂し|さびし|失敗|負け|亡くな|\b(?:sad|tired|hurts?|lost|lonely|failed|sick)\b"
)


def converse(text: str) -> Reply:
    """Return a reply to words that need no memory, in the language of the words."""
    folded = fold(text[:LOOKED_AT]).strip()
    japanese = is_japanese(folded)
    if asks_to_forget(text):  # no promise: a person decides about it
        said = "わかった、忘れてほしいんだね。" if japanese else "OK, you want me to forget that."
        return Reply(said, "neutral", "nod")
    if is_command(folded):
        return _obey(folded, japanese)
    for pattern, reply in _JAPANESE if japanese else _ENGLISH:
        if pattern.search(folded):
            return reply
    if folded and is_chatter(folded):
        return Reply("うん、うん。" if japanese else "Mm-hm.", "neutral", "nod")
    if is_question(folded):
        return unknown(japanese)
    return _acknowledge(folded, japanese)


def unknown(japanese: bool) -> Reply:
    """Return the honest reply to a question that rules cannot answer."""
    if japanese:
        return Reply("ごめん、それは分からないな。言語モデルがまだつながっていないんだ。", "doubt", "tilt")
    return Reply("Sorry, I can't answer that. No language model is connected yet.", "doubt", "tilt")


def _obey(folded: str, japanese: bool) -> Reply:
    for pattern, in_japanese, in_english, action in _MOVES:
        if pattern.search(folded):
            return Reply(in_japanese if japanese else in_english, "neutral", action)
    if japanese:
        return Reply("ごめん、それはまだできないんだ。", "sad", "shake")
    return Reply("Sorry, I can't do that yet.", "sad", "shake")


def _acknowledge(folded: str, japanese: bool) -> Reply:
    if not folded:
        return Reply("I'm listening.", "neutral", "tilt")
    if _SORRY.search(folded):
        return Reply("そっか、それは大変だったね。" if japanese else "I'm sorry to hear that.", "sad", "nod")
    if _GLAD.search(folded):
        return Reply("そうなんだ、いいね！" if japanese else "Oh, nice!", "happy", "nod")
    return Reply("そうなんだね。" if japanese else "I see.", "neutral", "nod")
