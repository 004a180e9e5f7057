"""How long the server takes for every page, with 10,000 memories and 100,000 turns.

Needs nothing but some minutes to fill the store. Run ``python -m benchmarks.pages`` from the checkout. The time is that
of the app alone, without the network: from the request's arrival to the last byte of the page. The processor's time
beside it does not depend on what else runs on the machine.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import click
from flask.testing import FlaskClient

from benchmarks._filling import fill
from stackmem.bootstrap import Runtime, build
from stackmem.config import load_settings
from stackmem.database import transaction
from stackmem.models import Memory, Session, ToolTrace, Turn
from stackmem.score_models import Label, Score
from web import create_app

WANTED_MS = 100  # p95 of any page
START = datetime(2025, 1, 1, tzinfo=UTC)
PER_SESSION = 50  # turns
SEARCHED = 4  # one turn of so many searched
JUDGED = 5  # and one of so many was judged


def talk(runtime: Runtime, count: int) -> None:
    """Insert ``count`` turns of many sessions, each fourth with a search that found five memories."""
    ids = [row.id for row in Memory.select(Memory.id).order_by(Memory.id)]
    for first in range(0, count, 5000):
        with transaction():
            _insert(range(first, min(first + 5000, count)), ids)


def _insert(numbers: range, ids: Sequence[str]) -> None:
    for at in range(numbers.start, numbers.stop, PER_SESSION):
        moment = START + timedelta(minutes=10 * at)
        session = Session.create(
            owner="home", name=f"talk-{at}", seq=1, named=True, started_at=moment, received_at=moment, ended_at=moment
        )
        part = range(at, min(at + PER_SESSION, numbers.stop))
        first = Turn.insert_many([_turn(number, session, ids) for number in part]).returning(Turn.id).execute()
        turns = [row.id for row in first]
        searched = [(turn, n) for turn, n in zip(turns, part, strict=True) if n % SEARCHED == 0]
        ToolTrace.insert_many([_trace(turn, number, ids) for turn, number in searched]).execute()
        judged = [(turn, n) for turn, n in zip(turns, part, strict=True) if n % JUDGED == 0]
        Label.insert_many([_label(turn, number, moment) for turn, number in judged]).execute()


def _shown(number: int, ids: Sequence[str]) -> list[str]:
    return [ids[(number * 7 + step * 131) % len(ids)] for step in range(5)]


def _turn(number: int, session: Session, ids: Sequence[str]) -> dict[str, object]:
    at = START + timedelta(minutes=10 * number)
    return {
        "uid": f"bench-{number}", "session": session, "ordinal": number % PER_SESSION + 1, "owner": "home", "at": at,
        "received_at": at, "user": f"{number}番目の話で、倉庫の自転車のことを聞いたよ", "model": "qwen3",
        "reply": "そうなんだね、倉庫の自転車はまだ乗れるのかな。" * 2, "emotion": "happy", "action": "nod",
        "state": "failed" if number % 1000 == 999 else "pending" if number % 500 == 1 else "kept",
        "searched": number % SEARCHED == 0, "memory_ids": _shown(number, ids) if number % SEARCHED == 0 else [],
        "model_calls": 1, "tokens": {"prompt": 900, "completion": 40}, "durations_ms": {"model": 800, "total": 830},
    }  # fmt: skip


def _trace(turn: int, number: int, ids: Sequence[str]) -> dict[str, object]:
    hits = [
        {"memory_id": memory, "retrieval_score": 0.7, "rank_score": 0.8, "source_checked": True, "source_turn_ids": [1]}
        for memory in _shown(number, ids)
    ]
    return {
        "turn": turn, "ordinal": 0, "tool": "search_memory", "arguments": {"query": "倉庫の自転車"}, "hits": hits,
        "duration_ms": 12.5, "looked_for": {"query": "倉庫の自転車"}, "result": {"candidates": ["言葉" * 600]},
    }  # fmt: skip


def _label(turn: int, number: int, at: datetime) -> dict[str, object]:
    return {
        "turn": turn, "owner": "home", "state": "judged", "needed": number % 3 == 0, "found": None,
        "searched": number % SEARCHED == 0, "right_ids": ["m"] if number % 3 == 0 else [], "judge": "qwen3",
        "prompt_version": "1", "created_at": at,
    }  # fmt: skip


def score(count: int) -> None:
    """Insert the windows of so many judged turns."""
    for size in (10, 50):
        for ordinal in range(count // size):
            at = START + timedelta(hours=ordinal)
            Score.create(
                owner="home", judge="qwen3", prompt_version="1", size=size, ordinal=ordinal, first_turn=1, last_turn=2,
                from_at=at, to_at=at, needless=size // 2, false_triggers=ordinal % 3, findable=size // 2,
                not_searched=ordinal % 2, not_found=ordinal % 4 // 3, created_at=at,
            )  # fmt: skip


def addresses() -> list[str]:
    """Return one address of every kind of page, the costly ones among them."""
    turn = Turn.select().where(Turn.searched).order_by(Turn.id.desc()).first()
    memory, session = turn.memory_ids[0], turn.session_id
    return [
        "/", "/talk", "/memories", "/memories?page=400", f"/memories?q={quote('札幌で買ったギターの倉庫')}",
        f"/memories?entity={quote('京都')}", "/memories?since=2025-01-05&until=2025-01-10",
        "/memories?status=forgotten",
        "/memories?type=episode&page=3", f"/memories/{memory}", "/memories/waiting", "/memories/waiting?state=failed",
        "/memories/requests", "/memories/names", "/memories/transfer", "/conversations", "/conversations?page=60",
        f"/conversations/{session}", f"/conversations/{session}?turn={turn.id}", f"/turns/{turn.id}", "/scores",
        "/scores/turns", "/scores/marks", "/scores/runs", "/health", "/login",
    ]  # fmt: skip


def measure(client: FlaskClient, path: str, rounds: int) -> tuple[float, float, float, int]:
    """Return median and p95 in milliseconds, the median of the processor's, and the page's bytes."""
    times, spent, size = [], [], 0
    for _ in range(rounds):
        started, used = time.perf_counter(), time.process_time()
        answer = client.get(path, headers={"Accept": "text/html"})
        size = len(answer.data)
        times.append((time.perf_counter() - started) * 1000)
        spent.append((time.process_time() - used) * 1000)
        if answer.status_code != 200:
            raise click.ClickException(f"{path} answered {answer.status_code}.")
    times.sort()
    spent.sort()
    return times[len(times) // 2], times[int(len(times) * 0.95)], spent[len(spent) // 2], size


@click.command()
@click.option("--memories", default=10_000, show_default=True)
@click.option("--turns", default=100_000, show_default=True)
@click.option("--rounds", default=40, show_default=True)
@click.option("--home", type=click.Path(path_type=Path), help="Keep the store here, or use the one that is here.")
def main(memories: int, turns: int, rounds: int, home: Path | None) -> None:
    """Fill a store and ask for every page."""
    folder = home or Path(tempfile.mkdtemp())
    if not (folder / "stackmem.db").exists():
        print(f"filling: {memories:,} memories, {turns:,} turns …")
        fill(folder, memories, START)
    runtime = build(load_settings(home=folder, database_url="", index_url="edge:"), owns_index=True)
    with runtime.database.connection_context():
        if not Score.select().exists():
            talk(runtime, turns - memories)
            score(turns // JUDGED)
        paths = addresses()
    client = create_app(runtime).test_client()
    worst = 0.0
    for path in paths:
        client.get(path, headers={"Accept": "text/html"})
        median, p95, spent, size = measure(client, path, rounds)
        worst = max(worst, p95)
        print(f"{path[:50]:52}p50 {median:6.1f}  p95 {p95:6.1f}  CPU {spent:6.1f} ms  {size / 1000:5.1f} kB")
    runtime.close()
    if home is None:
        shutil.rmtree(folder)
    print(f"worst p95: {worst:.1f} ms (wanted: {WANTED_MS} ms at most)")
    sys.exit(worst > WANTED_MS)


if __name__ == "__main__":
    main()
