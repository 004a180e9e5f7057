"""Two names of one thing, where the user says so: 「富士通は英語でFujitsu」, "Robert, everyone calls him Bob"."""

import re
import unicodedata
from functools import cache

from stackmem.adapters.offline.names import names
from stackmem.adapters.offline.words import LOOKED_AT, is_japanese, is_question, sentences
from stackmem.text import entity_key

_LATIN = r"[A-Za-z][A-Za-z0-9&.+'-]*(?: [A-Z0-9][A-Za-z0-9&.+'-]*)*"
_PROPER = rf"[ァ-ヺ][ァ-ヺー・]+|(?<![一-鿿々])[一-鿿々]{{2,8}}|(?<![A-Za-z0-9]){_LATIN}"
_A = rf"「?(?P<a>{_PROPER}|(?:(?<=[は、「の])|\A)[ぁ-ん]{{2,6}}?)」?"
_B = r"「?(?P<b>(?:{})(?:ちゃん|くん|さん)?)」?".format(rf"{_PROPER}|[ぁ-ん]{{2,8}}?")
_END = r"(?=(?:だ|です|なん|なの|って|と(?:い|言|書|呼|よ)|ね|よ)?(?:[^ァ-ヺー一-鿿A-Za-z0-9]|\Z))"
_REAL = r"(?:正式な名前|正式名称|正式名|正式に|本名|本当の名前|フルネーム)(?:は|が|って)、?"
_LETTERS = "(?:英語|ローマ字|アルファベット|フランス語|ドイツ語)(?:だと|では|で)、?"
_SCRIPT = "(?:漢字|カタカナ|ひらがな)(?:だと|では|で)、?"
_STOP = r"(?=だ|です|なん|って|と(?:い|言|書|呼|よ)|[ねよ]?(?:[\s。、!]|\Z))"
_CALLED = r"(?:って|と)(?:呼|よ)(?:んで|ばれて)"
_JAPANESE = (
    rf"{_A}(?:は|って|のことを|を)、?{_LETTERS}(?P<b>{_LATIN}){_STOP}",
    rf"「?(?P<a>{_LATIN})」?(?:は|って|のことを|を)、?日本語(?:だと|では|で)、?{_B}{_STOP}",
    rf"{_A}(?:は|って|のことを|を)、?{_SCRIPT}{_B}{_STOP}",
    rf"{_A}(?:って(?:いう|言う|ゆう)?のは|というのは|って)、?{_B}のこと(?=だ|です|なん|ね|よ|[\s。、!]|\Z)",
    rf"{_A}(?:、|(?:なん)?だけど、?|で、){_REAL}{_B}{_END}",
    rf"{_A}{_CALLED}(?:い?る|い?ます)(?:んだけど|んですけど|けれど|けど|が)?、?{_REAL}{_B}{_END}",
    rf"{_REAL}{_B}(?:なん)?(?:だ|です)(?:けど|が)、?(?:みんな|普段|家で|いつも)?(?:は|に|から)?、?{_A}{_CALLED}",
    rf"{_A}は、?正式には、?{_B}{_END}",
    rf"{_A}(?:(?:なん)?だけど|(?:って|と)(?:いう|言う)(?:んだ)?けど|で(?=、(?:みんな|家族|友達|普段)))、?"
    rf"(?:みんな|家族|友達|普段|いつも)?(?:は|に|から)*、?{_B}{_CALLED}",
    rf"{_A}(?:、|を|は)(?:略して|縮めて|通称は?|別名は?|またの名を|愛称は|あだ名は|ニックネームは)、?{_B}{_END}",
)
_IN_PARENTHESES = re.compile(
    rf"(?<![の一-鿿々ァ-ヺーA-Za-z0-9])(?P<a>[ァ-ヺ][ァ-ヺー・]+|[一-鿿々]{{2,8}}|{_LATIN}) ?\((?P<b>[^()]{{2,30}})\)"
)
_NAME = r"[A-Z][\w&'-]*(?: [A-Z][\w&'-]*)*"
_EN_A, _EN_B = rf"(?P<a>{_NAME})", rf"(?P<b>{_NAME})"
_ENGLISH = (
    rf"{_EN_A},?(?: but| and)? (?:everyone|everybody|people|we|they|my friends|my family|friends|I)"
    rf"(?: all| just| usually| always)? calls? (?:him|her|it|them) {_EN_B}",
    rf"{_EN_A},? (?:(?:is )?(?:also|better|commonly|usually) (?:known as|called)|a\.?k\.?a\.?|nicknamed|goes by"
    rf"|(?:is )?short for) {_EN_B}",
    rf"{_EN_A},? (?:or|just) {_EN_B} for short",
    rf"{_EN_A},? (?:but |and )?(?:his|her|its|their) (?:real|full|official|actual) name is {_EN_B}",
)
# What a name in brackets tells about, not what it names: 「カメラ（Canon）」.
_KINDS_TEXT = """
会社 職場 学校 大学 高校 友達 友人 同僚 上司 部長 先輩 後輩 先生 家族 両親 彼女 彼氏 息子 旦那 母親 父親 兄弟 姉妹 子供
近所 自分 趣味 場所 映画 漫画 音楽 番組 携帯 財布 時計 名前 最近 今日 昨日 明日 先週 来週 本日 英語 日本語 毎日
カメラ バイク スニーカー バッグ イヤホン ヘッドホン タブレット マウス キーボード モニター プリンター ギター ピアノ
アプリ サイト ブランド メーカー バンド アニメ ドラマ ソフト サービス アーティスト チーム ノート ケーキ ビール コーヒー
カフェ ペット ネコ イヌ クルマ
"""
_NO_NAMES_TEXT = """
それ これ あれ どれ ここ そこ あそこ なに なん どう だれ いつ どこ みんな ぼく おれ わたし うち ほんと やつ もの こと
I He She It We They My The This That You But And Yes Oh No So Our Her His Its Everyone There When If Hi Hey Yesterday
Today ok lol wow ww www
"""
_WHEN = re.compile(r"\A(?:昨日|今日|明日|今朝|昨夜|先週|今週|来週|先月|今月|来月|去年|昨年|今年|来年|最近|今度|以前)")
_KINDS, _NO_NAMES = frozenset(_KINDS_TEXT.split()), frozenset(_NO_NAMES_TEXT.split())


