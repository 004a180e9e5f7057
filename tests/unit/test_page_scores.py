"""The pages of scores: rates, charts, marks and runs, over a store with judged turns."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from evals.results import summary
from evals.windows import write_windows
from stackmem.bootstrap import Runtime, build
from stackmem.config import load_settings
from stackmem.models import Owner, Session, Turn
from stackmem.score_models import Label
from tests.visiting import Reader
from web import create_app
from web.pages.charts import HEIGHT, SHOWN, WIDTH, chart
from web.pages.shown import period, when

RATE = {"value": 0.5, "low": 0.2, "high": 0.8}
NONE = {"value": None, "low": None, "high": None}


@pytest.fixture
def runtime(home: Path) -> Iterator[Runtime]:
    built = build(load_settings(home=home), owns_index=True)
    yield built
    built.close()


@pytest.fixture
def client(runtime: Runtime) -> FlaskClient:
    return create_app(runtime).test_client()


def judged(runtime: Runtime, count: int, model: str = "qwen", prompts: str | None = None) -> list[int]:
    """Insert judged turns: every second one searched in vain, every third missed a memory."""
    with runtime.database.connection_context():
        now = runtime.clock.now()
        Owner.insert(name="home").on_conflict_ignore().execute()
        session, _ = Session.get_or_create(
            owner="home", name="s", seq=1, defaults={"named": True, "started_at": now, "received_at": now}
        )
        first = Turn.select().count()
        ids = []
        for number in range(first, first + count):
            turn = Turn.create(
                uid=f"u{number}", session=session, ordinal=number, owner="home", at=now, received_at=now,
                user=f"話{number}", reply="うん", state="kept", model=model, prompts=prompts,
                searched=number % 2 == 1,
            )  # fmt: skip
            missed = number % 3 == 2
            Label.create(
                turn=turn.id, owner="home", state="judged", needed=missed, found=False if missed else None,
                searched=number % 2 == 1, right_ids=["m"] if missed else [], reason=f"理由{number}", judge="judge-x",
                prompt_version="p1", created_at=now,
            )  # fmt: skip
            ids.append(turn.id)
        write_windows("home", now)
    return ids


def page(client: FlaskClient, path: str, status: int = 200) -> str:
    answer = client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == status, answer.text
    return str(answer.text)


def send(client: FlaskClient, path: str, **fields: str) -> Any:
    page(client, "/memories/names")
    cookie = client.get_cookie("stackmem_csrf")
    assert cookie is not None
    return client.post(path, data={"csrf_token": cookie.value, **fields}, follow_redirects=True)


def test_rates_stand_with_their_counts_their_judge_and_the_table_behind_the_chart(
    client: FlaskClient, runtime: Runtime
) -> None:
    judged(runtime, 30)
    judged(runtime, 30, model="other")
    shown = page(client, "/scores")
    for words in ("judge-x", "判定の確かさは未測定", "10 回ごと", "50 回ごと", "<polyline", "<table>", "other"):
        assert words in shown
    assert shown.count("<svg class=") == 4
    assert shown.count('class="change"') == 2, "the model changed once, in two charts"


def test_the_charts_show_where_the_prompts_changed(client: FlaskClient, runtime: Runtime) -> None:
    judged(runtime, 10, prompts="aaaa0000")
    judged(runtime, 10, prompts="bbbb1111")
    shown = page(client, "/scores")
    assert "qwen · bbbb1111" in shown
    assert shown.count('class="change"') == 2, "once, in two charts"


def test_turns_that_went_wrong_are_listed_with_the_reason(client: FlaskClient, runtime: Runtime) -> None:
    judged(runtime, 6)
    shown = page(client, "/scores/turns")
    for words in ("むだに探した", "探さなかった", "見つけられなかった", "理由1"):
        assert words in shown
    assert "話0" not in shown


def test_a_turn_is_marked_counted_taken_along_and_unmarked(client: FlaskClient, runtime: Runtime) -> None:
    first, second = judged(runtime, 2)
    answer = send(client, f"/turns/{first}/mark", kind="should_have_searched")
    assert "印をつけました" in answer.text
    assert "should_not_have_searched" not in answer.text, "it did not search"
    assert "人の印との一致" in page(client, "/scores")
    assert "探すべきだった" in page(client, "/scores/marks")
    assert "探さなかった" in page(client, "/scores/turns")
    scenario = client.get(f"/turns/{first}/scenario")
    assert f"id: marked-{first}" in scenario.text
    assert scenario.headers["Content-Disposition"].endswith(f'"marked-{first}.yaml"')
    assert send(client, f"/turns/{first}/mark", kind="should_have_searched", right="mem_0").status_code == 400
    assert "印を消しました" in send(client, f"/turns/{first}/mark", unmark="").text
    page(client, f"/turns/{second}/scenario", 404)


def test_of_a_turn_whose_words_were_deleted_no_scenario_is_left(client: FlaskClient, runtime: Runtime) -> None:
    (turn,) = judged(runtime, 1)
    send(client, f"/turns/{turn}/mark", kind="should_have_searched")
    with runtime.database.connection_context():
        Turn.update(user="", reply="").execute()
    page(client, f"/turns/{turn}/scenario", 404)
    assert "言葉は消されました" in page(client, "/scores/marks")


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_broken_database_is_told_as_a_page(client: FlaskClient, runtime: Runtime) -> None:
    with runtime.database.connection_context():
        runtime.database.execute_sql("DROP TABLE alias")
    shown = page(client, "/memories/names", 503)
    assert "少し待って" in shown
    assert "no such table" not in shown


def test_a_time_at_the_end_of_all_days_is_shown_as_it_is(runtime: Runtime) -> None:
    with create_app(runtime).test_request_context():
        assert when("9999-12-31T23:00:00+00:00") == "9999年12月31日(金) 23:00"
        assert period("2026-07-23T01:00:00+09:00", "2026-07-24T00:00:00+09:00").count("–") == 1


# --- runs ------------------------------------------------------------------------------------------------------------


def a_run(home: Path, name: str, right: bool) -> None:
    verdicts = {"false_trigger": not right, "answer": right}
    turn = {
        "user": "前に進んで", "reply": "<b>はい</b>", "verdicts": verdicts, "expect": {}, "duration_ms": 5.0,
        "model_calls": 1, "tokens": {}, "degraded": False, "ask_back_judge": None, "found": None, "searched": False,
    }  # fmt: skip
    turns = [{**turn, "index": number} for number in range(10)]
    rate = {"num": 1, "den": 2}
    scenario = {
        "id": "s", "tags": ["false_trigger"], "turns": turns, "capture": rate, "noise": rate,
        "background": {"calls": 1, "tokens": 2},
    }  # fmt: skip
    about = {"model": "qwen-run", "mode": "free", "memory_model": "qwen-memory", "prompts": "abc123"}
    (home / "runs" / name).mkdir(parents=True)
    (home / "runs" / name / "results.json").write_text(json.dumps(summary(about, [scenario])))


def test_runs_are_listed_shown_and_compared(client: FlaskClient, home: Path) -> None:
    a_run(home, "before", right=False)
    a_run(home, "after", right=True)
    assert "qwen-run" in page(client, "/scores/runs")
    compared = page(client, "/scores/runs?a=before&b=after")
    for words in ("A: before、B: after", "良い", "0.0"):
        assert words in compared
    shown = page(client, "/scores/runs/before")
    for words in ("むだな検索", "qwen-memory", "&lt;b&gt;はい", "むだに探した"):
        assert words in shown


def test_a_run_is_a_name_that_is_there_and_never_a_path(client: FlaskClient, home: Path) -> None:
    a_run(home, "one", right=True)
    for name in ("two", "..", "..%2F..", "%2Fetc"):
        page(client, f"/scores/runs/{name}", 404)
    page(client, "/scores/runs?a=one&b=../one", 404)


def test_a_run_that_cannot_be_read_is_named_beside_the_others(client: FlaskClient, home: Path) -> None:
    a_run(home, "good", right=True)
    (home / "runs" / "broken").mkdir()
    (home / "runs" / "broken" / "results.json").write_text("{")
    (home / "runs" / "unfinished").mkdir()
    shown = page(client, "/scores/runs")
    assert "good" in shown
    assert "cannot be read as JSON" in shown
    reader = Reader()
    reader.feed(shown)
    assert "/scores/runs/unfinished" not in reader.links


# --- charts ----------------------------------------------------------------------------------------------------------


def test_a_chart_keeps_inside_its_picture_and_leaves_out_rates_of_nothing() -> None:
    drawn = chart([RATE, NONE, {"value": 1.0, "low": 0.9, "high": 1.0}], ["a", "b", "c"], ["m", "m", "n"])
    assert [point.title for point in drawn.points] == ["a", "c"]
    assert all(0 <= point.x <= WIDTH and 0 <= point.high <= point.y <= point.low <= HEIGHT for point in drawn.points)
    assert [model for _, model in drawn.changes] == ["n"]
    assert chart([], [], []).points == []


def test_a_chart_shows_the_newest_points_alone() -> None:
    count = SHOWN + 5
    drawn = chart([RATE] * count, [str(n) for n in range(count)], ["m"] * count)
    assert (len(drawn.points), drawn.points[0].title) == (SHOWN, "5")
