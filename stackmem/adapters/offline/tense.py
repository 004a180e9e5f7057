"""Does a sentence speak of what was, or of what is to come? In doubt of neither: habits and states have no date."""

import re

AHEAD, BEHIND, NEITHER = 1, -1, 0
_LOOKED_AT = 60  # characters after a Japanese date within which its predicate stands

# The first of these after 土曜日に decides; a plan told in the past form (行くことにした) is still ahead.
_JAPANESE = re.compile(
    r"(?P<plan>ことに(?:した|しま|なっ|なり)|予定|つもり|約束|予約|決め|決ま|申し込)"
    r"|(?P<habit>て(?:い?る|い?ます)|で(?:いる|います)|いつも|ごとに|たびに|たら|ても|なら|好き|嫌い)"
    r"|(?P<past>(?:まし|でし|だっ|かっ|[いきしちにりっえけせてねべめれ出見着寝来居煮])た(?![いくらりめぶがけっ])"
    r"|[死飲読住遊飛休頼踏編積組包産]んだ)"
    r"|(?P<ahead>ます|(?<!だい)たい|よう(?=と|か)"
    r"|(?:[うくぐすつぬぶむる]|ない)(?=って|と(?:言|思)|んだ|んで|ので|のだ|から|けど|よ|ね|わ|[。！!\s]|\Z))"
)
_ENGLISH_AHEAD = re.compile(
    r"\b(?:will|going to|gonna|plan(?:ning)?|must|let's|ha(?:ve|s) (?:an?|my|to)|(?:am|is|are) [a-z]+ing|leave)\b"
    r"|'ll\b|'(?:m|re|s) [a-z]+ing\b",
    re.IGNORECASE,
)
_ENGLISH_BEHIND = re.compile(
    r"\b(?:was|were|had|did|went|got|bought|made|saw|met|ate|came|took|lost|found|broke|sold|left|began|ran|drank|won"
    r"|told|said|gave|swam|flew|drove|wrote|fell|paid|sent|spent|slept|wore|chose|built|caught|felt|hurt|sang|bit"
    r"|(?!need)[a-z]{2,}ed)\b",
    re.IGNORECASE,
)


def tense(sentence: str, end: int) -> int:
    """Return AHEAD, BEHIND or NEITHER for the date whose words end at ``end``."""
    match = _JAPANESE.search(sentence, end, end + _LOOKED_AT)
    if match:
        return BEHIND if match["past"] else NEITHER if match["habit"] else AHEAD
    if _ENGLISH_AHEAD.search(sentence):
        return AHEAD
    return BEHIND if _ENGLISH_BEHIND.search(sentence) else NEITHER