def aliases(text: str) -> list[list[str]]:
    """Return pairs of names of which the words state that they mean one thing, in order; [] in doubt."""
    normal = unicodedata.normalize("NFKC", text[:LOOKED_AT])
    found: list[list[str]] = []
    for sentence in sentences(normal):
        if not is_question(sentence):
            patterns = _JAPANESE if is_japanese(sentence) else _ENGLISH
            found += [_pair(match) for pattern in _compiled(patterns) for match in pattern.finditer(sentence[:400])]
            found += [_pair(match) for match in _IN_PARENTHESES.finditer(sentence[:400]) if _one_is_latin(match)]
    return once([pair for pair in found if _two_names(*pair)])


@cache
def _compiled(patterns: tuple[str, ...]) -> list[re.Pattern[str]]:
    # At the first turn: every command of the command line would wait for it (40 ms).
    return [re.compile(pattern) for pattern in patterns]


def once(pairs: list[list[str]]) -> list[list[str]]:
    """Return the pairs in order, each once, whichever name stands first."""
    sets = [set(pair) for pair in pairs]
    return [pair for place, pair in enumerate(pairs) if sets[place] not in sets[:place]]


def _pair(match: re.Match[str]) -> list[str]:
    words = match["a"].split(" ")
    while len(words) > 1 and words[0] in _NO_NAMES:
        words = words[1:]
    return [_WHEN.sub("", " ".join(words)), match["b"].strip(" .")]


def _two_names(one: str, other: str) -> bool:
    known = not ({one, other} & (_NO_NAMES | _KINDS))
    return known and len(other) > 1 and bool(entity_key(one)) and entity_key(one) != entity_key(other)


def _one_is_latin(match: re.Match[str]) -> bool:
    """Tell whether one is written in Latin letters and the other is a Japanese name: 富士通(Fujitsu), not 母(38)."""
    latin = [bool(re.fullmatch(_LATIN, name)) for name in (match["a"], match["b"])]
    japanese = match["b"] if latin[0] else match["a"]
    if sum(latin) != 1 or not re.fullmatch(r"[ァ-ヺー・]{2,}|[一-鿿々]{2,8}", japanese):
        return False
    katakana = bool(re.match("[ァ-ヺ]", japanese))
    return (not katakana or bool(names(japanese))) and not re.fullmatch("[a-z]{1,3}", match["a" if latin[0] else "b"])
