"""Speech that was made, as files: bounded, derived, gone with the words it says."""

import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from stackmem.exceptions import InvalidInput
from stackmem.models import Turn
from stackmem.sound import Sound, read_wav, wav

log = logging.getLogger(__name__)

KEPT_FOR = timedelta(hours=24)  # speech of a turn
LINES_KEPT_FOR = timedelta(days=30)  # fixed lines
HALF_KEPT_FOR = timedelta(minutes=1)  # what was being written; older, its process was killed
BYTES = 256 * 1024 * 1024  # of all speech of turns: 40 minutes at 48 kHz
_IDS = 500  # in one query


class KeptSpeech:
    """A folder of WAV files: ``<turn>-<words>-<voice>.wav``, and fixed lines in ``lines/``.

    Anything in it can be deleted at any time: it is made again from the stored reply.
    """

    def __init__(self, folder: Path, voice: str = ""):
        self._folder, self._voice = folder, voice

    def of_turn(self, turn: Turn) -> Sound | None:
        """Return the speech of a turn's reply, None where there is none."""
        return _read(self._path(turn))

    def keep(self, turn: Turn, sound: Sound) -> None:
        """Write the speech of a turn. Raises OSError where the disk is full."""
        _write(self._path(turn), sound)

    def line(self, text: str) -> Sound | None:
        """Return a fixed line spoken, None where it was not yet."""
        return _read(self._line_path(text))

    def keep_line(self, text: str, sound: Sound) -> None:
        """Write a fixed line spoken. Raises OSError where the disk is full."""
        _write(self._line_path(text), sound)

    def prune(self, now: datetime) -> int:
        """Delete what is old, what is too much, and what says words that have gone or changed; return how many."""
        files = {path: stat for path in self._files() if (stat := _stat(path))}
        gone = [path for path, stat in files.items() if _age(stat, now) > _kept_for(path, KEPT_FOR)]
        gone += self._outdated(files)
        left = sorted(files.keys() - set(gone), key=lambda path: files[path].st_mtime, reverse=True)
        size = 0
        for path in left:
            size += files[path].st_size
            if size > BYTES:
                gone.append(path)
        lines = self._folder / "lines"
        stats = [(path, stat) for path in _in(lines) if (stat := _stat(path))]
        gone += [path for path, stat in stats if _age(stat, now) > _kept_for(path, LINES_KEPT_FOR)]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def _files(self) -> list[Path]:
        return [path for path in _in(self._folder) if path.is_file()]

    def _outdated(self, files: dict[Path, os.stat_result]) -> Iterator[Path]:
        by_turn: dict[int, list[Path]] = {}
        for path in files:
            number = path.name.partition("-")[0]
            if number.isdigit():
                by_turn.setdefault(int(number), []).append(path)
        ids = list(by_turn)
        for start in range(0, len(ids), _IDS):
            wanted = ids[start : start + _IDS]
            rows = Turn.select(Turn.id, Turn.reply).where(Turn.id.in_(wanted))
            words: dict[int, str] = {row.id: _hash(row.reply) for row in rows}
            for turn_id in wanted:
                known = f"{turn_id}-{words.get(turn_id)}-"
                yield from (path for path in by_turn[turn_id] if not path.name.startswith(known))

    def _path(self, turn: Turn) -> Path:
        return self._folder / f"{turn.id}-{_hash(turn.reply)}-{self._voice}.wav"

    def _line_path(self, text: str) -> Path:
        return self._folder / "lines" / f"{_hash(text)}-{self._voice}.wav"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _in(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []  # nothing was ever said


def _stat(path: Path) -> os.stat_result | None:
    with suppress(OSError):  # another process was faster
        return path.stat()
    return None


def _kept_for(path: Path, whole: timedelta) -> timedelta:
    return HALF_KEPT_FOR if path.name.startswith(".") else whole


def _age(stat: os.stat_result, now: datetime) -> timedelta:
    return timedelta(seconds=now.timestamp() - stat.st_mtime)


def _read(path: Path) -> Sound | None:
    try:
        return read_wav(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, InvalidInput) as exc:
        log.warning("speech that was kept cannot be read and is made again: %s: %s", path.name, exc)
        return None


def _write(path: Path, sound: Sound) -> None:
    """Write a file whole or not at all, whoever else writes it now, and whenever the power goes."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    half = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with half.open("wb") as out:
            out.write(wav(sound))
            out.flush()
            os.fsync(out.fileno())
        half.replace(path)
    except OSError:
        half.unlink(missing_ok=True)
        raise
