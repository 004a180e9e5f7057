"""How much a sentence is worth remembering: what somebody did, decided, likes or is, not how they answered."""

import re

from stackmem.adapters.offline.names import names
from stackmem.adapters.offline.words import is_japanese, is_question, numbers, units
from stackmem.text import fold

_GREETING = re.compile(
    r"(?:こんにち[はわ]|こんばん[はわ]|おはよう|よろしく|はじめまして|初めまして|ありがとう|おやすみ|ただいま|おかえり|さようなら|バイバイ|またね|お疲れ"
    r"|いただきます|ごちそうさま|行ってきます"
    r"|\bhello|\bhi\b|\bhey\b|\bgood (?:morning|evening|night|afternoon)|\bbye|\bthank|see you|nice to meet)"
)
_BACKCHANNEL = re.compile(
    r"はい|うん|ええ|いいえ|いえ|いや|へ[えぇー]+|ほう|おお|わあ|あら|ああ|なるほど|確かに|たしかに|本当に?|ほんとう?に?|まじで?"
    r"|そうなん|そうな|そうです|そうでした|そう|そっか|すごい|凄い|すご|いい|良い|よかった|さすが|もちろん|了解"
    r"|分かった|わかりました|わかった|ごめんなさい|ごめん|んです|です|でした|ますね|そのとおり|それは|は+|笑|[だねえよかのおあなもと]"
    r"|\b(?:ok|okay|yes|yeah|yep|no|nope|right|sure|really|i see|cool|nice|great|wow|oh|sorry|hm+)\b"
)
_AGREEING = re.compile(
    r"(?:いい|良い|よい|すご[いく]|凄い|うらやまし[いく]|羨まし[いく]|大変|素敵|素晴らし|楽しそう|美味しそう|おいしそう|よさそう|残念|さすが|流石|そういうこと)"
    r"[^、。]{0,8}(?:です|でした|だ|だった)?(?:ね|よね|ですね)|んですね|そうですね|ますもんね|ですもんね|んですか|なんですね|たんだね|なんだね"
)
_COMMAND = re.compile(
    r"(?:て|で)(?:ね|よ|ください|下さい|くれる|くれない|くれ|ほしい|もらえる|ちょうだい)?[\s?。!]*\Z|(?:なさい|ちょうだい|しろ|せよ|お願い(?:します)?)[\s。!]*\Z"
    r"|\A\W*(?:go|turn|move|stop|look|play|come|please|nod|tell me|show me|sing|wait|say)\b"
)
_NOTE_THIS = re.compile(
    r"(?:覚えて|おぼえて|メモして|記憶して)(?:おい|ね|て|くれ|ほし|\W|\Z)|(?:覚え|おぼえ|メモし)と(?:い|け|く)"
    r"|\bremember (?:that|this)|\bnote that"
)
_PREFERENCE = re.compile(
    r"毎[朝日週晩月年]|好き|嫌い|きらい|大好|苦手|いつも|お気に入り|得意|趣味|派です|派だ|推し|ハマって|はまって|飽き|アレルギー|食べられない|飲めない|食べれない|すき(?:です|だ|な|！|!|で)|よく(?=[^な].{0,12}(?:ます|る|てい))"
    r"|\b(?:like|love|hate|prefer|favou?rite|enjoy|always|never|allergic|can't stand)\b"
)
_DECISION = re.compile(
    r"決めた|決めまし|決まった|決まりまし|ことにし|予定|つもり|やめた|やめまし|(?:に|へ)行く|行きます|約束|申し込|予約した|しようと思|ようと思って|たいと思"
    r"|\b(?:decided|will|going to|plan(?:ned|ning)?|i'll|chose|booked|promise)\b"
)
_SELF = re.compile(
    r"私|わたし|僕|ぼく|俺|おれ|自分|うち(?:の|は|で)|実家|家族|彼女|彼氏|恋人|妻|夫|嫁|旦那|息子|娘|父|母|親|兄|弟|姉|妹|祖|友達|友人|同僚|猫|犬|\b(?:i|i'm|i've|my|we|our)\b"
)
_WISH = re.compile(r"(?:[いきしちにびみりえけせてねべめれ]たい|ほしい|欲しい)(?!く?な[いら])|\b(?:want|hope|wish)\b")
_EVENT = re.compile(
    r"(?:まし|でし|だっ|かっ|[いきしちにりっえけせてねべめれ]|[一-鿿])た(?!い|く|ら|め|ぶん|り)|[一-鿿]んだ|\b(?:was|were|had|went|got|bought|made|saw|met|ate|came|took"
    r"|lost|found|broke|sold|left|began|started|(?!tired|bored|excited|worried|indeed)[a-z]{3,}ed)\b"
)
_STATE = re.compile(
    r"飼|住[んみ]|働い|勤め|通って|持って|使って|やって(?:い?ます|い?る)|して(?:い?ます|い?る)|習って|読んで|されて|派|歳|才|出身|仕事|会社|名前|誕生日|乗って|結婚|離婚|生まれ|亡くな|合格|卒業|入学|就職|転職|退職|引っ越|壊れ|病|入院|妊娠|になった"
    r"|\b(?:lives?|works?|name is|named|called|birthday|owns?|have|has|married|study|studies)\b"
)
_WHEN = re.compile(
    r"昨日|きのう|一昨日|おととい|今日|今朝|明日|あした|先週|来週|今週|先月|来月|今月|去年|昨年|来年|今年|最近|曜日|以前|昔|前は|子供の頃|小さい頃|学生|[0-9]月"
    r"|\b(?:yesterday|today|tomorrow|last|next|ago|tonight|monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b"
)
_AHEAD = re.compile(r"明日|あした|明後日|来週|来月|来年|今度の|tomorrow|next (?:week|month|year)")
_OWN = re.compile(
    r"(?:私|わたし|僕|ぼく|俺|おれ|うち|妻|夫|嫁|旦那|息子|娘|父|母|兄|弟|姉|妹|彼女|彼氏|恋人)(?:さん|ちゃん)?[はの]"
)
_OBJECT = re.compile(r"を.{0,20}(?:た|だ|ました|てる|ている|ています)(?:よ|の|んだ|んです)?[\s。!]*\Z")
CORRECTION = re.compile(
    r"じゃなくて|じゃなく|ではなくて?|でなくて|やっぱり|やっぱ|訂正|間違[えっい]|変更|変わっ|変え[たま]|やめた|やめて|やめまし|になった|になりました|もう.{0,12}ない|中止|キャンセル|取りやめ|なくなっ[たち]"
    r"|\b(?:actually|changed?|instead|correction|no longer|not anymore|i meant|was wrong|switched)\b"
)
_ADVICE = re.compile(
    r"おすすめ|オススメ|お勧め|お薦め|約束|(?:たら|れば|と)(?:いい|良い)(?:よ|です|かも)|しておく(?:ね|よ)|してみて|答えは"
    r"|\b(?:recommend|suggest|i promise|you should|try)\b"
)
_WEIGHTS = (
    (_PREFERENCE, 2.0),
    (_DECISION, 2.0),
    (CORRECTION, 1.0),
    (_WISH, 1.0),
    (_SELF, 1.0),
    (_EVENT, 1.0),
    (_STATE, 1.5),
    (_WHEN, 1.0),
    (_AHEAD, 1.0),
    (_OWN, 1.0),
    (_OBJECT, 1.0),
)


