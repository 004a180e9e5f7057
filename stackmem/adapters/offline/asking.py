"""Does a user's words ask for something said in an earlier session? And which words to search with."""

import re

from stackmem.adapters.offline.forgetting import asks_to_forget
from stackmem.adapters.offline.words import LOOKED_AT, is_japanese, is_question, sentences, units
from stackmem.text import fold

# どこか, いつも and the like look like interrogatives and ask nothing.
_INDEFINITE = re.compile(
    r"(?:どこ|何|なに|いつ|誰|だれ|どれ|どっち)(?:か(?=[^な?]|$)|も|でも)|なんか|なんだか|何となく|なんとなく"
)
_INTERROGATIVE = re.compile(
    r"何|なに|なん(?=て|の|だ|で|年|月|日|時|歳|さい|個|匹|人|回|番)|誰|だれ|どこ|どちら|いつ|いくら|いくつ|おいくら|どれ|どの|どっち"
    r"|どんな|どう|どういう|なぜ|どのくらい"
)
_SELF = re.compile(
    r"(?:わたし|私|わたくし|あたし|ワタシ|僕|ぼく|ボク|俺|おれ|オレ|わし|我が家|(?:うち|ウチ)(?=[のではもっ、\s]|に(?:い|来|き)))(?![とに](?!い|来|き))"
    r"|(?:妻|夫|嫁|旦那|息子|娘|父|母|パパ|ママ|彼女|彼氏|おばあちゃん|おじいちゃん|ばあちゃん|じいちゃん)(?:さん)?(?:[がはっ]|の(?!日))"
)
_SAID = re.compile(
    r"(?:言|い)(?:った|って(?:い)?た|いました|っていました)|(?:話|はな)し(?:た|て(?:い)?た|ました)|教えた|教えて(?:い)?た|伝えた|聞かせた"
    r"|覚えて(?:い?る|い?ます|い?ない)|おぼえて(?:い?る|い?ます|い?ない)|(?:すすめ|勧め|約束し|薦め)て?(?:くれ|い)?た"
)
_WONDER = re.compile(r"っけ")
_PAST_END = re.compile(
    r"(?:だった|でした|かった|[いきしちにりっえけせてねべめれんいすごく]た|んだ|ました)(?:っけ|の(?:か|かな)?|ん(?:だ|です)(?:った)?か?|か|かな[あー]?"
    r"|かね|よね|でしょうか|って)?(?:、?(?:わかる|分かる|言える|知ってる|覚えてる))?[\s?。、]*\Z"
)
_COPULA_PAST = re.compile(r"だった|でした|んだった|たかな|ましたか|いくらした|たか(?:知|わか|分か|覚え)")
_DAY = re.compile(
    r"昨日|きのう|一昨日|おととい|先週|先月|去年|昨年|この前|この間|こないだ|以前|前に|[0-9]+月[0-9]+日|曜"
)
_PAST_ANYWHERE = re.compile(r"た(?=よね|もの|こと|の|と|や|本|店|人|時|とき)")
_TOPIC_END = re.compile(r"(?:は|って|わかる|分かる|言える|知って(?:い?る|い?ます)か?|思い出せる)[\s?。、]*\Z")
_PERSONAL = re.compile(r"の(?:名前|なまえ|誕生日|電話番号|住所|予定|予約|パスワード)(?:は|って)[\s?。]*\Z")
_OF_ROBOT = re.compile(r"君|きみ|キミ|あなた|お前|この|その|ロボット")
_TELL = re.compile(r"(?:教えて|おしえて|思い出して)(?:ください|くれる|くれ|ほしい|よ|ね)?[\s?!。、]*\Z")
_NOW = re.compile(
    r"(?:今日|きょう|明日|あした|今|いま)(?:は|って|の)?(?:何曜|なんよう|何日|なんにち|何月|何時|なんじ|何年)|(?:今|いま)(?:何|なん)て"
    r"|(?:何|なに|なん)して(?:い)?[たる]|元気|言ってる(?:こと|意味)|\A\W*(?:何時|なんじ|何曜日|何日)"
)
_GENERAL = re.compile(
    r"英語で|日本語で|漢字で|意味|天気|気温|首都|県庁|高さ|標高|人口|面積|長さ|総理|大統領|首相|ニュース|どうやって|どうやったら|どうしたら"
    r"|方法|歴史|発明|世界|宇宙|地球|惑星|幕府|時代|戦争|[とっ]て(?:何|なに|なん)(?:\?|の|な|です|\Z)|とは(?:何|なに|なん)|(?:日本|世界)[での](?:一番|いちばん|最も)|何度で|した人|(?:誰|だれ)が(?:書|作|建)|なぜ|たす|足す|かける"
)
_ADVICE = re.compile(
    r"(?:すれば|したら|れば|たら|ても|で|て|と)(?:いい|良い|よい)|べき|どう思|似合|(?:こと|事)(?:が|は)?(?:好き|嫌い|すき|きらい)|聞こえ|聞いて(?:い?る|ます)"
    r"|見え|手伝|(?:て|で)(?:くれ|もらえ|ほし|下さ|くださ)|(?:よう|(?<!で)しょう)(?:か|かな|か?ね)?[\s?]*\Z|ませんか|欲しい\?|できる(?:かな|\?)"
)
_EN_RECALL = re.compile(
    r"\b(?:(?:do|did|can|could) you (?:still )?(?:remember|recall)|remind me (?:what|where|when|who|which|how|of)"
    r"|(?:have|had) i (?:ever )?(?:told|said|mentioned)"
    r"|(?:i|we|you) (?:told|said|mentioned|recommended|suggested|promised|talked)"
    r"|did (?:i|we|my|our)|did you (?:recommend|suggest|say|tell|promise|mention))\b"
)
_EN_WH = re.compile(r"\b(?:what|where|when|who|whose|which|how (?:much|many|old|long|far|tall|big|often)|why did)\b")
_EN_SELF = re.compile(r"\b(?:i|i'm|i've|my|mine|our|we)\b")
_EN_YES_NO = re.compile(
    r"\A\W*(?:do i (?:have|own|like|live|work|prefer|know)|have i|was i|did i|am i allergic|do you know my)\b"
)
_EN_TELL = re.compile(r"\btell me (?:again )?(?:what|where|when|who|which|how|my)\b")
# "How much was the laptop?": a thing both know of, in a past form; not what stands in any encyclopaedia.
_EN_THE_PAST = re.compile(
    r"\b(?:how (?:much|many|old|long|far|big|tall|expensive)|what(?: (?:colou?r|size|brand|make|model|kind|day|time))?"
    r"|where|when|who|which [a-z]+) (?:(?:was|were) the [a-z]|did the [a-z]+(?: [a-z]+)? [a-z]+)"
    r"|\bwhich [a-z]+ (?:was|were) (?:it|that)\b"
)
_EN_GENERAL = re.compile(
    r"\b(?:wars?|president|king|queen|emperor|empire|minister|capital|world|century|tower|pyramids?|moon|sun|earth|planets?"
    r"|universe|dinosaurs?|country|population|history|weather|news|score|election|olympics|revolution|titanic|internet"
    r"|first|most|(?!(?:gu|for|t|w|r|n|ch|requ|cont)est)[a-z]+est|built|invented|founded|discovered|written|born|die|died|begin|end|question|answer|point|matter"
    r"|problem|meaning)\b"
)
_EN_NOT = re.compile(
    r"\b(?:should|can i|could i|may i|shall|how do i|how can|do i look|i look|am i doing|think of my|of me|think i|if i"
    r"|did you sleep|can we|do we do|we do (?:now|today|next)|am i wearing|i say in|we play|help me|mean|how to)\b"
)
_FILLER = re.compile(
    r"(?:ねえ|ねぇ|ねー|えっと|えーと|あのさ|そういえば|ところで|ちなみに|スタックチャン)[、,\s]*"
    r"|って(?:言|い|話|はな)(?:った|っていた|ってた|した|してた|いました|しました)(?=っけ|かな|か|の|よね|[\s?。、]|\Z)"
    r"|(?:ちょっと)?(?:教えて|おしえて|思い出して)(?:ください|くれる|くれない|くれ|ほしい)?(?:かな|よ|ね)?"
    r"|(?:覚えて|おぼえて|知って|しって)(?:い?ます|い?る|い?ない)(?:か|かな|の)?|(?:わかる|分かる|わかります|言える|思い出せる)(?:か|かな)?(?=[\s?。]|\Z)"
    r"|(?:何|なん|なに)?(?:なん)?(?:だった|だ|でした)?っけ[かなねー]?|(?:だった|でした)(?:か|かな|の)?(?=[\s?。、]|\Z)|かな[あー]?(?=[\s?。、]|\Z)|[?!。、]+"
)
_EN_FILLER = re.compile(
    r"\b(?:(?:do|did|can|could) you (?:still )?(?:remember|recall|tell me|know)|please|tell me(?: again)?"
    r"|remind me(?: of)?|hey|so|again|what(?:'s| is| was| are| were| did| do)?|where(?:'s| is| was| did| do)?"
    r"|when(?:'s| is| was| did| do)?|who(?:'s| is| was)?|which|did i|do i|am i|have i|i told you|i said|i)\b|[?!]+"
)


