"""Who the robot is, and the prompts: every one is rendered here."""

import json
from importlib import resources
from pathlib import Path

import pytest

from stackmem.exceptions import SettingsError
from stackmem.persona import (
    Persona,
    PersonaFile,
    language_of,
    load_persona,
    prompt_file,
    prompt_version,
    prompts_of,
    render,
    tools,
    turn_prompt,
)

PROMPTS = sorted(path.name for path in resources.files("persona.prompts").iterdir() if path.name.endswith(".md"))
VALUES = {
    "name": "スタックチャン", "first_person": "ぼく", "tone": "明るい。", "reply_characters": 120, "form": "F",
    "now": "2026-07-23T10:00:00+09:00", "zone": "Asia/Tokyo", "emotions": "neutral / happy", "actions": "none / nod",
    "robot": "スタックチャン", "robot_rule": "R", "result": "{}", "examples": "E", "text": "いくら？",
    "user": "あのPC", "reply": "どれ？", "candidates": "[]", "turns": "[]",
}  # fmt: skip


@pytest.mark.parametrize("name", PROMPTS)
def test_every_prompt_renders_without_a_placeholder_left(name: str) -> None:
    text = render(name, **VALUES)
    assert text
    assert "$" not in text
    assert text == text.strip()


@pytest.mark.parametrize("name", PROMPTS)
def test_every_prompt_is_there_in_both_languages(name: str) -> None:
    base, language, _ = name.split(".")
    assert f"{base}.{'en' if language == 'ja' else 'ja'}.md" in PROMPTS


@pytest.mark.parametrize("mode", ["native", "json"])
@pytest.mark.parametrize("language", ["ja", "en"])
def test_the_turns_prompt_holds_the_persona_its_ids_and_the_time(mode: str, language: str) -> None:
    persona = load_persona("stackchan").model_copy(update={"language": language})
    text = turn_prompt(persona, "2026-07-23T10:00:00+09:00", "Asia/Tokyo", mode)
    for part in (persona.name, persona.first_person, persona.tone, "120", "2026-07-23T10:00", "Asia/Tokyo"):
        assert part in text
    for identifier in persona.emotions + persona.actions:
        assert identifier in text


def test_the_hash_of_what_a_turn_is_told_changes_with_persona_language_and_form() -> None:
    persona = load_persona("stackchan")
    others = [
        prompts_of(persona.model_copy(update={"tone": "静か"}), "native"),
        prompts_of(persona.model_copy(update={"language": "en"}), "native"),
        prompts_of(persona, "json"),
    ]
    assert len({prompts_of(persona, "native"), *others}) == 4
    assert prompts_of(persona, "native") == prompts_of(load_persona("stackchan"), "native")


def test_a_placeholder_without_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        render("turn.ja.md", name="x")


@pytest.mark.parametrize("language", ["ja", "en"])
def test_there_are_two_tools_with_the_arguments_of_the_design(language: str) -> None:
    search, read = tools(language)  # type: ignore[arg-type]
    assert search["function"]["name"] == "search_memory"
    assert list(search["function"]["parameters"]["properties"]) == [
        "query", "entities", "memory_type", "since", "until", "exact",
    ]  # fmt: skip
    assert search["function"]["parameters"]["required"] == ["query"]
    assert read["function"]["name"] == "read_memory_source"
    assert list(read["function"]["parameters"]["properties"]) == ["memory_ids", "around"]
    assert json.dumps(tools("ja")) != json.dumps(tools("en"))


def test_the_version_of_a_prompt_is_that_of_its_text() -> None:
    assert len(prompt_version("remember.ja.md")) == 8
    assert prompt_version("remember.ja.md") != prompt_version("remember.en.md")
    assert "segments" in prompt_file("remember.ja.md")