def is_chatter(sentence: str) -> bool:
    """Tell whether a sentence is a greeting or a backchannel and states nothing."""
    folded = fold(sentence)
    if len(folded) <= 60 and not any(char.isalnum() for char in _BACKCHANNEL.sub("", folded)):
        return True
    return (
        bool(_GREETING.search(folded))
        and len(folded) < 40
        and not (numbers(folded) or _PREFERENCE.search(folded) or "名前" in folded)
    )


def is_command(sentence: str) -> bool:
    """Tell whether a sentence orders the robot to do something (other than to note a fact)."""
    folded = fold(sentence)
    return bool(_COMMAND.search(folded[:200] if not is_japanese(folded) else folded[-40:])) and not _NOTE_THIS.search(
        folded
    )


def worth(sentence: str) -> float:
    """Return what a sentence is worth: 0 for a question, an order, a greeting or a backchannel, 2 and up for a fact."""
    if is_question(sentence) or is_chatter(sentence) or is_command(sentence):
        return 0.0
    folded = fold(sentence)
    found = sum(weight for cue, weight in _WEIGHTS if cue.search(folded))
    found += 1.0 * bool(numbers(folded)) + 1.0 * bool(names(sentence)) + 2.0 * bool(_NOTE_THIS.search(folded))
    if _AGREEING.search(folded):
        found -= 2.0
    return max(found, 0.0) if units(folded) or names(sentence) else min(max(found, 0.0), 1.0)


def robot_worth(sentence: str) -> float:
    """Return what a robot's sentence is worth: only advice or a promise has any, 0 for anything else."""
    if is_question(sentence) or is_chatter(sentence) or not _ADVICE.search(fold(sentence)):
        return 0.0
    return 2.0 + worth(sentence)


def memory_type(sentences: list[str]) -> str:
    """Return episode, decision or preference, by the cues in most of the sentences."""
    folded = [fold(sentence) for sentence in sentences]
    likes = sum(bool(_PREFERENCE.search(sentence)) for sentence in folded)
    decisions = sum(bool(_DECISION.search(sentence)) for sentence in folded)
    if likes * 2 >= len(folded) and likes >= decisions and likes:
        return "preference"
    return "decision" if decisions * 2 >= len(folded) and decisions else "episode"