def asks_for_the_past(text: str) -> bool:
    """Tell whether the words ask for something that only an earlier session can answer; a wish to forget does not."""
    if asks_to_forget(text):
        return False
    folded = fold(text[:LOOKED_AT]).strip()
    return _asks_japanese(_INDEFINITE.sub("", folded)) if is_japanese(folded) else _asks_english(folded)


def _asks_japanese(text: str) -> bool:
    asks = any(is_question(sentence) for sentence in sentences(text)[-2:])
    of_self, said = bool(_SELF.search(text)), bool(_SAID.search(text))
    if _NOW.search(text):
        return False
    if not asks:
        return bool(_TELL.search(text)) and (of_self or said)
    if said:
        return of_self or bool(units(text))
    if _GENERAL.search(text) and not of_self:
        return False
    if _WONDER.search(text):
        return True
    return not _ADVICE.search(text) and _asks_of_own_past(text, of_self)


def _asks_of_own_past(text: str, of_self: bool) -> bool:
    """Tell it where neither っけ nor 言った says so: whose it is, a past form, a day, an interrogative."""
    what = bool(_INTERROGATIVE.search(text))
    if of_self and (what or _TOPIC_END.search(text)):
        return True
    if _PERSONAL.search(text) and not _OF_ROBOT.search(text):
        return True
    if _PAST_END.search(text[-40:]) and what and (_COPULA_PAST.search(text) or _DAY.search(text)):
        return bool(units(text))
    return bool(_DAY.search(text)) and bool(_PAST_ANYWHERE.search(text))


def _asks_english(text: str) -> bool:
    text = text.replace("’", "'")
    asks = "?" in text or is_question(text) or bool(_EN_TELL.search(text)) or text.startswith("remind me")
    if not asks or _EN_NOT.search(text):
        return False
    if _EN_RECALL.search(text) or _EN_YES_NO.search(text):
        return True
    if _EN_THE_PAST.search(text) and not _EN_GENERAL.search(text):
        return True
    return bool(_EN_WH.search(text) or _EN_TELL.search(text)) and bool(_EN_SELF.search(text))


def query_of(text: str) -> str:
    """Return the user's words without what only makes them a question; the words themselves where nothing is left."""
    folded = text[:LOOKED_AT].strip()
    filler = _FILLER if is_japanese(folded) else _EN_FILLER
    query = " ".join(filler.sub(" ", fold(folded)).split())
    return (query or folded)[:300]
