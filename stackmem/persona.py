"""Who the robot is, and the prompts: files under the package ``persona``, read here."""

import hashlib
import json
import logging
import os
import re
import threading
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from stackmem.exceptions import SettingsError
from stackmem.text import clean_json

log = logging.getLogger(__name__)

Language = Literal["ja", "en"]
ID_LIMIT = 40  # characters of an emotion's or action's id
REST = {"emotions": "neutral", "actions": "none"}  # the id that any unknown one becomes
_JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f]")


class Persona(BaseModel):
    """A persona file: name, manner of speaking, the body's emotion and action ids, and its fallback lines."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    name: str = Field(min_length=1)
    language: Language = "ja"
    first_person: str = "ぼく"
    tone: str = ""
    reply_characters: int = Field(120, ge=20, le=2000)
    emotions: list[str] = ["neutral"]
    actions: list[str] = ["none"]
    fallback: list[Annotated[str, Field(min_length=1)]] = Field(min_length=1)

    @field_validator("emotions", "actions")
    @classmethod
    def _ids(cls, given: list[str], about: ValidationInfo) -> list[str]:
        """Keep each id once; ``neutral`` and ``none`` are always among them, since unknown ones become that."""
        if any(not each.strip() or len(each) > ID_LIMIT or not each.isprintable() for each in given):
            raise ValueError(f"an id has 1 to {ID_LIMIT} printable characters")
        kept = list(dict.fromkeys(each.strip() for each in given))
        rest = REST[about.field_name or ""]
        return kept if rest in kept else [rest, *kept]

    def current(self) -> "Persona":
        """Return itself: a persona that is at hand does not change."""
        return self

    def fallback_line(self, turn_id: int) -> str:
        """Return what is said when the model does not answer; another line for the next turn."""
        return self.fallback[turn_id % len(self.fallback)]


class Who(Protocol):
    """Where it stands who the robot is."""

    def current(self) -> Persona:
        """Return the persona as it is now."""
        ...


class PersonaFile:
    """A persona as its file says: an edit counts from the next turn on; a broken one keeps the last that was good.

    Raises SettingsError where there is no good one to begin with.
    """

    def __init__(self, name_or_path: str):
        self._name, self._lock, self._fault = name_or_path, threading.Lock(), ""
        self._path: Path | None = None
        self._seen = self._stamp()
        self._persona = load_persona(name_or_path)

    def current(self) -> Persona:
        """Return the persona, read again where its file has changed."""
        stamp = self._stamp()
        if stamp == self._seen:
            return self._persona
        with self._lock:
            if stamp != self._seen:
                self._read_again()
                self._seen = stamp
        return self._persona

    def reason(self) -> str:
        """Return why the file as it is now is not used, in one line; empty where it is."""
        self.current()
        return self._fault

    def _read_again(self) -> None:
        try:
            self._persona, self._fault = load_persona(self._name), ""
            log.warning("The persona was edited: %s speaks from the next turn on.", self._persona.name)
        except SettingsError as exc:
            self._fault = f"{' '.join(str(exc).split())} The persona stays as it was."
            log.warning("%s", self._fault)

    def _stamp(self) -> tuple[int, int, int]:
        """Return what changes when the file does; zeros where there is none."""
        with suppress(OSError, ValueError, RuntimeError):
            if self._path is None:  # looked for once: this is asked several times a turn
                with resources.as_file(persona_source(self._name)) as path:
                    self._path = path
            found = os.stat(self._path)
            return found.st_mtime_ns, found.st_size, found.st_ino
        return 0, 0, 0


def persona_source(name_or_path: str) -> Traversable:
    """Return the file of a persona, given by its name or its file's path."""
    path = Path(name_or_path).expanduser()
    return path if path.suffix == ".toml" else resources.files("persona") / f"{path.name}.toml"


def load_persona(name_or_path: str) -> Persona:
    """Read a persona by its name or its file's path. Raises SettingsError with one sentence."""
    try:
        text = persona_source(name_or_path).read_text("utf-8-sig")  # Windows' Notepad may put a mark in front
        return Persona.model_validate(clean_json(tomllib.loads(text)))
    except ValidationError as exc:  # a ValueError too
        error = exc.errors()[0]
        field = ".".join(str(part) for part in error["loc"])
        raise SettingsError(f"STACKMEM_PERSONA is wrong: {name_or_path}: {field}: {error['msg']}.") from None
    except (OSError, ValueError, RuntimeError) as exc:  # no file, home, UTF-8 or TOML, or nested without end
        raise SettingsError(f"STACKMEM_PERSONA is wrong: {name_or_path} cannot be read ({exc}).") from exc


def language_of(texts: Sequence[str]) -> Language:
    """Return the language of a talk: Japanese as soon as there is one Japanese letter."""
    return "ja" if any(_JAPANESE.search(text) for text in texts) else "en"


@cache
def prompt_file(name: str) -> str:
    """Return the text of a prompt file, such as ``turn.ja.md``."""
    return (resources.files("persona.prompts") / name).read_text("utf-8")


@cache
def prompt_version(name: str) -> str:
    """Return a short hash of a prompt file: it changes when the prompt does."""
    return hashlib.sha256(prompt_file(name).encode()).hexdigest()[:8]


def prompts_of(persona: Persona, mode: str) -> str:
    """Return a short hash of all that a live turn is told beside the talk: it changes with a prompt or the persona."""
    forms = () if mode == "auto" else (f"form_{mode}.{persona.language}.md",)
    files = (f"turn.{persona.language}.md", f"tools.{persona.language}.json", *forms)
    known = [*map(prompt_version, files), persona.model_dump_json()]
    return hashlib.sha256(" ".join(known).encode()).hexdigest()[:8]


@cache
def tools(language: Language) -> list[dict[str, Any]]:
    """Return the two tools offered to the model, in the shape of OpenAI's chat completions."""
    return json.loads(prompt_file(f"tools.{language}.json"))  # type: ignore[no-any-return]


def render(file: str, /, **values: object) -> str:
    """Return a prompt with its ``$placeholders`` filled in. Raises KeyError for one that is missing."""
    return Template(prompt_file(file)).substitute({key: str(value) for key, value in values.items()}).strip()


def turn_prompt(persona: Persona, now: str, zone: str, mode: str = "native") -> str:
    """Return the one system message of a live turn; ``mode`` is how the model says that it wants to search."""
    ids = {"emotions": " / ".join(persona.emotions), "actions": " / ".join(persona.actions)}
    return render_for(persona, "turn", now=now, zone=zone, form=render(f"form_{mode}.{persona.language}.md", **ids))


def render_for(persona: Persona, prompt: str, **values: object) -> str:
    """Return a prompt in the persona's language that says who the robot is."""
    return render(
        f"{prompt}.{persona.language}.md",
        name=persona.name,
        first_person=persona.first_person,
        tone=persona.tone,
        reply_characters=persona.reply_characters,
        **values,
    )
