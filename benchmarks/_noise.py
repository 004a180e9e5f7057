"""Memories of other talk, made without a model: rows with source turns, then indexed as every memory is."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from peewee import fn

from stackmem import sessions
from stackmem.bootstrap import Runtime
from stackmem.database import transaction
from stackmem.ids import memory_id, turn_uid
from stackmem.indexing import Progress, index_owner
from stackmem.models import Memory, MemorySource, Session, Turn

SEED = 20261130
BEGIN = datetime(2022, 1, 1, tzinfo=UTC)  # the real logs are of the second half of that year
STEP = timedelta(minutes=47)  # 10,000 memories: 11 months
ROWS = 100  # of one statement
STATEMENT = 8  # characters of a line that states something, at least
_QUESTION = re.compile(r"[?？]|か[。！!]?$")


def _words(text: str) -> list[str]:
    return text.split()


WHO = _words("妹 弟 兄 姉 母 父 祖母 祖父 いとこ 同僚 上司 後輩 先輩 友達 隣の人 夫 妻 息子 娘 幼なじみ 叔母 先生")
WHERE = _words(
    "京都 札幌 仙台 金沢 名古屋 大阪 神戸 広島 福岡 那覇 長野 新潟 静岡 松山 函館 鎌倉 日光 箱根 横浜 奈良 駅前の店 "
    "近所の公園 図書館 市民プール 体育館 商店街 デパート 実家 職場の近く 郊外のモール"
)
WHEN = _words("きのう おととい 先週 先月 週末 けさ 夕べ 連休 去年の夏 去年の冬 月曜日 水曜日 金曜日 お正月 お盆 誕生日")
WHAT = _words(
    "ラーメンを食べた 抹茶パフェを食べた カレーを作った 自転車を買った 傘をなくした 映画を見た 写真を撮った 釣りをした "
    "テニスをした 花火を見た 本を3冊借りた 靴を買いかえた 財布を拾った 歯医者に行った 髪を切った 車を洗った "
    "ケーキを焼いた ピアノを弾いた 絵を描いた 温泉に入った 山に登った 海で泳いだ 犬を散歩させた 猫を預かった "
    "パソコンを直した 電話を買いかえた 料理教室に通い始めた 英会話を習い始めた 将棋を指した カラオケで歌った "
    "スキーをした キャンプをした いちご狩りをした 水族館に行った 美術館に行った 野球を見た サッカーをした 編み物をした "
    "ゲームで徹夜した アルバイトを始めた 面接を受けた 資格の試験を受けた 会議に遅れた 電車で寝過ごした 荷物を送った "
    "部屋を片づけた 家具を組み立てた"
)
HOW = _words("楽しかった 疲れた 思ったより高かった 安くすんだ 雨だった 混んでいた すいていた また行きたい 緊張した")


@dataclass(frozen=True)
class Noise:
    """One memory of other talk: its turns are (user, reply)."""

    topic: str
    summary: str
    turns: tuple[tuple[str, str], ...]


def noise(count: int, lines: Sequence[str], seed: int = SEED) -> Iterator[Noise]:
    """Yield ``count`` memories, the same for the same seed: by turns recombined from ``lines`` and made up.

    Of the lines only statements are used: no memory is made of a question or a greeting.
    """
    chosen, said = random.Random(seed), [line for line in lines if is_statement(line)]
    for number in range(count):
        yield _recombined(chosen, said) if said and number % 2 == 0 else _made_up(chosen)


def is_statement(line: str) -> bool:
    """Tell whether a line is long enough to state something, and asks nothing."""
    return len(line) >= STATEMENT and not _QUESTION.search(line)


def _recombined(chosen: random.Random, lines: Sequence[str]) -> Noise:
    first, answer, second, last = (chosen.choice(lines) for _ in range(4))
    summary = f"ユーザーは「{first}」「{second}」と言い、相手は「{answer}」と言った。"
    return Noise(first[:20], summary, ((first, answer), (second, last)))


def _made_up(chosen: random.Random) -> Noise:
    who, where, when, how = (chosen.choice(words) for words in (WHO, WHERE, WHEN, HOW))
    what, other = chosen.sample(WHAT, 2)
    summary = f"ユーザーは{when}、{who}と{where}で{what}。{how}。相手は{other}。"
    turns = (
        (f"{when}、{who}と{where}で{what}よ", "いいですね、どうでした？"),
        (f"{how}かな。そっちは？", f"こちらは{other}ところです"),
    )
    return Noise(f"{who}と{what}", summary, turns)


def add(runtime: Runtime, owner: str, memories: Sequence[Noise], report: Progress) -> None:
    """Insert the memories with their turns, as if made long ago, and bring them into the index."""
    turns: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    with transaction():
        session = sessions.begin(owner, "noise", now=BEGIN, named=True, ended_at=BEGIN, imported="noise")
        next_id = (Turn.select(fn.MAX(Turn.id)).scalar() or 0) + 1
        for number, made in enumerate(memories):
            at, first = BEGIN + STEP * number, next_id + len(turns)
            said = [_turn(session, len(turns) + step, words, at) for step, words in enumerate(made.turns, 1)]
            said = [row | {"id": first + step} for step, row in enumerate(said)]
            rows.append(_memory(owner, made, [row["uid"] for row in said], at))
            links += [{"memory": rows[-1]["id"], "turn": row["id"]} for row in said]
            turns += said
        for table, values in ((Turn, turns), (Memory, rows), (MemorySource, links)):
            for start in range(0, len(values), ROWS):
                table.insert_many(values[start : start + ROWS]).execute()
    index_owner(runtime.index, owner, report)


def _turn(session: Session, ordinal: int, words: tuple[str, str], at: datetime) -> dict[str, Any]:
    return {
        "uid": turn_uid(session.owner, session.name, session.seq, ordinal, words[0]), "session": session.id,
        "ordinal": ordinal, "owner": session.owner, "at": at, "received_at": at, "user": words[0], "reply": words[1],
        "state": "kept", "imported": True,
    }  # fmt: skip


def _memory(owner: str, made: Noise, uids: Sequence[str], at: datetime) -> dict[str, Any]:
    return {
        "id": memory_id(at, owner, uids), "owner": owner, "topic": made.topic, "summary": made.summary,
        "memory_type": "episode", "occurred_at": at, "occurred_from": at, "occurred_to": at, "said_at": at,
        "created_at": at,
    }  # fmt: skip
