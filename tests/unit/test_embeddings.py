"""The embedding server at its end: nobody who still waits hangs, or sees a stack trace in the log."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.database import open_database
from stackmem.ports import Vector
from tests.fakes import LateEmbedder
from tests.waiting import until
from web.embeddings import SLICE, Serving, create_app


class Held(LateEmbedder):
    """A real embedder in the middle of a slice until ``loaded`` is set."""

    began = False

    def ready(self) -> bool:
        return True

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        self.began = True
        return super().embed_documents(texts)


def test_who_waits_at_the_end_is_told_and_so_is_who_comes_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = Held(UseEmbedder())
    serving = Serving(open_database(f"sqlite:///{tmp_path / 'stackmem.db'}"), embedder)
    app, statuses = create_app(serving), dict[str, tuple[int, str]]()

    def ask(name: str, count: int) -> None:
        answer = app.test_client().post("/v1/embeddings", json={"input": ["猫"] * count})
        statuses[name] = answer.status_code, answer.json["error"]["message"] if answer.json else ""

    threads = [
        threading.Thread(target=ask, args=("several slices", 3 * SLICE)),
        threading.Thread(target=ask, args=("behind", 1)),
    ]
    threads[0].start()
    until(lambda: embedder.began, "a slice is embedded")
    threads[1].start()
    until(lambda: serving.thread._work_queue.qsize() == 1, "somebody waits behind it")
    serving.stop()
    embedder.loaded.set()
    for thread in threads:
        thread.join()
    ask("later", 1)
    assert statuses == dict.fromkeys(["several slices", "behind", "later"], (503, "The embedding server is stopping."))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_model_that_fails_is_a_fault_as_ever(tmp_path: Path) -> None:
    class Broken(Held):
        def embed_documents(self, texts: Sequence[str]) -> Vector:
            raise RuntimeError("torch says no")

    serving = Serving(open_database(f"sqlite:///{tmp_path / 'stackmem.db'}"), Broken(UseEmbedder()))
    answer = create_app(serving).test_client().post("/v1/embeddings", json={"input": "猫"})
    assert answer.status_code == 500
    assert "torch" not in answer.text
    serving.stop()
