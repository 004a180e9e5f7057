"""``stackmem eval``: scripted conversations, run for real."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from evals.results import Folder
from evals.scenario import TAGS, files_of, read
from tests.running import command, environment, json_of, until
from tests.scripted import Answer, ScriptedServer, call, content, error, hang, say

ZONE = ZoneInfo("Asia/Tokyo")

SCORES = [
    "false_trigger_rate",
    "miss_rate",
    "ask_back_rate",
    "correction_rate",
    "answer_rate",
    "capture_recall",
    "noise_rate",
]


def scenario(name: str, *turns: str) -> str:
    """Return a scenario about a cat, its conversation filled up with small talk to ten turns."""
    talk = [*turns, *(f"{{user: 前に進んで{n}, assistant: 参照{n}, expect: {{search: false}}}}" for n in range(10))][
        :10
    ]
    return f"""\
id: {name}
language: ja
title: 猫の名前
tags: [recall, false_trigger]
history:
  - session: h1
    at: "2026-07-01T20:15:00+09:00"
    turns:
      - {{id: h1.1, user: うちの猫の名前はモモだよ, assistant: かわいいね, keep: true, type: episode}}
      - {{id: h1.2, user: うん, assistant: うん, keep: false}}
conversation:
  session: c1
  at: "2026-07-23T01:00:00+09:00"
  turns:
