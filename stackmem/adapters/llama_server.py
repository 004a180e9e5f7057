"""A GGUF file's own server: llama.cpp in a child process, loaded in the background, started again when it ends."""

import atexit
import json
import logging
import secrets
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from stackmem.exceptions import SettingsError, TransientError
from stackmem.extras import install

log = logging.getLogger(__name__)

LOADING = "The chat model is loading."
MAGIC = b"GGUF"  # https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
FIRST_S, LONGEST_S = 1.0, 60.0  # until it is started again, doubling with every end in a row
LONG_LIVED_S = 300.0  # who ran for so long did not end because of how it was started
PATIENCE_S = 2.0  # for its end, when it is told to


def check_model(path: Path) -> None:
    """Raise SettingsError, one sentence with the remedy, where the file is no model or the extra is not installed."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(MAGIC))
    except OSError as exc:
        raise SettingsError(
            f"STACKMEM_CHAT_BASE_URL is wrong: {path} cannot be read ({exc.strerror}); "
            "give the path of a GGUF file, as gguf:/path/model.gguf."
        ) from exc
    if begins != MAGIC:
        raise SettingsError(f"STACKMEM_CHAT_BASE_URL is wrong: {path} is no GGUF file; give the path of one.")
    if find_spec("xllamacpp") is None:
        raise SettingsError(
            "STACKMEM_CHAT_BASE_URL is wrong: a GGUF file needs xllamacpp; install it with "
            f"{install('local')}, or give a server's address."
        )


class LlamaServer:
    """The server of one model; safe to use from several threads.

    ``context``: tokens of one request and its answer. ``threads``: 0 for llama.cpp's own choice.
    """

    def __init__(self, model: Path, *, context: int, threads: int = 0):
        self.api_key = secrets.token_urlsafe(24)
        self._model = model
        self._order = {"model": str(model), "context": context, "threads": threads, "api_key": self.api_key}
        self._address = self._fault = ""
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Start it in the background, unless it was."""
        with self._changed:
            if self._thread is None and not self._closed.is_set():
                atexit.register(self.close)
                self._thread = threading.Thread(target=self._keep_running, name="llama", daemon=True)
                self._thread.start()

    def address(self, wait_s: float | None = 0) -> str:
        """Return where it listens (``http://host:port``), starting it where it was not.

        Raises TransientError where it is not loaded within ``wait_s`` (None: however long that takes), or failed.
        """
        self.begin()
        with self._changed:
            self._changed.wait_for(lambda: self._address or self._fault or self._closed.is_set(), wait_s)
            if self._address:
                return self._address
        raise TransientError(self.reason())

    def reason(self) -> str:
        """Return why it cannot be asked, in a sentence; empty where it can, or nobody has asked for it yet."""
        if self._closed.is_set():
            return "The chat model was stopped."
        if self._thread is None or self._address:
            return ""
        return f"The chat model does not run: {self._fault}" if self._fault else LOADING

    def close(self) -> None:
        """End the process for good, and return when it has ended."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
            process, loaded = self._process, bool(self._address)
            self._address = ""
        atexit.unregister(self.close)
        if process is None:
            return
        if loaded and process.stdin is not None:
            process.stdin.close()
        else:
            process.kill()  # it does not listen while it loads
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _keep_running(self) -> None:
        """Start it, and again whenever it ends, until it is closed."""
        delay_s = FIRST_S
        while not self._closed.is_set():
            began = time.monotonic()
            fault = self._one_process()
            if not self._closed.is_set():
                log.error("The chat model does not run: %s", fault)
            self._closed.wait(delay_s)
            delay_s = FIRST_S if time.monotonic() - began > LONG_LIVED_S else min(delay_s * 2, LONGEST_S)

    def _one_process(self) -> str:
        """Run one process to its end; return why it ended."""
        try:
            with TemporaryFile() as printed, self._started(printed) as process:
                fault = self._watch(process, printed)
        except OSError as exc:
            fault = f"llama.cpp could not be started ({exc})."
        self._tell(fault=fault)
        return fault

    def _started(self, printed: IO[bytes]) -> "subprocess.Popen[str]":
        with self._changed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stackmem.adapters.llama_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C in the terminal is for us: it ends when we do
            )
            if self._closed.is_set():  # while it was made
                self._process.kill()
            return self._process

    def _watch(self, process: "subprocess.Popen[str]", printed: IO[bytes]) -> str:
        """Give the process its order and wait for its end; return why it ended."""
        said: dict[str, str] = {}
        with suppress(BrokenPipeError, ValueError):  # it died at once: how it ended tells more
            print(json.dumps(self._order), file=process.stdin, flush=True)
            said = json.loads(process.stdout.readline() if process.stdout else "")
        if said.get("address"):
            self._tell(address=said["address"])
        ended = process.wait()
        printed.seek(0)
        lines = printed.read().decode("utf-8", "replace").splitlines()
        if "fault" in said:  # its first error says why; lines are ``time letter place: words``
            why = next((line.partition(" E ")[2] for line in lines if " E " in line), said["fault"])
            return f"llama.cpp cannot load {self._model.name}: {why}"
        how = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
        return " ".join([f"llama.cpp ended ({how}) and is started again.", *lines[-1:]])

    def _tell(self, *, address: str = "", fault: str = "") -> None:
        with self._changed:
            self._address, self._fault = address, fault
            self._changed.notify_all()
