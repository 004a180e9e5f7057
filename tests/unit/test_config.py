"""Settings: read from the environment and ``.env``; a wrong one is named in one line."""

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from stackmem.config import Settings, load_settings, unknown_settings
from stackmem.exceptions import SettingsError


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("STACKMEM_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_the_defaults_need_no_service_and_no_key() -> None:
    settings = load_settings()
    assert settings.home == Path("~/.stackmem").expanduser()
    assert settings.database == f"sqlite:///{settings.home}/stackmem.db"
    assert settings.index_folder == settings.home / "index"
    assert (settings.host, settings.port, settings.broker_url) == ("127.0.0.1", 8765, "memory://")
    assert settings.zone == ZoneInfo("Asia/Tokyo")
    assert settings.chat_is_offline
    assert settings.memory_is_offline
    assert settings.judge_is_offline
    assert settings.judge_calls_per_day == 100


def test_the_environment_wins_over_the_env_file_and_an_option_over_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("STACKMEM_PORT=1\nSTACKMEM_HOST=::1\nSTACKMEM_PERSONA=ぼく.toml\nOTHER=1\n", "utf-8")
    monkeypatch.setenv("STACKMEM_PORT", "2")
    assert (load_settings().host, load_settings().port, load_settings().persona) == ("::1", 2, "ぼく.toml")
    assert load_settings(port=3, host=None).port == 3


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKMEM_CHAT_TIMEOUT_S", "")
    monkeypatch.setenv("STACKMEM_CHAT_EXTRA_BODY", "")
    assert load_settings().chat_timeout_s == 10.0
    assert load_settings().chat_extra_body is None


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("TIMEZONE", "Asia/Tokio", "'Asia/Tokio' is not a known time zone, such as Asia/Tokyo."),
        ("TIMEZONE", "/etc/passwd", "'/etc/passwd' is not a known time zone, such as Asia/Tokyo."),
        (
            "INDEX_URL",
            "qdrant",
            "must be edge: or local:, a folder after it where it is not the home folder's, or http://….",
        ),
        ("CHAT_BASE_URL", "api.example.com/v1", "must begin with http:// or https://."),
        ("CHAT_BASE_URL", "gguf:", "must name a file, as gguf:/path/model.gguf."),
        ("MEMORY_BASE_URL", "gguf:/m/model.gguf", "must begin with http:// or https://."),
        ("GGUF_THREADS", "-1", "input should be greater than or equal to 0."),
        ("JUDGE_BASE_URL", "ftp://x", "must begin with http:// or https://."),
        ("JUDGE_API_KEY", "キー", "a key holds ASCII characters only, and no line break."),
        ("JUDGE_CALLS_PER_DAY", "-1", "input should be greater than or equal to 0."),
        ("MEMORY_BASE_URL", "ftp://x", "must begin with http:// or https://."),
        ("CHAT_BASE_URL", "http://", "is no address of a server, such as http://127.0.0.1:8080/v1."),
        ("CHAT_BASE_URL", "http://[::1/v1", "is no address of a server, such as http://127.0.0.1:8080/v1."),
        ("JUDGE_BASE_URL", "https://", "is no address of a server, such as http://127.0.0.1:8080/v1."),
        ("MEMORY_BASE_URL", "https://", "is no address of a server, such as http://127.0.0.1:8080/v1."),
        ("CHAT_BASE_URL", "http://x:port/v1", "is no address of a server, such as http://127.0.0.1:8080/v1."),
        ("CHAT_API_KEY", "キー", "a key holds ASCII characters only, and no line break."),
        ("MEMORY_API_KEY", "a\nb", "a key holds ASCII characters only, and no line break."),
        ("BROKER_URL", "redis", "must be memory://, amqp://… or redis://…."),
        ("HOME", "~nobody-of-this-name/x", "'~nobody-of-this-name/x' begins with ~, and there is no such user."),
        ("CHAT_EXTRA_BODY", "{", "must be a JSON object."),
        ("MEMORY_EXTRA_BODY", "[1]", "must be a JSON object."),
        ("PORT", "99999", "input should be less than or equal to 65535."),
        ("PORT", "no", "input should be a valid integer, unable to parse string as an integer."),
        ("CHAT_TIMEOUT_S", "0", "input should be greater than 0."),
        ("CHAT_TIMEOUT_S", "soon", "input should be a valid number, unable to parse string as a number."),
        ("TURN_TIMEOUT_S", "-1", "input should be greater than 0."),
        ("MEMORY_TIMEOUT_S", "nan", "input should be less than or equal to 3600."),
        ("JUDGE_CALLS_PER_DAY", "many", "input should be a valid integer, unable to parse string as an integer."),
        ("PROMPT_TOKENS", "1", "input should be greater than or equal to 1000."),
        ("TOOL_MODE", "magic", "input should be 'native', 'json' or 'auto'."),
        ("EMBEDDER", "none", "input should be 'use', 'e5', 'qwen3' or 'openai'."),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(
    name: str, value: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"STACKMEM_{name}", value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert str(caught.value) == f"STACKMEM_{name} is wrong: {line}"


def test_an_env_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"STACKMEM_PERSONA=\xff\xfe")
    with pytest.raises(SettingsError, match=r"The \.env file could not be read"):
        load_settings()


def test_a_key_never_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKMEM_CHAT_API_KEY", "sk-secret")
    settings = load_settings()
    assert settings.chat_api_key.get_secret_value() == "sk-secret"
    assert "sk-secret" not in repr(settings)
    assert "sk-secret" not in settings.model_dump_json()


def test_extra_body_is_a_json_object() -> None:
    given = '{"chat_template_kwargs": {"enable_thinking": false}}'
    assert load_settings(chat_extra_body=given).chat_extra_body == {"chat_template_kwargs": {"enable_thinking": False}}
    assert load_settings(chat_extra_body={}).chat_extra_body == {}
    assert load_settings(chat_extra_body=" ").chat_extra_body is None


@pytest.mark.parametrize(
    ("settings", "chat", "other"),
    [
        ({}, True, True),
        ({"chat_base_url": "http://x/v1/"}, True, True),
        ({"chat_base_url": "http://x/v1", "chat_model": "qwen"}, False, False),
        ({"chat_base_url": "offline", "chat_model": "qwen"}, True, True),
        ({"chat_base_url": "http://x/v1", "chat_model": "qwen", "{}_model": "offline"}, False, True),
        ({"chat_base_url": "http://x/v1", "chat_model": "qwen", "{}_base_url": "offline"}, False, True),
        ({"{}_base_url": "http://x/v1", "{}_model": "qwen"}, True, False),
    ],
)
@pytest.mark.parametrize("kind", ["memory", "judge"])
def test_a_model_is_offline_unless_one_is_set(settings: dict[str, str], chat: bool, other: bool, kind: str) -> None:
    loaded = load_settings(**{name.format(kind): value for name, value in settings.items()})
    assert (loaded.chat_is_offline, getattr(loaded, f"{kind}_is_offline")) == (chat, other)
    assert not loaded.chat_base_url.endswith("/")


@pytest.mark.parametrize(
    ("given", "file"),
    [("/m/Qwen3-4B.gguf", "/m/Qwen3-4B.gguf"), ("~/Qwen3-4B.gguf", "{home}/Qwen3-4B.gguf"), ("Qwen3-4B.gguf", "{cwd}")],
)
def test_a_file_is_a_chat_model_named_after_it_and_makes_memories_too(given: str, file: str) -> None:
    loaded = load_settings(chat_base_url=f"gguf:{given}")
    assert str(loaded.chat_file) == file.format(home=Path.home(), cwd=Path("Qwen3-4B.gguf").absolute())
    assert loaded.chat_model == "Qwen3-4B"
    assert [loaded.chat_is_offline, loaded.memory_is_offline, loaded.judge_is_offline] == [False] * 3
    assert load_settings(chat_base_url=f"gguf:{given}", chat_model="qwen3").chat_model == "qwen3"
    assert load_settings(chat_base_url=f"gguf:{given}", chat_model="offline").chat_is_offline
    assert load_settings(chat_base_url="http://x/v1").chat_file is None


def test_the_index_folder_may_be_chosen(tmp_path: Path) -> None:
    assert load_settings(home=tmp_path, index_url="local:").index_folder == tmp_path / "index" / "local"
    assert load_settings(index_url=f"edge:{tmp_path}/i").index_folder == tmp_path / "i"
    assert load_settings(index_url="edge:~/i").index_folder == Path("~/i").expanduser()


def test_a_relative_home_is_made_absolute(tmp_path: Path) -> None:
    assert load_settings(home="robot").home == tmp_path / "robot"


def test_a_misspelt_setting_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STACKMEM_CHAT_MODLE", "STACKMEM_ÄÖÜÄÖÜÄÖÜÄÖÜ", "STACKMEM_TEST_X", "STACKMEM_PORT"):
        monkeypatch.setenv(name, "1")
    assert unknown_settings() == [
        "STACKMEM_CHAT_MODLE is not a setting; did you mean STACKMEM_CHAT_MODEL?",
        "STACKMEM_ÄÖÜÄÖÜÄÖÜÄÖÜ is not a setting.",
    ]


def test_every_setting_says_what_it_is_for() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def test_a_query_format_has_a_place_for_the_query_and_may_hold_a_line_break() -> None:
    assert (
        load_settings(embedding_query_format=r"Instruct: x\nQuery:{}").embedding_query_format == "Instruct: x\nQuery:{}"
    )
    assert load_settings(embedding_query_format="").embedding_query_format == ""
    with pytest.raises(SettingsError, match=r"STACKMEM_EMBEDDING_QUERY_FORMAT is wrong: must hold \{\}"):
        load_settings(embedding_query_format="Query:")


def test_an_index_may_be_a_servers_and_its_key_stands_apart() -> None:
    shared = load_settings(index_url="https://qdrant.example:6333#robot-2", index_api_key="k")
    assert shared.index_is_shared
    assert shared.index_folder == shared.home / "index"
    assert not load_settings().index_is_shared
    for wrong in ("http://", "http://h:x", "http://:key@h:6333", "http://h#a.b", "ftp://h"):
        with pytest.raises(SettingsError, match="STACKMEM_INDEX_URL is wrong"):
            load_settings(index_url=wrong)
