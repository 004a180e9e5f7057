"""The log: as text, or as one JSON object a line with the ids of what was being done.

What a turn is about is known to its thread alone (and to the threads that work for it), so every line logged there can
say it, also those of libraries.
"""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Literal

Format = Literal["text", "json"]

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_ROW = re.compile(r"\n(?:DETAIL|CONTEXT): .*")  # PostgreSQL shows the row that it refuses

_about: ContextVar[dict[str, object] | None] = ContextVar("about", default=None)


_spoken: ContextVar[tuple[str, ...]] = ContextVar("spoken", default=())


@contextmanager
def about(*spoken: str, **ids: object) -> Iterator[None]:
    """Say in every line logged inside the block what it is about, by ids; and leave out what was spoken.

    A model's server may repeat the words it refuses; an exception may quote them, and be logged outside.
    """
    known, words = _about.set({**(_about.get() or {}), **ids}), _spoken.set((*_spoken.get(), *spoken))
    try:
        yield
    except Exception as exc:
        exc.__dict__.setdefault("stackmem_about", (_about.get() or {}, _spoken.get()))
        raise
    finally:
        _about.reset(known)
        _spoken.reset(words)


def _context(record: logging.LogRecord) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return what a line is about and what was spoken, as it is now or was where its exception came up."""
    error = record.exc_info[1] if record.exc_info else None
    ids, spoken = getattr(error, "stackmem_about", ({}, ()))
    return {**ids, **(_about.get() or {})}, (*_spoken.get(), *spoken)


def _without(spoken: Sequence[str], line: str) -> str:
    line = _ROW.sub("", line)
    for words in spoken:
        for form in {words, words.strip(), " ".join(words.split())}:
            if len(form) > 1:
                line = line.replace(form, "…")
    return line


class TextLines(logging.Formatter):
    """A line as people read it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the stack where there is one."""
        return _without(_context(record)[1], super().format(record))


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, then the ids, then the stack where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        ids, spoken = _context(record)
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _without(spoken, record.getMessage()),
            **ids,
        }
        if record.exc_info:
            line["stack"] = _without(spoken, self.formatException(record.exc_info))
        # Escaped: half a character, or a line separator, breaks no reader.
        return json.dumps(line, default=str)


def set_up(form: Format, level: int = logging.WARNING, file: str | None = None) -> None:
    """Let everything from ``level`` on go to stderr, or a file, in this form, instead of where it went plainly."""
    handler = WatchedFileHandler(file, encoding="utf-8") if file else logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines(TEXT))
    root = logging.getLogger()
    for plain in [one for one in root.handlers if type(one) is logging.StreamHandler]:
        root.removeHandler(plain)
    root.addHandler(handler)
    # It writes a line for each request that waits for a thread, just when there is no time for that.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    root.setLevel(level)
