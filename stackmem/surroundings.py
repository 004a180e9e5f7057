"""Checks of the machine that stackmem runs on: its clock and its disk."""

import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from stackmem.bootstrap import Runtime
from stackmem.findings import Finding
from stackmem.models import Turn
from stackmem.store_copy import is_sqlite

SKEW = 120  # seconds by which another clock may differ before anybody is told
LEASE_SKEW = 20  # seconds between the clocks of processes that share leases of 90
LOW, TOO_LOW = 1_000_000_000, 100_000_000  # bytes
SET_IT = "set it (on Linux: timedatectl set-ntp true)"


def clock(runtime: Runtime) -> Finding:
    """Compare the clock with the model's server, the database's, and what was stored last."""
    settings, now = runtime.settings, runtime.clock.now()
    shown = f"{now.astimezone(settings.zone):%Y-%m-%d %H:%M} in {settings.timezone}"
    wrong = [
        sentence
        for sentence in (_beside_the_model(runtime), _beside_the_database(runtime), _beside_the_last_turn(now))
        if sentence
    ]
    return Finding("note", f"{shown}. {' '.join(wrong)}") if wrong else Finding("ok", f"It is {shown}.")


def _beside_the_model(runtime: Runtime) -> str:
    settings = runtime.settings
    if settings.chat_is_offline or settings.chat_file:
        return ""
    theirs = _date_of(settings.chat_base_url)
    skew_s = (runtime.clock.now() - theirs).total_seconds() if theirs else 0.0
    if abs(skew_s) <= SKEW:
        return ""
    return f"That is {_apart(skew_s)} the model's server: {SET_IT}."


def _date_of(url: str) -> datetime | None:
    """Return the time that a server says it is; None where it says none. The model's own check tells if it is down."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            said = answer.headers["Date"]
    except urllib.error.HTTPError as exc:  # a server that wants a key says its time as well
        with exc:
            said = exc.headers["Date"]
    except (OSError, ValueError):
        return None
    with suppress(TypeError, ValueError):
        return parsedate_to_datetime(said).astimezone(UTC)
    return None


def _beside_the_database(runtime: Runtime) -> str:
    if is_sqlite(runtime.database):
        return ""
    theirs = runtime.database.execute_sql("SELECT clock_timestamp()").fetchone()[0]
    skew_s = (runtime.clock.now() - theirs).total_seconds()
    if abs(skew_s) <= LEASE_SKEW:
        return ""
    return f"That is {_apart(skew_s)} the database's server, and processes lend each other work by the clock: {SET_IT}."


def _beside_the_last_turn(now: datetime) -> str:
    newest = Turn.select(Turn.received_at).order_by(Turn.id.desc()).first()
    skew_s = (now - newest.received_at).total_seconds() if newest else 0.0
    if skew_s >= -SKEW:
        return ""
    return f"The newest turn was received {-skew_s / 60:.0f} min later than that: the clock has gone back; {SET_IT}."


def _apart(skew_s: float) -> str:
    return f"{abs(skew_s) / 60:.0f} min {'ahead of' if skew_s > 0 else 'behind'}"


def disk(runtime: Runtime) -> Finding:
    """Look how much room the home folder has."""
    home = runtime.settings.home
    free, taken = shutil.disk_usage(home).free, taken_by(files_under(home))
    sentence = f"{free / 1e9:.1f} GB are free in {home}; stackmem takes {taken / 1e6:.0f} MB of it."
    if free >= LOW:
        return Finding("ok", sentence)
    return Finding("failed" if free < TOO_LOW else "note", f"{sentence} Make room: a full disk takes no turn.")


def files_under(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and those in it. What is deleted meanwhile is left out; ``rglob`` would fail."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent) / name for name in names)


def taken_by(files: Iterable[Path]) -> int:
    """Return the bytes that files take on the disk, which for an index is less than their sizes."""
    return sum(_blocks(path) for path in files) * 512


def _blocks(path: Path) -> int:
    try:
        return path.stat().st_blocks
    except OSError:  # gone meanwhile
        return 0
