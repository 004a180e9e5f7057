"""The files of a Qwen3 embedding model: in a folder, in the hub's cache or fetched from the hub; checked before use."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackmem.exceptions import PermanentError, TransientError

DEFAULT_MODEL = "Qwen/Qwen3-Embedding-0.6B"
END = "<|endoftext|>"  # the vector is the state of the last token, and this is the one it was trained on
QUERY_FORMAT = "Instruct: {}\nQuery:{}"  # no space after "Query:"; FlagEmbedding's own default has one
SMALL = ("config.json", "tokenizer.json")  # enough to know the fingerprint
INDEX = "model.safetensors.index.json"
PATTERNS = [*SMALL, "tokenizer_config.json", "*.safetensors", INDEX]
CHARACTERS = 100_000  # of one text that are tokenised at all: no limit of tokens reaches further


@dataclass(frozen=True)
class Card:
    """What is known of a model before its weights are read: its name, the width of its vectors, its tokenizer."""

    name: str
    width: int
    tokenizer: Any

    def tokens(self, text: str, limit: int) -> list[int]:
        """Return at most ``limit`` token ids; the last is the end's, also where the text is cut or empty."""
        ids: list[int] = self.tokenizer.encode(text[:CHARACTERS]).ids
        return ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]


def read_card(model: str) -> Card:
    """Return the card of a hub id's or folder's model; only small files are read.

    Raises PermanentError where it is no such model or its tokenizer does not append the end; TransientError where the
    hub does not answer.
    """
    from tokenizers import Tokenizer

    config, vocabulary = (_small_file(model, name) for name in SMALL)
    try:
        width = int(json.loads(config.read_text(encoding="utf-8"))["hidden_size"])
        tokenizer = Tokenizer.from_file(str(vocabulary))
    except Exception as exc:  # tokenizers raises bare Exception
        raise PermanentError(f"{model} is no Qwen3 embedding model: {config.parent} cannot be read ({exc}).") from exc
    _check_end(model, tokenizer)
    return Card(Path(model).name, width, tokenizer)


def _check_end(model: str, tokenizer: Any) -> None:
    end = tokenizer.token_to_id(END)
    if end is None or tokenizer.encode("a").ids[-1:] != [end]:
        raise PermanentError(
            f"The tokenizer of {model} does not append {END}, so its vectors would be wrong: take the "
            "tokenizer.json of Qwen3-Embedding, not that of a chat model."
        )


def _small_file(model: str, name: str) -> Path:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    if Path(model).is_dir():
        if not (Path(model) / name).is_file():
            raise PermanentError(f"{model} is no Qwen3 embedding model: it holds no {name}.")
        return Path(model) / name
    try:
        cached = try_to_load_from_cache(model, name)
        return Path(cached if isinstance(cached, str) else hf_hub_download(model, name))
    except Exception as exc:
        raise _unreachable(model, exc) from exc


def weights_folder(model: str) -> Path:
    """Return the folder that holds the whole model; from the hub it is fetched once (1.2 GB).

    Raises TransientError where the hub does not answer.
    """
    from huggingface_hub import snapshot_download

    if Path(model).is_dir():
        return Path(model)
    try:
        cached = Path(snapshot_download(model, allow_patterns=PATTERNS, local_files_only=True))
    except FileNotFoundError:  # nothing of it is in the cache
        cached = None
    if cached and _is_whole(cached):
        return cached
    try:
        folder = Path(snapshot_download(model, allow_patterns=PATTERNS))
    except Exception as exc:
        raise _unreachable(model, exc) from exc
    if not _is_whole(folder):  # without the hub its client is content with a part
        raise _unreachable(model, FileNotFoundError(f"{folder} is not complete"))
    return folder


def size_at_hand(model: str) -> int:
    """Return the bytes of the weights in a folder or in the hub's cache; 0 where they are not there."""
    from huggingface_hub import snapshot_download

    folder = Path(model)
    if not folder.is_dir():
        try:
            folder = Path(snapshot_download(model, local_files_only=True))
        except (OSError, ValueError):  # not in the cache; no hub id at all
            return 0
        if not _is_whole(folder):
            return 0
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def weight_files(folder: Path) -> dict[str, tuple[Path, str]]:
    """Return for each tensor's name in the model the safetensors file that holds it, and its name there.

    A file of the model with its language head says ``model.`` before every name. Raises PermanentError without a file.
    """
    from safetensors import safe_open

    found: dict[str, tuple[Path, str]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            stored = file.keys()
        found |= {name.removeprefix("model."): (path, name) for name in stored}
    if not found:
        raise PermanentError(f"{folder} holds no *.safetensors: fetch the model again.")
    return found


def _is_whole(folder: Path) -> bool:
    parts = {"model.safetensors"}
    if (folder / INDEX).is_file():
        parts = set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    return all((folder / name).is_file() for name in [*SMALL, *parts])


def _unreachable(model: str, error: Exception) -> TransientError:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return TransientError(
        f"{model} is no folder and not in the hub's cache, and could not be fetched from the hub ({first}). "
        "Check STACKMEM_EMBEDDING_MODEL, or put the path of a folder with the model there."
    )
