"""One embedded index for one database: what is marked as indexed in the rows is in one folder alone.

The folder's lock keeps two processes out of one folder. Where the database is not in the home folder, two home folders
could each have an index, and each memory would be in one of them only: so the owner's folder stands in the database.
"""

import logging
import threading
import time
import uuid
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from peewee import DatabaseError, InterfaceError

from stackmem.database import INDEX_OWNER, LEASE, RENEW, transaction
from stackmem.exceptions import Busy
from stackmem.jobs import reindex_job
from stackmem.models import Lease, proxy
from stackmem.ports import Clock

log = logging.getLogger(__name__)

POLL_S = 0.2
NAME = "FOLDER"  # the file that tells a folder from others


class IndexOwner:
    """The right of a folder to be the index of the database that is open; held until ``release``."""

    def __init__(self, folder: Path, clock: Clock):
        self.folder, self._clock = folder, clock
        self._me = _id_of(folder)
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="index owner", daemon=True)

    def take(self, wait_s: float) -> None:
        """Take it, waiting for another folder's process to end. Where another had it before, the index is made anew.

        Raises Busy when the other one stays.
        """
        end = time.monotonic() + wait_s
        while not self._claim():
            if time.monotonic() >= end:
                raise Busy(
                    "Another stackmem keeps the embedded index of this database in another home folder (or was killed "
                    f"less than {LEASE} s ago): stop it, or set STACKMEM_INDEX_URL=http://… to a Qdrant server for all."
                )
            time.sleep(POLL_S)

    def keep(self) -> None:
        """Renew it until ``release``."""
        self._renewer.start()

    def release(self) -> None:
        """Give it up; nothing happens where it is another's by now. The database may be away."""
        self._ended.set()
        if self._renewer.ident is not None:
            self._renewer.join()
        with suppress(DatabaseError, InterfaceError):
            opened = proxy.connect(reuse_if_open=True)
            try:
                mine = (Lease.name == INDEX_OWNER) & (Lease.holder == self._me)
                Lease.update(until=self._clock.now()).where(mine).execute()
            finally:
                if opened:
                    proxy.close()

    def _claim(self) -> bool:
        now = self._clock.now()
        with transaction():
            row = Lease.get_or_none(Lease.name == INDEX_OWNER)
            if row is not None and row.holder != self._me:
                if row.until > now:
                    return False
                reindex_job("memories", now)  # the other folder has got what came meanwhile
            values = {"holder": self._me, "until": now + timedelta(seconds=LEASE)}
            Lease.insert(name=INDEX_OWNER, **values).on_conflict(conflict_target=[Lease.name], update=values).execute()
        return True

    def _renew(self) -> None:
        while not self._ended.wait(RENEW):
            try:
                with proxy.connection_context():
                    if not self._claim():
                        log.error("Another process keeps the index of this database now: end one of both.")
            except (DatabaseError, InterfaceError) as exc:
                log.warning("the ownership of the index was not renewed: %s", exc)


def _id_of(folder: Path) -> str:
    """Return what tells a folder from others, copies of it too."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / NAME
    with suppress(FileExistsError), file.open("x") as new:
        new.write(uuid.uuid4().hex)
    return f"{file.read_text()}:{file.stat().st_ino}"
