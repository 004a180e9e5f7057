"""Who the robot is, and the prompts: files under the package ``persona``, read here."""

import hashlib
import json
import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stackmem.exceptions import SettingsError

Language = Literal["ja", "en"]
_JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f]")


class Persona(BaseModel):
    """A persona file: name, manner of speaking, the body's emotion and action ids, and its fallback lines."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    language: Language = "ja"
    first_person: str = "ぼく"
    tone: str = ""
    reply_characters: int = Field(120, ge=20, le=2000)
    emotions: list[str] = ["neutral"]
    actions: list[str] = ["none"]
    fallback: list[str] = Field(min_length=1)

    def fallback_line(self, turn_id: int) -> str:
        """Return what is said when the model does not answer; another line for the next turn."""
        return self.fallback[turn_id % len(self.fallback)]


def load_persona(name_or_path: str) -> Persona:
    """Read a persona by its name or its file's path. Raises SettingsError with one sentence."""
    path = Path(name_or_path).expanduser()
    try:
        if path.suffix == ".toml":
            text = path.read_text("utf-8")
        else:
            text = (resources.files("persona") / f"{path.name}.toml").read_text("utf-8")
        return Persona.model_validate(tomllib.loads(text))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise SettingsError(f"STACKMEM_PERSONA is wrong: {name_or_path} cannot be read ({exc}).") from exc
    except ValidationError as exc:
        error = exc.errors()[0]
        field = ".".join(str(part) for part in error["loc"])
        raise SettingsError(f"STACKMEM_PERSONA is wrong: {name_or_path}: {field}: {error['msg']}.") from None


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
    return render(
        f"turn.{persona.language}.md",
        name=persona.name,
        first_person=persona.first_person,
        tone=persona.tone,
        reply_characters=persona.reply_characters,
        now=now,
        zone=zone,
        form=render(f"form_{mode}.{persona.language}.md", **ids),
    )
