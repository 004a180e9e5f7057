"""Many scenarios, each in a process of its own: one that crashes costs only itself; a run goes on where it stopped."""

import multiprocessing as mp
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from evals.judge.asking_back import judge_of
from evals.results import Folder, digest_of, write_json
from evals.running import Options, run_scenario
from evals.scenario import File, read
from stackmem.config import load_settings
from stackmem.exceptions import StackmemError

Report = Callable[[int, int], None]


@dataclass
class Running:
    """A scenario that is being run."""

    file: File
    process: BaseProcess
    heard: Connection
    turns: int = 0
    fault: str = ""


@dataclass
class Batch:
    """The scenarios of one run."""

    files: Sequence[File]
    folder: Folder
    options: Options
    jobs: int
    report: Report

    def run(self) -> dict[str, str]:
        """Run what is not done yet; return the scenarios that failed, with the reason in one sentence each."""
        waiting = [file for file in self.files if not self._is_done(file)]
        self._total = sum(file.turns for file in self.files)
        self._done = self._total - sum(file.turns for file in waiting)
        self.report(self._done, self._total)
        running: list[Running] = []
        failed: dict[str, str] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    running.append(self._start(waiting.pop(0)))
                for one in self._heard(running):
                    running.remove(one)
                    if one.fault:
                        failed[one.file.scenario.id] = one.fault
        finally:
            for one in running:
                one.process.kill()
                one.process.join()
        return failed

    def _is_done(self, file: File) -> bool:
        return self.folder.is_done(file.scenario.id, digest_of(file.path), baselines=self.options.baselines)

    def _start(self, file: File) -> Running:
        context = mp.get_context("spawn")  # a fork would copy locks that threads hold
        heard, told = context.Pipe(duplex=False)
        arguments = (file.path, self.folder, self.options, told)
        process = context.Process(target=_child, args=arguments, name=file.scenario.id, daemon=True)
        process.start()
        told.close()
        return Running(file, process, heard)

    def _heard(self, running: Sequence[Running]) -> list[Running]:
        """Wait for news; return those that have ended."""
        ended = []
        ready = wait([one.heard for one in running])
        for one in running:
            if one.heard not in ready:
                continue
            try:
                self._take(one, one.heard.recv())
            except EOFError:
                ended.append(self._end(one))
        return ended

    def _take(self, one: Running, news: Any) -> None:
        if isinstance(news, str):
            one.fault = news
        else:
            self._done += news - one.turns
            one.turns = news
            self.report(self._done, self._total)

    def _end(self, one: Running) -> Running:
        one.heard.close()
        one.process.join()
        if not one.fault and one.process.exitcode != 0:
            one.fault = f"its process ended with {_exit_name(one.process.exitcode)}."
        return one


def _exit_name(code: int | None) -> str:
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def _end_with_parent() -> None:
    """End this process when its parent is gone, however that ended: nobody would read what it makes."""
    parent = mp.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _child(path: Path, folder: Folder, options: Options, told: Connection) -> None:
    """Run one scenario and write its result; tell turns done, or the fault."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        settings = load_settings(**dict(options.settings or {}))
        judge = judge_of(settings)
        file, digest = read(path, settings.zone), digest_of(path)
        shown = run_scenario(file, options, judge, told.send)
        write_json(folder.file_of(file.scenario.id), shown | {"digest": digest})
    except StackmemError as exc:
        told.send(str(exc))
    except OSError as exc:
        told.send(f"{exc.filename or folder.path}: {exc.strerror or exc}.")
    except Exception as exc:  # the edge of the process: one scenario's fault is one sentence, its details a file
        with suppress(OSError):
            (folder.path / f"{path.stem}.error.txt").write_text(traceback.format_exc(), "utf-8")
        told.send(f"{type(exc).__name__}: {exc} (details in {path.stem}.error.txt)")
    finally:
        told.close()
