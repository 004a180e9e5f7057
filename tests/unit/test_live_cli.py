"""What `stackmem eval show`, `score` and `judge` print."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evals.figures import Agreement
from evals.judge.turn import PROMPT_VERSION
from evals.windows import write_windows
from stackmem import sessions
from stackmem.cli import main
from stackmem.clock import SystemClock
from stackmem.database import open_database
from stackmem.models import Owner, Turn, proxy
from stackmem.score_models import JudgeStanding, Label
from tests.scripted import Answer, ScriptedServer, content, error
from tests.unit.test_windows import FOUND, KINDS, NEEDLESS, NOT_FOUND, NOT_SEARCHED, SEARCHED_FOR_NOTHING, Kind

Say = Callable[..., Result]


def said(needed: bool, right: list[int] | None = None) -> Answer:
    return content(json.dumps({"needed": needed, "right": right, "reason": ""}))


@pytest.fixture
def store(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The database of a home folder of its own, connected."""
    monkeypatch.setenv("STACKMEM_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    database = open_database(f"sqlite:///{home}/stackmem.db")
    database.connect()
    yield database
    database.close()


@pytest.fixture
def run(store: Any, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Run a command of ``stackmem eval`` in this process."""

    def run(*arguments: str, **settings: str) -> Result:
        for name, value in settings.items():
            monkeypatch.setenv(f"STACKMEM_{name.upper()}", value)
        store.close()
        try:
            return CliRunner().invoke(main, ["eval", *arguments])
        finally:
            proxy.initialize(store)  # the command bound the models to a connection of its own
            store.connect()

    return run


def talk(count: int, owner: str = "home") -> list[Turn]:
    """Insert turns that a model answered."""
    now = SystemClock().now()
    Owner.insert(name=owner).on_conflict_ignore().execute()
    session = sessions.begin(owner, f"s{Turn.select().count()}", now=now, named=True)
    return [
        Turn.create(
            uid=f"{owner}-{session.id}-{number}", session=session, ordinal=number, owner=owner, at=now, received_at=now,
            user="うん、そうだね", reply="そうだね", state="skipped", model="qwen",
        )
        for number in range(count)
    ]  # fmt: skip


def label(turns: list[Turn], *kinds: Kind, judge: str = "qwen", version: str = PROMPT_VERSION) -> None:
    for number, turn in enumerate(turns):
        needed, searched, right, found = kinds[number % len(kinds)]
        Label.create(
            turn=turn, owner=turn.owner, state="judged", needed=needed, searched=searched, right_ids=right, found=found,
            judge=judge, prompt_version=version, created_at=turn.at,
        )  # fmt: skip
    write_windows(turns[0].owner, turns[0].at)


def stands(needed: Agreement, missed: Agreement, judge: str = "qwen") -> None:
    counts = {"needed": needed, "found": missed, "missed": missed}
    JudgeStanding.create(
        judge=judge, prompt_version=PROMPT_VERSION, labels_version="v", created_at=SystemClock().now(),
        verdicts=dict.fromkeys(map(str, range(needed.count)), {}),
        agreement={name: [v.both, v.only_first, v.only_second, v.neither] for name, v in counts.items()},
    )  # fmt: skip


# --- show ------------------------------------------------------------------------------------------------------------


def test_without_labels_there_are_no_rates(run: Say) -> None:
    done = run("show")
    assert done.exit_code == 0, done.output
    assert "home: 0 live turns judged, 0 wait, 0 cannot be judged" in done.output
    assert "There are no rates yet" in done.output
    assert json.loads(run("show", "--json").stdout)["judges"] == []


def test_every_rate_shows_its_counts_its_interval_and_what_its_judge_is_worth(run: Say) -> None:
    label(talk(20), NEEDLESS, SEARCHED_FOR_NOTHING, FOUND, NOT_FOUND, NOT_SEARCHED)
    stands(Agreement(55, 5, 5, 55), Agreement(10, 20, 10, 80))
    shown = run("show").output
    assert "searched in vain  .50 (4/8, .22 to .78)" in shown
    assert "trustworthy (accuracy 0.92, kappa 0.83, 120 turns)" in shown
    assert "missed            .67 (8/12, .39 to .86)" in shown
    assert "not trustworthy (accuracy 0.75, kappa 0.25, 120 turns)" in shown
    assert "4 not searched, 4 not found" in shown
    assert "windows of 10: 2" in shown
    assert "turns 11-20" in shown
    assert "windows of 50" not in shown


def test_a_judge_that_nobody_judged_says_so_beside_every_rate(run: Say) -> None:
    label(talk(3), NEEDLESS)
    shown = run("show").output
    assert shown.count("never judged: `stackmem eval judge` says what this judge is worth") == 2
    assert "n/a (0/0)" in shown


def test_an_undefined_kappa_is_shown_as_such(run: Say) -> None:
    label(talk(1), NEEDLESS)
    stands(Agreement(0, 0, 0, 9), Agreement(0, 0, 0, 0))
    shown = run("show").output
    assert "not trustworthy (accuracy 1.00, kappa n/a, 9 turns)" in shown
    assert "not trustworthy (accuracy n/a, kappa n/a, 0 turns)" in shown


def test_as_json_everything_is_there_the_newest_judge_first(run: Say) -> None:
    label(talk(12), *KINDS)
    label(talk(50), NEEDLESS, judge="newer", version="x")
    label(talk(2, owner="mari"), NEEDLESS)
    Label.create(
        turn=talk(1)[0], owner="home", state="unjudgeable", judge="newer", prompt_version="x",
        created_at=SystemClock().now(),
    )  # fmt: skip
    talk(3)
    shown = json.loads(run("show", "--json").stdout)
    assert shown["turns"] == {"judged": 62, "unjudgeable": 1, "waiting": 3}
    assert (shown["calls_today"], shown["calls_per_day"]) == (0, 100)
    assert [(judge["judge"], judge["turns"]) for judge in shown["judges"]] == [("newer", 50), ("qwen", 12)]
    newer, older = shown["judges"]
    assert [window["size"] for window in newer["windows"]] == [10] * 5 + [50]
    assert newer["standing"] is None
    assert newer["trust"] == {"false_trigger_rate": "never judged", "miss_rate": "never judged"}
    assert older["miss_rate"] | {"low": 0, "high": 0} == {
        "num": 4, "den": 6, "value": 4 / 6, "low": 0, "high": 0, "not_searched": 2, "not_found": 2,
    }  # fmt: skip
    (window,) = older["windows"]
    assert (window["first_turn"], window["last_turn"], window["false_trigger_rate"]["den"]) == (1, 10, 4)
    assert window["to"].endswith("+09:00")


# --- score -----------------------------------------------------------------------------------------------------------


def test_the_last_turns_are_judged_now_and_their_rates_printed(run: Say) -> None:
    label(talk(3), SEARCHED_FOR_NOTHING, judge="scripted")
    talk(4)
    with ScriptedServer(lambda request: said(False)) as server:
        judge = {"judge_base_url": server.base_url, "judge_model": "scripted"}
        done = run("score", "--last", "5", **judge)
        assert done.exit_code == 0, done.output
        assert "Judged now: 4 turns." in done.output
        assert ".20 (1/5, .04 to .62)" in done.output
        again = json.loads(run("score", "--json", **judge).stdout)
        assert (again["judged"], again["stopped"], again["judges"][0]["turns"]) == (0, "", 7)
        assert len(server.requests) == 4


def test_turns_that_no_model_answered_have_no_rates_and_that_is_said(run: Say) -> None:
    done = run("score")
    assert done.output.splitlines()[-2:] == [
        "Judged now: 0 turns.",
        "There are no rates yet: only turns that a chat model answered are judged, by the judge that is set.",
    ]


def test_what_stops_the_scoring_is_said(run: Say) -> None:
    talk(3)
    with ScriptedServer([said(False), said(False)]) as server:
        judge = {"judge_base_url": server.base_url, "judge_model": "scripted", "judge_calls_per_day": "1"}
        done = run("score", **judge)
    assert "Judged now: 1 turns." in done.output
    assert "Not all: Today's calls of the judge are spent" in done.output
    assert json.loads(run("show", "--json", **judge).stdout)["calls_today"] == 1


# --- judge -----------------------------------------------------------------------------------------------------------


def test_the_offline_judge_is_judged_without_a_key(run: Say) -> None:
    done = run("judge")
    assert done.exit_code == 0, done.output
    assert f"Judge offline, prompts {PROMPT_VERSION}, " in done.output
    assert "a memory was needed     accuracy ." in done.output
    assert "Its rate of turns missed is not trustworthy." in done.output
    shown = json.loads(run("judge", "--json").stdout)
    assert shown["needed"]["turns"] == shown["labels"]
    assert shown["trust"]["miss_rate"] == "not trustworthy"


def test_answers_that_cannot_be_used_are_counted(run: Say) -> None:
    with ScriptedServer(lambda request: content("さあ")) as server:
        done = run("judge", judge_base_url=server.base_url, judge_model="rubbish")
    assert "of them it gave no answer that can be used" in done.output
    assert "accuracy n/a (0/0), kappa n/a" in done.output


def test_a_judge_that_is_down_keeps_what_it_said(run: Say) -> None:
    answers = iter([said(False), said(False)])
    with ScriptedServer(lambda request: next(answers, error(503, "down"))) as server:
        done = run("judge", judge_base_url=server.base_url, judge_model="flaky")
    assert done.exit_code == 1
    assert "the same command goes on" in done.output
    assert len(JudgeStanding.get().verdicts) == 2
