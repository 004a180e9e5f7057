"""What chat front-ends send through the same endpoint that nobody said: task prompts, and documents around words.

Collected from the prompts of Open WebUI (backend/open_webui/config.py), LibreChat (@librechat/agents, title.ts),
NextChat (app/locales), LobeChat, Cherry Studio and Chatbox, 2026-11.
"""

import re

from stackmem.chat_body import Talk

_LOOKED_AT = 400  # characters; a task says at once what it is
_TASKS = re.compile(
    r"""\s*+(?:
    \#{2,3}\ Task:
    | (?:Please\ )?(?:provide|generate|write|create|suggest)\ (?:me\ )?an?\ [^.\n]{0,60}\btitle\b[^.\n]{0,60}
        \b(?:conversation|chat|dialogue)\b
    | (?:Please\ )?generate\ a\ four\ to\ five\ word\ title
    | Create\ a\ concise,\ 3-5\ word\ phrase
    | (?:Please\ )?give\ (?:this|the)\ (?:conversation|chat)\ a\ (?:[\w-]+\ ){0,3}(?:title|name)\b
    | (?:Please\ )?summari[sz]e\ [^.\n]{0,60}\b(?:conversation|chat|dialogue)\b[^.\n]{0,60}
        (?:\btitle\b|\bwords\ or\ (?:less|fewer)\b)
    | Analyze\ this\ conversation\ and\ provide
    | Based\ on\ the\ chat\ history,\ give\ this\ conversation\ a\ name
    | Summarize\ the\ discussion\ briefly\ in\ \d+\ words
    | Your\ task\ is\ to\ (?:reflect\ the\ speaker's|choose\ and\ return\ the\ correct\ tool)
    | You\ have\ been\ provided\ with\ a\ set\ of\ responses\ from\ various\ models
    | Query:\ History:
    | 使用四到五个字直接返回这句话的简要主题
    | 简要总结一下(?:对话|你和用户的对话)
    | [4４][～~-][5５]文字でこの文章の簡潔な主題
    | (?:以下|次|上記|これまで)の会話[^\n]{0,60}タイトル
    | (?:あなたと私|ユーザーとあなた)の会話を簡潔にまとめて
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_TITLE_MAKERS = re.compile(  # the instructions of a request that does nothing else
    r"""\s*+(?:
    You\ are\ [^\n]{0,200}?\b(?:generat|creat|writ|mak|summari[sz])\w*\b[^\n]{0,120}\btitles?\b
    | Available\ Tools:
    | 你是一名擅长会话的助理[^\n]{0,60}标题
    | あなたは[^\n]{0,80}タイトルを[^\n]{0,20}(?:生成|作成|要約|付け|つけ)
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# Open WebUI puts what it found in documents or in the web before the words, or, before 0.5, around them.
_AROUND = re.compile(r"\s*+###\ Task:\s++Respond\ to\ the\ user\ query\ using\ the\ provided\s", re.IGNORECASE)
_ASKED = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)


def is_task(talk: Talk) -> bool:
    """Tell whether a front-end asks for a title, tags, follow-ups or the like: nobody said that."""
    words = talk.new[-1][:_LOOKED_AT]
    if _AROUND.match(words):
        return False
    if _TASKS.match(words):
        return True
    return bool(not talk.pairs and _TITLE_MAKERS.match(talk.system[:_LOOKED_AT]))


def unwrap(words: str) -> tuple[str, str]:
    """Return what was said, and what a front-end put around it ("" where it did not)."""
    if not _AROUND.match(words):
        return words, ""
    if asked := _ASKED.search(words):
        return asked[1], words[: asked.start()].strip()
    around, end, said = words.rpartition("</context>")
    return (said.strip(), around + end) if said.strip() else (words, "")
