"""One process owns an index folder: an advisory lock that ends with its owner, even after kill -9."""

import fcntl
import os
import time
import weakref
from pathlib import Path

from stackmem.exceptions import Busy, TransientError

POLL_S = 0.05


class FolderLock:
    """An exclusive lock on ``folder``; it counts between processes and between stores of one process alike."""

    def __init__(self, folder: Path, wait_s: float):
        self._folder = folder
        self._wait_s = wait_s
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock, waiting ``wait_s`` seconds for another owner; nothing happens where it is held already.

        Creates the folder. Raises Busy when the other owner stays, TransientError where the folder cannot be written.
        """
        if self._file is not None and not self.is_gone():
            return
        self.release()
        file = self._open()
        try:
            self._wait_for(file)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        _HELD.add(self)

    def is_gone(self) -> bool:
        """Tell whether the folder was deleted under the lock that is held: then somebody else could take a new one."""
        if self._file is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._file), os.stat(self._folder / "LOCK"))
        except OSError:
            return True

    def release(self) -> None:
        """Give the lock up; nothing happens where it is not held."""
        file, self._file = self._file, None
        _HELD.discard(self)
        if file is not None:
            # Unlocked by name: closing alone leaves it locked while a child that forked holds the descriptor too.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def _open(self) -> int:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Python opens with O_CLOEXEC: a program started from here does not inherit the lock.
            return os.open(self._folder / "LOCK", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise TransientError(f"The index folder {self._folder} cannot be written: {exc}.") from exc

    def _wait_for(self, file: int) -> None:
        deadline = time.monotonic() + self._wait_s
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise Busy(
                        f"Another stackmem is using {self._folder}: stop it, or give this one its own STACKMEM_HOME."
                    ) from None
                time.sleep(min(POLL_S, left_s))

    def _forget_in_child(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_HELD: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


def _forget_all_in_child() -> None:
    """Close the descriptors a forked child inherited, else it would keep the lock alive after its parent died."""
    for lock in list(_HELD):
        lock._forget_in_child()
    _HELD.clear()


os.register_at_fork(after_in_child=_forget_all_in_child)