def test_a_persona_is_found_by_name_or_by_its_files_path(tmp_path: Path) -> None:
    assert load_persona("stackchan").name == "スタックチャン"
    path = tmp_path / "aibo.toml"
    path.write_text('name = "アイボ"\nlanguage = "en"\nfallback = ["Sorry."]\n', "utf-8")
    persona = load_persona(str(path))
    assert (persona.name, persona.language, persona.emotions, persona.actions) == (
        "アイボ",
        "en",
        ["neutral"],
        ["none"],
    )
    assert persona.fallback_line(7) == "Sorry."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "name: Field required"),
        ("name = ", "cannot be read"),
        ('fallback = ["x"]', "name: Field required"),
        ('name = ""\nfallback = ["x"]', "name: "),
        ('name = "x"\nfallback = []', "fallback: "),
        ('name = "　"\nfallback = ["x"]', "name: "),
        ('name = "x"\nfallback = ["x", " "]', "fallback.1: "),
        ("name = " + "[" * 5_000, "cannot be read"),
        ("reply_characters = " + "9" * 6_000, "cannot be read"),
        ('name = "x"\nfallback = ["x"]\nlanguage = "fr"', "language: "),
        ('name = "x"\nfallback = ["x"]\nservo = 3', "servo: Extra inputs are not permitted"),
        ('name = "x"\nfallback = ["x"]\nemotions = [""]', "emotions: "),
        ('name = "x"\nfallback = ["x"]\nactions = ["a\\nb"]', "actions: "),
        ('name = "x"\nfallback = ["x"]\nreply_characters = 5', "reply_characters: "),
    ],
)
def test_a_wrong_persona_stops_the_start_with_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(SettingsError, match="^STACKMEM_PERSONA is wrong: ") as caught:
        load_persona(str(path))
    assert reason in str(caught.value)


@pytest.mark.parametrize("name", ["nobody", "/no/such/file.toml", "../../etc/passwd", "~nobody-here/me.toml"])
def test_an_unknown_persona_stops_the_start_with_one_line(name: str) -> None:
    with pytest.raises(SettingsError, match="STACKMEM_PERSONA is wrong: .* cannot be read"):
        load_persona(name)


def test_a_file_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(SettingsError, match="cannot be read"):
        load_persona(str(tmp_path / "p.toml"))


GOOD = 'name = "{}"\nfallback = ["ごめん"]\n{}'


def test_an_edit_counts_at_once_and_a_broken_one_keeps_the_old(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(GOOD.format("モモ", ""), "utf-8")
    who = PersonaFile(str(path))
    first = who.current()
    assert (first.name, who.reason()) == ("モモ", "")
    assert who.current() is first
    path.write_text(GOOD.format("ミケのほう", 'emotions = ["照れ"]'), "utf-8")
    assert who.current().emotions == ["neutral", "照れ"]
    assert (who.current().name, who.reason()) == ("ミケのほう", "")
    broken_ones = [("name = ", "cannot be read"), ('name = "x"', "fallback"), ("", "Field required")]
    for broken, why in [*broken_ones, ("name = " + "[" * 5_000, "cannot be read")]:
        path.write_text(broken, "utf-8")
        assert who.current().name == "ミケのほう"
        assert why in who.reason()
        assert who.reason().endswith("The persona stays as it was.")
        assert "\n" not in who.reason()
    path.unlink()
    assert who.current().name == "ミケのほう"
    assert "cannot be read" in who.reason()
    path.write_text(GOOD.format("タマ", ""), "utf-8")
    assert (who.current().name, who.reason()) == ("タマ", "")


def test_a_file_of_windows_notepad_is_read_and_no_nul_gets_into_a_reply(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes("\ufeffname = 'モモ'\r\nfallback = [\"ごめ\\u0000ん \"]\r\n".encode())
    persona = load_persona(str(tmp_path / "p.toml"))
    assert (persona.name, persona.fallback) == ("モモ", ["ごめ\ufffdん"])


def test_a_broken_edit_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "p.toml"
    path.write_text(GOOD.format("モモ", ""), "utf-8")
    who = PersonaFile(str(path))
    path.write_text("name = ", "utf-8")
    for _ in range(3):
        who.current()
    assert [record.message for record in caplog.records] == [who.reason()]


def test_a_persona_of_the_package_is_a_file_too() -> None:
    who = PersonaFile("stackchan")
    assert who.current() == load_persona("stackchan")
    assert who.reason() == ""


def test_each_id_stands_once_and_the_one_for_the_unknown_is_always_there() -> None:
    persona = Persona(name="x", fallback=["a"], emotions=["happy", " happy", "照れ"], actions=["nod", "none"])
    assert (persona.emotions, persona.actions) == (["neutral", "happy", "照れ"], ["nod", "none"])
    assert persona.current() is persona


def test_fallback_lines_take_turns() -> None:
    persona = Persona(name="x", fallback=["a", "b"])
    assert [persona.fallback_line(number) for number in (1, 2, 3)] == ["b", "a", "b"]


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (["hello", "やあ"], "ja"),
        (["ｱｲﾎﾞ"], "ja"),
        (["漢字"], "ja"),
        (["hello", "Привет"], "en"),
        ([], "en"),
        ([""], "en"),
    ],
)
def test_one_japanese_letter_makes_a_talk_japanese(texts: list[str], language: str) -> None:
    assert language_of(texts) == language