""" + "".join(f"    - {turn}\n" for turn in talk)


CAT = "{user: 猫の名前なんだっけ, assistant: モモだよ, expect: {search: true, evidence: [h1.1], answer: [[モモ]]}}"


def folder_of(path: Path, **texts: str) -> Path:
    """Return a folder of scenario files."""
    path.mkdir()
    for name, text in texts.items():
        (path / f"{name}.yaml").write_text(text, "utf-8")
    return path


def words(request: dict[str, Any]) -> list[str]:
    """Return the words of a request's messages, the system's left out."""
    return [str(message["content"]) for message in request["messages"] if message["role"] != "system"]


def model(reply: Callable[[str], Answer]) -> Callable[[Any], Answer]:
    """Return a script that answers live turns so, and keeps no memory by itself."""

    def script(request: Any) -> Answer:
        return reply(words(request)[-1]) if "tools" in request else content('{"segments": []}')

    return script


def remote(server: ScriptedServer, **more: str) -> dict[str, str]:
    """Return the settings of a scripted model, with memories by rules."""
    return {"chat_base_url": server.base_url, "chat_model": "scripted", "memory_model": "offline", **more}


def test_a_run_writes_scores_pages_and_a_table(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a", CAT), b=scenario("b"))
    done = command(home, "eval", "run", str(scenarios), "--jobs", "2", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "missed a memory" in done.stdout
    assert "20 turns" in done.stdout
    results = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    assert list(results["scores"]) == SCORES
    assert (results["model"], results["embedder"], results["mode"], results["turns"]) == ("offline", "use", "free", 20)
    assert (results["scores"]["miss_rate"]["num"], results["scores"]["miss_rate"]["den"]) == (0, 1)
    assert results["scores"]["capture_recall"]["value"] == 1.0
    assert results["scores"]["ask_back_rate"]["value"] is None
    first = results["scenarios"][0]["turns"][0]
    assert (first["index"], first["user"], first["searched"], first["found"]) == (0, "猫の名前なんだっけ", True, True)
    assert first["expect"] == {"search": True, "evidence": ["h1.1"], "answer": [["モモ"]]}
    assert first["verdicts"] == {"miss": False, "answer": True}
    assert first["calls"][0]["hits"][0]["turns"] == ["h1.1"]
    never, always = results["baselines"]["never"], results["baselines"]["always"]
    assert (never["miss_rate"]["value"], never["false_trigger_rate"]["value"]) == (1.0, 0.0)
    assert (always["miss_rate"]["value"], always["false_trigger_rate"]["value"]) == (0.0, 1.0)
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert "http" not in page
    assert "| never search |" in (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "In the background: 4 calls, 0 tokens." in done.stdout  # of rules, none of which anybody pays for
    assert not list(home.iterdir())  # the maker's own store is not touched


def test_free_keeps_what_the_model_said_and_forced_the_reference_replies(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a"))
    for mode, kept, gone in (("free", "自分の返事", "参照0"), ("forced", "参照0", "自分の返事")):
        with ScriptedServer(model(lambda _: say("自分の返事"))) as server:
            out = str(tmp_path / mode)
            done = command(
                home, "eval", "run", str(scenarios), "--mode", mode, "--out", out, "--no-baseline", **remote(server)
            )
            assert done.returncode == 0, done.stderr
            last = "\n".join(words(server.requests[-1].json))
        assert kept in last
        assert gone not in last
        results = json.loads((tmp_path / mode / "results.json").read_text("utf-8"))
        assert results["baselines"] == {}
        assert {turn["reply"] for turn in results["scenarios"][0]["turns"]} == {"自分の返事"}


def test_the_clock_is_the_scenarios_own(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a", CAT))
    with ScriptedServer(model(lambda _: say("うん"))) as server:
        done = command(home, "eval", "run", str(scenarios), "--out", str(tmp_path / "out"), **remote(server))
        assert done.returncode == 0, done.stderr
        assert "2026-07-23T01:00" in server.requests[0].json["messages"][0]["content"]


def test_a_threshold_that_is_crossed_ends_with_3(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a", CAT))
    script = model(lambda said: call("search_memory", {"query": said}) if said.startswith("前に") else say("うん"))
    with ScriptedServer(script) as server:
        run = ["eval", "run", str(scenarios), "--out", str(tmp_path / "out")]
        done = command(home, *run, "--max-false-trigger", "0.05", **remote(server))
        assert done.returncode == 3, done.stderr
        assert "searched needlessly: 1.000 is above 0.05" in done.stderr
        asked = len(server.requests)
        done = command(home, *run, "--max-miss", "0.5", **remote(server))
        assert done.returncode == 3
        assert "missed a memory: 1.000 is above 0.5" in done.stderr
        done = command(home, *run, "--max-miss", "1", "--max-false-trigger", "1", **remote(server))
        assert done.returncode == 0, done.stderr
        assert len(server.requests) == asked  # what is done is not done again


def test_a_crash_costs_one_scenario_and_the_next_run_does_only_that(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a"), b=scenario("b", CAT), c=scenario("c"))
    run = ["eval", "run", str(scenarios), "--out", str(tmp_path / "out"), "--jobs", "1"]
    hangs = ScriptedServer(model(lambda said: hang() if said.startswith("猫") else say("うん")))
    with hangs as server:
        settings = remote(server, chat_timeout_s="600", turn_timeout_s="600")
        arguments = [sys.executable, "-m", "stackmem", *run]
        process = subprocess.Popen(arguments, env=environment(home, **settings), cwd=tmp_path, stderr=subprocess.PIPE)
        until(lambda: any(words(r.json)[-1].startswith("猫") for r in server.requests), "the second scenario is asked")
        kill_children(process.pid)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "b failed: its process ended with signal SIGKILL." in said.decode()
        assert sorted(path.stem for path in (tmp_path / "out" / "scenarios").iterdir()) == ["a", "c"]
    with ScriptedServer(model(lambda _: say("うん"))) as server:
        done = command(home, *run, **remote(server))
        assert done.returncode == 0, done.stderr
        assert len(server.requests) == 10
    assert json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))["turns"] == 30


def kill_children(pid: int) -> None:
    """Kill the processes that run a scenario, as the kernel does when memory is short."""
    for child in spawned_by(pid):
        subprocess.run(["kill", "-9", child], check=True)


def spawned_by(pid: int) -> list[str]:
    """Return the processes that run a scenario for a command."""
    children = [
        child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_what_runs_a_scenario_ends_with_the_command_however_that_ends(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a"))
    with ScriptedServer(model(lambda _: hang())) as server:
        settings = remote(server, chat_timeout_s="600", turn_timeout_s="600")
        run = [sys.executable, "-m", "stackmem", "eval", "run", str(scenarios), "--out", str(tmp_path / "out")]
        process = subprocess.Popen(run, env=environment(home, **settings), cwd=tmp_path)
        until(lambda: server.requests, "the model is asked")
        children = spawned_by(process.pid)
        process.kill()
        process.wait()
        until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "its children end too")
    assert children


def test_a_scenario_that_was_changed_is_run_again(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a"))
    run = ["eval", "run", str(scenarios), "--out", str(tmp_path / "out")]
    assert json_of(home, *run)["scores"]["miss_rate"]["den"] == 0
    (scenarios / "a.yaml").write_text(scenario("a", CAT), "utf-8")
    assert json_of(home, *run)["scores"]["miss_rate"]["den"] == 1


def test_a_folder_of_another_run_is_refused(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a"))
    out = ["--out", str(tmp_path / "out")]
    assert command(home, "eval", "run", str(scenarios), *out).returncode == 0
    done = command(home, "eval", "run", str(scenarios), *out, "--mode", "forced")
    assert (done.returncode, "another mode" in done.stderr) == (1, True)
    (tmp_path / "out" / "run.json").write_text("{")
    done = command(home, "eval", "run", str(scenarios), *out)
    assert (done.returncode, "cannot be read as JSON" in done.stderr) == (1, True)


def test_results_are_not_dropped_by_a_run_of_fewer_scenarios(home: Path, tmp_path: Path) -> None:
    scenarios, out = folder_of(tmp_path / "s", a=scenario("a"), b=scenario("b")), str(tmp_path / "out")
    assert command(home, "eval", "run", str(scenarios / "a.yaml"), "--out", out).returncode == 0
    assert json_of(home, "eval", "run", str(scenarios), "--out", out)["turns"] == 20
    done = command(home, "eval", "run", str(scenarios / "a.yaml"), "--out", out)
    assert (done.returncode, f"{out} holds results of more scenarios: b." in done.stderr) == (1, True)
    assert json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))["turns"] == 20


def test_a_scenario_that_is_in_two_files_is_named_with_both(home: Path, tmp_path: Path) -> None:
    one, other = folder_of(tmp_path / "s", a=scenario("a")), folder_of(tmp_path / "t", a=scenario("a"))
    done = command(home, "eval", "check", str(one), str(other))
    assert done.returncode == 1
    assert f"{other / 'a.yaml'}:1: {one / 'a.yaml'} is the scenario 'a' too." in done.stderr
    assert command(home, "eval", "check", str(one)).stdout == "1 scenario, 10 turns: no fault.\n"


def test_a_model_that_is_down_is_a_failure_and_no_score(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a", CAT))
    run = ["eval", "run", str(scenarios), "--out", str(tmp_path / "out"), "--max-false-trigger", "0.05"]
    with ScriptedServer(lambda _: error(500, "down")) as server:
        done = command(home, *run, **remote(server))
        assert (done.returncode, "a failed: The model left turns 1 to 3 without" in done.stderr) == (1, True)
        assert f"with --out {tmp_path / 'out'} the same command" in done.stderr
        done = command(home, *run, **remote(server, memory_model="scripted"))
        assert (done.returncode, "another memory_model" in done.stderr) == (1, True)
        run[4] = str(tmp_path / "other")
        done = command(home, *run, **remote(server, memory_model="scripted"))
        assert (done.returncode, "The model that makes memories did not answer" in done.stderr) == (1, True)
    with ScriptedServer(model(lambda _: say("うん"))) as server:
        assert command(home, *run, **remote(server, memory_model="scripted")).returncode == 0


def test_what_is_no_whole_result_of_the_file_as_it_stands_is_in_no_score(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a"), b=scenario("b"))
    run = ["eval", "run", str(scenarios), "--out", str(tmp_path / "out"), "--no-baseline"]
    answers = [say("うん")]
    with ScriptedServer(model(lambda _: answers[-1])) as server:
        settings = remote(server)
        assert command(home, *run, **settings).returncode == 0
        kept = tmp_path / "out" / "scenarios" / "b.json"
        kept.write_text(kept.read_text("utf-8")[:100], "utf-8")
        (scenarios / "a.yaml").write_text(scenario("a", CAT), "utf-8")
        answers.append(error(500, "down"))
        done = command(home, *run, **settings)
    assert (done.returncode, "2 of 2 scenarios failed" in done.stderr) == (1, True), done.stderr
    assert json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))["turns"] == 0


def test_baselines_that_are_wanted_later_are_made_for_all_turns(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a", CAT))
    run = ["eval", "run", str(scenarios), "--out", str(tmp_path / "out")]
    assert json_of(home, *run, "--no-baseline")["baselines"] == {}
    assert json_of(home, *run)["baselines"]["never"]["miss_rate"]["den"] == 1


def test_two_runs_at_once_do_not_write_into_the_same_folder(home: Path, tmp_path: Path) -> None:
    scenarios, out = folder_of(tmp_path / "s", a=scenario("a")), tmp_path / "out"
    with Folder(out).owned():
        done = command(home, "eval", "run", str(scenarios), "--out", str(out))
    assert (done.returncode, f"Another run is writing into {out}" in done.stderr) == (1, True)


def test_a_run_that_cannot_be_compared_still_has_its_report(home: Path, tmp_path: Path) -> None:
    one, other = folder_of(tmp_path / "s", a=scenario("a")), folder_of(tmp_path / "t", b=scenario("b"))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert command(home, "eval", "run", str(one), "--out", a).returncode == 0
    done = command(home, "eval", "run", str(other), "--out", b, "--against", a)
    assert (done.returncode, "it is not compared" in done.stderr) == (0, True), done.stderr
    assert "missed a memory" in done.stdout
    assert (tmp_path / "b" / "report.html").exists()


def test_a_judge_that_is_set_says_whether_it_was_asked_back(home: Path, tmp_path: Path) -> None:
    which = (
        "{user: あの子の名前なんだっけ, assistant: 'モモのこと？それともうん？', "
        "expect: {search: true, ask_back: true, candidates: [[h1.1], [h1.2]]}}"
    )
    scenarios = folder_of(tmp_path / "s", a=scenario("a", which, which))
    replies = iter(["どっちのこと？", "モモだね。"])
    opinions = iter([content('{"asks_back": true}'), content("知らない"), content("{}")])

    def script(request: Any) -> Answer:
        if request["model"] == "judge":
            return next(opinions)
        return say(next(replies)) if words(request)[-1].startswith("あの子") else say("うん")

    with ScriptedServer(script) as server:
        done = command(
            home, "eval", "run", str(scenarios), "--out", str(tmp_path / "out"), **remote(server, judge_model="judge")
        )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    assert [turn["ask_back_judge"] for turn in results["scenarios"][0]["turns"][:2]] == [True, None]
    assert (results["scores"]["ask_back_rate"]["num"], results["scores"]["ask_back_rate"]["den"]) == (1, 2)
    assert results["judge_model"] == "judge"
    assert (results["ask_back_judge"]["rate"]["den"], results["ask_back_judge"]["accuracy"]) == (1, 1.0)


def test_two_runs_are_compared_and_noise_is_called_noise(home: Path, tmp_path: Path) -> None:
    scenarios = folder_of(tmp_path / "s", a=scenario("a", CAT))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert command(home, "eval", "run", str(scenarios), "--out", a).returncode == 0
    with ScriptedServer(model(lambda _: say("うん"))) as server:
        done = command(home, "eval", "run", str(scenarios), "--out", b, "--against", a, **remote(server))
        assert done.returncode == 0, done.stderr
        assert f"A: {a}   B: {b}" in done.stdout
        assert "10 turns in both runs, 0 left out." in done.stdout
    compared = json_of(home, "eval", "compare", a, b)
    assert compared["paired"] == 10
    assert compared["scores"]["miss_rate"]["verdict"] == "no difference shown"
    assert compared["scores"]["miss_rate"]["changes"][0]["better"] is False
    said = command(home, "eval", "compare", a, b).stdout
    assert "10 turns in both runs, 0 left out." in said
    assert "no difference shown" in said
    assert "no difference shown" in (tmp_path / "b" / "report.html").read_text("utf-8")
    done = command(home, "eval", "compare", a, str(scenarios / "a.yaml"))
    assert (done.returncode, "cannot be read as JSON" in done.stderr) == (1, True)


def test_the_scenarios_that_come_with_it_have_no_fault_and_cover_every_tag(home: Path) -> None:
    done = command(home, "eval", "check")
    assert done.returncode == 0, done.stderr
    files = [read(path, ZONE) for path in files_of([Path(__file__).parents[2] / "evals" / "scenarios"])]
    assert done.stdout.startswith(f"{len(files)} scenarios")
    assert sum(file.turns == 10 for file in files) >= 30
    assert sum(file.turns == 50 for file in files) >= 10
    assert sum(file.scenario.language == "en" for file in files) >= 5
    assert {tag for file in files for tag in file.scenario.tags} == set(TAGS)
    turns = [turn for file in files for turn in file.scenario.conversation.turns]
    without_need = sum(turn.expect.search is False for turn in turns)
    assert 0.45 < without_need / len(turns) < 0.55


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["check", "nowhere"], 1, "nowhere is no scenario file"),
        (["run", "{s}", "--turns", "50"], 2, "None of the scenarios has 50 turns."),
        (["run", "{s}", "--max-miss", "2"], 2, "2.0 is not in the range"),
        (["check", "{broken}"], 1, "broken.yaml:1: id: Field required."),
        (["run", "{broken}"], 1, "broken.yaml:1: id: Field required."),
    ],
)
def test_wrong_input_gets_a_sentence(home: Path, tmp_path: Path, arguments: list[str], code: int, reason: str) -> None:
    folder_of(tmp_path / "s", a=scenario("a"))
    (tmp_path / "broken.yaml").write_text("titel: x\n")
    given = [part.format(s=tmp_path / "s", broken=tmp_path / "broken.yaml") for part in arguments]
    done = command(home, "eval", *given)
    assert (done.returncode, reason in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_real_talk_is_sampled_and_judged(home: Path, tmp_path: Path) -> None:
    done = command(home, "eval", "capture")
    assert (done.returncode, "This needs a judge" in done.stderr) == (1, True)
    log = tmp_path / "log.jsonl"
    lines = [("user", "うちの猫の名前はモモだよ"), ("assistant", "かわいい"), ("user", "うん"), ("assistant", "うん")]
    log.write_text(
        "".join(json.dumps({"session": "a", "at": None, "role": role, "text": text}) + "\n" for role, text in lines)
    )
    with ScriptedServer(lambda _: content('{"keep": [1, 2]}')) as server:
        judge = {"judge_base_url": server.base_url, "judge_model": "judge"}
        done = command(home, "eval", "capture", **judge)
        assert (done.returncode, "no turns that were looked at" in done.stderr) == (1, True)
        assert command(home, "import", str(log)).returncode == 0
        found = json_of(home, "eval", "capture", **judge)
        assert (found["capture_recall"]["num"], found["capture_recall"]["den"]) == (1, 2)
        said = command(home, "eval", "capture", **judge).stdout
    assert "2 turns judged by judge, 0 without an opinion." in said
    assert "left out, turn 2: うん" in said
