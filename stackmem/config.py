"""Settings: the only reader of STACKMEM_* variables and of ``.env``."""

import json
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, DotEnvSettingsSource, NoDecode, SettingsConfigDict

from stackmem.exceptions import SettingsError

PREFIX = "STACKMEM_"
OFFLINE = "offline"
GGUF = "gguf:"


def _json_object(value: Any) -> Any:
    if isinstance(value, str):
        if not value.strip():
            return None
        try:
            value = json.loads(value)
        except ValueError as exc:
            raise ValueError("must be a JSON object") from exc
    if value is not None and not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def _names_a_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and not re.search(r"\s", url)
    except ValueError:  # a port that is no number, a bracket that is left open
        return False


ExtraBody = Annotated[dict[str, Any] | None, NoDecode, BeforeValidator(_json_object)]


class Settings(BaseSettings):
    """Every setting, its default and, in ``description``, what a maker needs to know of it."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=".env", env_file_encoding="utf-8", extra="ignore", env_ignore_empty=True
    )

    home: Path = Field(Path("~/.stackmem"), description="Folder of the database, the index and the key file.")
    database_url: str = Field("", description="Where the turns are kept. Empty: `stackmem.db` in the home folder.")
    broker_url: str = Field("memory://", description="Celery's broker. `memory://` works inside `stackmem up` alone.")
    index_url: str = Field(
        "edge:",
        description="The index: `edge:` (Qdrant Edge), `local:` (QdrantClient(path=…)), or `http://…`, a Qdrant "
        "server; `#name` after its address tells several stores on one server apart.",
    )
    index_api_key: SecretStr = Field(SecretStr(""), description="The Qdrant server's key, where it wants one.")
    chat_base_url: str = Field(
        "", description="OpenAI-compatible address of the model that talks, ending in `/v1`; or `gguf:` and a file."
    )
    chat_api_key: SecretStr = Field(SecretStr(""), description="Its key, where it wants one.")
    chat_model: str = Field(OFFLINE, description="Its model id. `offline`: rules only, no model.")
    chat_extra_body: ExtraBody = Field(None, description="JSON sent with every request, e.g. to turn thinking off.")
    chat_timeout_s: float = Field(10.0, gt=0, le=3600, description="Longest wait for one call of the model.")
    turn_timeout_s: float = Field(12.0, gt=0, le=3600, description="Longest wait for one whole turn.")
    tool_mode: Literal["native", "json", "auto"] = Field(
        "native",
        description="How the model asks for a search: by a tool call, or (`json`) inside its answer, for weak models; "
        "`auto`: by a tool call until its answers show that it cannot.",
    )
    gguf_threads: int = Field(0, ge=0, le=1024, description="Threads of a GGUF file's model; 0: one a physical core.")
    prompt_tokens: int = Field(3500, ge=1000, description="Budget of a live prompt, in (estimated) tokens.")
    memory_base_url: str = Field(
        "", description="The same four for the model that makes memories; the chat's if unset."
    )
    memory_api_key: SecretStr = Field(SecretStr(""), description="Its key.")
    memory_model: str = Field("", description="Its model id; `offline` works here too.")
    memory_extra_body: ExtraBody = Field(None, description="JSON sent with every request to it.")
    memory_timeout_s: float = Field(120.0, gt=0, le=3600, description="Longest wait for one call of it.")
    judge_base_url: str = Field("", description="The same four for the model that judges turns; the chat's if unset.")
    judge_api_key: SecretStr = Field(SecretStr(""), description="Its key.")
    judge_model: str = Field("", description="Its model id; `offline` works here too.")
    judge_extra_body: ExtraBody = Field(None, description="JSON sent with every request to it.")
    judge_timeout_s: float = Field(120.0, gt=0, le=3600, description="Longest wait for one call of it.")
    judge_calls_per_day: int = Field(100, ge=0, description="How often it is asked a day about live turns; 0: never.")
    embedder: Literal["use", "e5", "qwen3", "openai"] = Field(
        "use", description="What turns text into vectors: `use` (bundled), `e5`, `qwen3` (extras); `openai`: a server."
    )
    embedding_model: str = Field("", description="Hub id or folder of a `qwen3` model, else 0.6B; a server's model id.")
    embedding_dim: int | None = Field(None, ge=32, le=65536, description="Of a `qwen3` vector, else all; a server's.")
    embedding_threads: int = Field(0, ge=0, le=1024, description="Threads of `qwen3`; 0: half of the cores.")
    qwen3_precision: Literal["fp32", "bf16", "int8"] = Field(
        "fp32", description="`bf16`, `int8`: less memory and time for slightly other vectors."
    )
    embedding_base_url: str = Field("", description="OpenAI-compatible address of `openai` vectors, ending in `/v1`.")
    embedding_api_key: SecretStr = Field(SecretStr(""), description="Its key, where it wants one.")
    embedding_query_format: str = Field(
        "", description="How a query is sent, `{}` in its place. Qwen3: `Instruct: …\\nQuery:{}`."
    )
    embedding_timeout_s: float = Field(
        3.0, gt=0, le=3600, description="Longest wait for a query's vector; ten times as long for some documents."
    )
    asr_base_url: str = Field("", description="OpenAI-compatible address of a speech recogniser, ending in `/v1`.")
    asr_api_key: SecretStr = Field(SecretStr(""), description="Its key, where it wants one.")
    asr_model: str = Field("Qwen/Qwen3-ASR-1.7B", description="Its model id.")
    asr_language: str = Field("", description="Language to listen for, e.g. `ja`; empty: it finds out itself.")
    asr_timeout_s: float = Field(8.0, gt=0, le=3600, description="Longest wait for the words of a recording.")
    tts_base_url: str = Field("", description="OpenAI-compatible address of a speech synthesis, ending in `/v1`.")
    tts_api_key: SecretStr = Field(SecretStr(""), description="Its key, where it wants one.")
    tts_model: str = Field("irodori-tts", description="Its model id.")
    tts_voice: str = Field("none", min_length=1, description="Its voice; Irodori's `none` speaks without a sample.")
    tts_extra_body: ExtraBody = Field(None, description='JSON sent with every request to it, e.g. `{"speed": 1.1}`.')
    tts_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="Longest wait for the speech of a reply, in seconds after the answer."
    )
    tts_parallel: int = Field(1, ge=1, le=64, description="Texts that are synthesised at a time.")
    persona: str = Field("stackchan", description="A persona's name, or the path of its TOML file.")
    timezone: str = Field("Asia/Tokyo", description="Zone in which times are read and shown.")
    log_format: Literal["text", "json"] = Field(
        "text", description="`json`: one JSON object a line, with the ids of turn and session."
    )
    rate_per_minute: int = Field(
        1200, ge=0, le=1_000_000, description="Requests a minute of one device's token, not from loopback; 0: any."
    )
    host: str = Field("127.0.0.1", description="Address to listen on. `0.0.0.0`: the whole LAN.")
    port: int = Field(8765, ge=0, le=65535, description="Port to listen on.")

    @field_validator("home")
    @classmethod
    def _expand(cls, value: Path) -> Path:
        try:
            return value.expanduser().absolute()
        except RuntimeError as exc:
            raise ValueError(f"{str(value)!r} begins with ~, and there is no such user") from exc

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
            raise ValueError(f"{value!r} is not a known time zone, such as Asia/Tokyo") from exc
        return value

    @field_validator("index_url")
    @classmethod
    def _known_index(cls, value: str) -> str:
        if value.startswith(("http://", "https://")):
            if not _names_a_host(value) or "@" in value or not re.fullmatch("[A-Za-z0-9_-]*", urlsplit(value).fragment):
                raise ValueError("must be http(s)://host:port, with #name of letters and digits after it, and no key")
        elif not value.startswith(("edge:", "local:")):
            raise ValueError(
                "must be edge: or local:, a folder after it where it is not the home folder's, or http://…"
            )
        return value

    @field_validator("embedding_query_format")
    @classmethod
    def _has_a_place(cls, value: str) -> str:
        if value and "{}" not in value:
            raise ValueError("must hold {} where the query goes")
        return value.replace("\\n", "\n")  # as one writes it in a shell or in .env

    @field_validator("chat_base_url")
    @classmethod
    def _http_or_file(cls, value: str) -> str:
        if not value.startswith(GGUF):
            return cls._http(value)
        if not (file := value.removeprefix(GGUF)):
            raise ValueError("must name a file, as gguf:/path/model.gguf")
        return f"{GGUF}{cls._expand(Path(file))}"

    @field_validator("memory_base_url", "judge_base_url", "embedding_base_url", "asr_base_url", "tts_base_url")
    @classmethod
    def _http(cls, value: str) -> str:
        if not value or value == OFFLINE:
            return value
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        if not _names_a_host(value):
            raise ValueError("is no address of a server, such as http://127.0.0.1:8080/v1")
        return value.rstrip("/")

    @field_validator(
        "chat_api_key", "memory_api_key", "judge_api_key", "embedding_api_key", "index_api_key", "asr_api_key",
        "tts_api_key",
    )  # fmt: skip
    @classmethod
    def _sendable(cls, value: SecretStr) -> SecretStr:
        key = value.get_secret_value()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("a key holds ASCII characters only, and no line break")
        return value

    @field_validator("broker_url")
    @classmethod
    def _known_shape(cls, value: str) -> str:
        if "://" not in value:
            raise ValueError("must be memory://, amqp://… or redis://…")
        return value

    @model_validator(mode="after")
    def _model_of_file(self) -> Self:
        """Name the model of a GGUF file after it, unless it has a name."""
        if self.chat_file and "chat_model" not in self.model_fields_set:
            self.chat_model = self.chat_file.stem
        return self

    @property
    def chat_file(self) -> Path | None:
        """The GGUF file that is to be run, None where the chat model is a server's or none."""
        return Path(self.chat_base_url.removeprefix(GGUF)) if self.chat_base_url.startswith(GGUF) else None

    @property
    def zone(self) -> ZoneInfo:
        """The zone of ``STACKMEM_TIMEZONE``."""
        return ZoneInfo(self.timezone)

    @property
    def database(self) -> str:
        """The database's address, the default filled in."""
        return self.database_url or f"sqlite:///{self.home / 'stackmem.db'}"

    @property
    def index_is_shared(self) -> bool:
        """Whether the index is a server's, which any number of processes use."""
        return self.index_url.startswith("http")

    @property
    def is_alone(self) -> bool:
        """Whether the process that owns the index does everything: no other one talks or remembers."""
        return self.broker_url.startswith("memory") and not self.index_is_shared

    @property
    def index_folder(self) -> Path:
        """The folder of an embedded index."""
        kind, _, folder = self.index_url.partition(":")
        if folder and not self.index_is_shared:
            return Path(folder).expanduser().absolute()
        return self.home / "index" / "local" if kind == "local" else self.home / "index"

    @property
    def chat_is_offline(self) -> bool:
        """Whether no chat model is set."""
        return not self.chat_base_url or OFFLINE in (self.chat_base_url, self.chat_model)

    @property
    def memory_is_offline(self) -> bool:
        """Whether memories are made by the offline rules."""
        return self._is_offline(self.memory_base_url, self.memory_model)

    @property
    def judge_is_offline(self) -> bool:
        """Whether turns are judged by the offline rules."""
        return self._is_offline(self.judge_base_url, self.judge_model)

    @property
    def hears(self) -> bool:
        """Whether a speech recogniser is set."""
        return self.asr_base_url not in ("", OFFLINE)

    @property
    def speaks(self) -> bool:
        """Whether a speech synthesis is set."""
        return self.tts_base_url not in ("", OFFLINE)

    def _is_offline(self, base_url: str, model: str) -> bool:
        return OFFLINE in (base_url, model) or (self.chat_is_offline and not base_url)


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; ``overrides`` win. Raises SettingsError with one line that names the wrong one."""
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as exc:
        first = exc.errors()[0]
        name = PREFIX + str(first["loc"][0]).upper() if first["loc"] else "A setting"
        reason = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{name} is wrong: {reason[:1].lower() + reason[1:]}.") from None
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"The .env file could not be read: {exc}.") from exc


def unknown_settings() -> list[str]:
    """Return one sentence for each STACKMEM_* variable, of the environment or of ``.env``, that nothing reads."""
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    sentences = []
    in_file = DotEnvSettingsSource(Settings).env_vars
    for name in sorted({*os.environ, *map(str.upper, in_file)}):
        if name.startswith(PREFIX) and name not in known and not name.startswith(PREFIX + "TEST_"):
            near = get_close_matches(name, known, n=1)
            sentences.append(f"{name} is not a setting" + (f"; did you mean {near[0]}?" if near else "."))
    return sentences
