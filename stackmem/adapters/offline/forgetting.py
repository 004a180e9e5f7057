"""Requests to forget: does a turn ask the robot to forget something, and what? Losing a thing is no request."""

import re
import unicodedata

from stackmem.adapters.offline.words import LOOKED_AT, is_japanese, sentences

LENGTH = 200  # characters of what is to be forgotten
_LOOKED_BACK = 300  # characters of a sentence before its end

_POLITE = (  # clearly asks, whatever stands before it
    r"(?:ください|下さい|くださる|くれ(?:る|ない|ます|ません)?か?な?|もらえ(?:る|ない|ます|ません)か?な?"
    r"|(?:ほしい|欲しい)(?:な|の|んだ|んです|です)?ぁ?|くれても?いい(?:です)?|ちょうだい|頂戴|お願い(?:します)?)[ねよ]?"
)
_PLAIN = r"(?:ね|よ|もいいよ|いいよ|もいいです|いいです|おいて(?:ね|ください)?|しまって(?:ね|ください|いいよ)?)?"
_END = r"[\s。、!?!…~ー]*\Z"
_ASKED = re.compile(
    rf"(?:忘れ|わすれ)(?:て|ちゃって|といて)(?P<polite>{_POLITE}){_END}"
    rf"|(?:忘れ|わすれ)(?:て|ちゃって|といて)(?P<plain>{_PLAIN})(?P<end>[\s。、!…~]*)\Z"
    r"|(?:忘れ|わすれ)(?:ろ|なさい)[よ\s。、!…~]*\Z"
    r"|(?:覚え|おぼえ)(?:て(?:い|おか)?なくて|なくて)(?:も)?(?:いい|大丈夫)(?:よ|から|です)*[\s。!…~]*\Z"
    rf"|(?:(?:聞か|言わ)なかった|なかった)(?:こと|事)にして(?:{_POLITE}|ね|よ)?{_END}"
    rf"|(?:記憶|メモリー?)(?:から|を)?(?:消し|消去し|削除し)て(?:{_POLITE}|ね|よ)?{_END}"
)
# 「今のは忘れて、冗談だから」: the reason after the request
_WITH_REASON = re.compile(
    r"(?P<what>(?:それ|これ|あれ|(?:今|いま|さっき)の[^、。]{0,12}|[^、。]{1,30}(?:こと|話|件))(?:は|を|も)?)"
    r"(?:もう)?(?:忘れ|わすれ)て(?:ね|ください)?、(?=[^。]{0,25}(?:冗談|嘘|うそ|間違|勘違い|違う|違った|やっぱ|なし))"
)
# 「忘れて、さっきの話」: what it is about comes after
_TURNED = re.compile(
    rf"\A(?:もう)?(?:忘れ|わすれ)て(?:ね|よ|{_POLITE})?[、。!\s]+(?P<what>[^。]{{1,40}}?(?:こと|話|件|それ|(?:今|さっき)の)(?:は)?){_END}"
)
_ADDRESS = re.compile(
    r"\A(?:(?:ごめん(?:ね|なさい)?|すみません|やっぱり?|お願い(?:だから)?|スタックチャン)[、,。!\s]*"
    r"|(?:ねえ|ねぇ|ねー|あのさ|あの|えっと|あっ?|いや|もう|全部|ぜんぶ)[、,。!\s]+)+"
)
_PARTICLE = re.compile(
    r"(?:なんだけど|なんですけど|を|は|もう|も|って|、|\s|全部|ぜんぶ|早く|きれいに|すっかり|一旦|いったん)+\Z"
)
_ABOUT_SOMETHING = re.compile(
    r"(?:こと|事|話|件|それ|これ|あれ|(?:今|いま|さっき|先ほど)の|なし|全部|予定|約束|情報|番号|名前)(?:[をはも、]|って)*(?:もう|全部)?\Z|(?:は|もう)\Z|\A\Z"
    r"|(?:言った|話した|教えた|伝えた)[^、。]{1,20}[、]?\Z"
)
_DONE = re.compile(
    r"[うくぐすつぬぶむる]の[をは]?\Z|(?:[にがで]|(?<!こ)と)は?\Z"
)  # 薬を飲むのを忘れて, 母には忘れてほしい
_POINTING = re.compile(
    r"(?:(?:それ|これ|あれ|(?:今|いま|さっき|先ほど)(?:の|言ったの?|話したの?)?(?:こと|事|話|件|やつ|発言|なし)?|その(?:こと|話|件)|この(?:こと|話|件)|全部|もう)"
    r"(?:ね|さ)?)*\Z"
)
_ENGLISH = re.compile(
    r"\A\W*(?:(?:oh|ok|okay|actually|sorry|hey|no|well|and|wait|so|stackchan|robot)\b\W*)*"
    r"(?:(?P<ask>(?:can|could|would|will) you )|i(?: want| need| would like|'d like) you to |you (?:can|should|may) )?"
    r"(?P<please>(?:please |just |kindly |now )*)"
    r"(?:forget (?!to\b|me\b)(?:about )?(?P<forget>\S.*)"
    r"|(?:delete|erase|remove) (?P<erase>\S.*?) from (?:your )?memory.*"
    r"|do(?:n't| not) remember (?P<skip>\S.*))\Z",
    re.IGNORECASE,
)
_ENGLISH_ABOUT = re.compile(
    r"(?:that|this|it|what|everything|anything|all|my|the|our|his|her|their|i)\b", re.IGNORECASE
)
_ENGLISH_POINTING = re.compile(
    r"(?:(?:that|this|it|everything|all|what i(?: have|'ve)?(?: just)? (?:said|told you)|just|now|i (?:said|told you))"
    r" ?)*\Z",
    re.IGNORECASE,
)


def asks_to_forget(text: str) -> str:
    """Return what the user asks the robot to forget: their words without the asking; "" where they do not ask.

    Where they only point (それ, さっきの話, that) their whole words are returned. At most LENGTH characters.
    """
    normal = unicodedata.normalize("NFKC", text[:LOOKED_AT])
    for sentence in sentences(normal):
        what = _japanese(sentence) if is_japanese(sentence) else _english(sentence.replace("’", "'"))
        if what is not None:
            return (what or text.strip())[:LENGTH]
    return ""


def _japanese(sentence: str) -> str | None:
    """Return what is to be forgotten, "" where the sentence only points to it; None where it does not ask."""
    said = _ADDRESS.sub("", sentence.strip()[-_LOOKED_BACK:])
    turned = _TURNED.match(said) or _WITH_REASON.match(said)
    if turned:
        return _named(turned["what"])
    asked = _ASKED.search(said)
    if asked is None:
        return None
    before = said[: asked.start()]
    if _DONE.search(before) or (asked["plain"] is not None and not _ABOUT_SOMETHING.search(before)):
        return None
    return _named(before)


def _named(what: str) -> str:
    what = _PARTICLE.sub("", what).strip("、, ")
    return "" if _POINTING.match(what) else what


def _english(sentence: str) -> str | None:
    match = _ENGLISH.match(sentence.strip())
    if match is None:
        return None
    what = (match["forget"] or match["erase"] or match["skip"]).strip(" .!?,")
    polite = bool(match["please"]) or what.lower().endswith(" please")
    if match["skip"] and not polite:  # "Don't remember that" may mean: I do not
        return None
    what = re.sub(r"[, ]*\bplease\Z", "", what, flags=re.IGNORECASE).strip(" ,")
    if not polite and not _ENGLISH_ABOUT.match(what) and not what[:1].isupper():
        return None
    return "" if _ENGLISH_POINTING.match(what) else what
