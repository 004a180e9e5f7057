"""Names in a text: products, katakana words, quoted names, kanji compounds with the ending of a proper noun."""

import re
import unicodedata

from stackmem.adapters.offline.words import LOOKED_AT
from stackmem.text import entity_key

MOST = 8  # entities of one memory

_NAME = re.compile(
    r"「(?P<quoted>[^「」\n]{1,30})」"
    r"|(?:名前[はが]|なまえ[はが])(?P<named>[ァ-ヺー]{2,12}|[一-鿿]{1,4}|[ぁ-ん]{2,6}?)(?=だ|です|で|って|と|\W|\Z)"
    r"|(?P<latin>[A-Za-z][A-Za-z0-9]*(?:[-+][A-Za-z0-9]+)*(?: (?=[A-Z0-9])[A-Za-z0-9]+(?:[-+][A-Za-z0-9]+)*)*[0-9]*)"
    r"|(?P<katakana>[ァ-ヺ][ァ-ヺー・]{2,}[0-9]*)"
    r"|(?P<kanji>(?!昨日|今日|明日|先週|来週|今年|去年|最近|毎日|今度|普通|共通|交通)[一-鿿々ヶ]{1,6}(?:さん|くん|ちゃん|市|駅|県|町|村|区|島|山|川|寺|神社|大学|高校|病院|公園|温泉|空港)|富士通)"
)
_GENERIC_TEXT = """
ゲーム テレビ パソコン スマホ ネット インターネット コンビニ スーパー レストラン ホテル メニュー イメージ
タイプ レベル ストレス ダイエット プロ ドライブ カレンダー メール メッセージ ニュース タイミング バランス
ポイント アップ プレゼント ユーザー ロボット コース カロリー スポーツ トイレ シーズン チャンス ペース
サイズ セット リアル アドバイス オススメ ホント マジ ダメ キレイ スゴイ お父さん お母さん お兄さん
お姉さん 皆さん 奥さん 旦那さん 子供さん 赤ちゃん 彼女さん 彼氏さん 店員さん 近所 登山 下町 火山
"""
_GENERIC = frozenset(_GENERIC_TEXT.split())
_LATIN_STOP_TEXT = """
the this that these those what when where which who how why and but yes yeah no not ok okay hello hi hey
thanks thank good my your our his her its it he she we you they then there here just also actually really
today yesterday tomorrow last next by on in at for with from is are was were do did does can could will
would should let please well so oh wow nice great sorry monday tuesday wednesday thursday friday saturday
sunday january february march april may june july august september october november december user robot
some if because maybe in i im ive id ill
"""
_LATIN_STOP = frozenset(_LATIN_STOP_TEXT.split())


def names(text: str) -> list[str]:
    """Return at most MOST names in order of first mention, spellings of one name once."""
    found: dict[str, str] = {}
    normal = unicodedata.normalize("NFKC", text[:LOOKED_AT])
    starts = _sentence_starts(normal)
    for match in _NAME.finditer(normal):
        name = _accepted(match, starts)
        if name:
            found.setdefault(entity_key(name), name)
    found.pop("", None)
    return list(found.values())[:MOST]


def _sentence_starts(text: str) -> frozenset[int]:
    return frozenset(match.end() for match in re.finditer(r"\A\W*|[.!?\n]\s*", text))


def _accepted(match: re.Match[str], starts: frozenset[int]) -> str:
    name = (match["quoted"] or match["named"] or match[0]).strip()
    if match["latin"] is not None:
        return _latin(name, at_start=match.start() in starts)
    return "" if name.strip("・ー") in _GENERIC or name.startswith("一番") else name.strip("・")


def _latin(name: str, at_start: bool) -> str:
    """Return a Latin name without leading function words; "" where it is a plain word (lower case, or a first word)."""
    words = name.split()
    while words and (words[0].lower() in _LATIN_STOP or (len(words) > 1 and words[0].isalpha() and words[0].islower())):
        words, at_start = words[1:], False
    name = " ".join(words)
    marked = any(char.isdigit() for char in name) or name[1:] != name[1:].lower()
    if not any(char.isalpha() for char in name):
        return ""
    return name if marked or (name[:1].isupper() and len(name) > 1 and not at_start) else ""
