"""A real database, the real embedder, and a model that is replaced only where HTTP leaves the process."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.database import open_database
from tests.fakes import FixedClock
from tests.scripted import Answer, ScriptedServer
from tests.unit.world import World


@pytest.fixture(scope="session")
def embedder() -> UseEmbedder:
    """The bundled embedder, loaded once."""
    embedder = UseEmbedder()
    embedder.load()
    return embedder


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store to copy: migrating it takes 40 ms."""
    path = tmp_path_factory.mktemp("migrated") / "stackmem.db"
    open_database(f"sqlite:///{path}")
    return path


@pytest.fixture
def new_database(migrated: Path, tmp_path: Path) -> Callable[[], Any]:
    """Open a new, empty store (not connected); the models are bound to the one opened last."""
    count = iter(range(10**6))

    def new() -> Any:
        path = tmp_path / f"stackmem-{next(count)}.db"
        shutil.copy(migrated, path)
        return open_database(f"sqlite:///{path}")

    return new


@pytest.fixture
def database(new_database: Callable[[], Any]) -> Iterator[Any]:
    """An empty store, connected in this thread."""
    database = new_database()
    with database.connection_context():
        yield database


class ScriptedModel:
    """What the model answers in this test: a list, used in turn, or a callable of the request's JSON."""

    def __init__(self) -> None:
        self.script: Sequence[Answer] | Callable[[Any], Answer] = []
        self.asked: list[Any] = []

    def __call__(self, request: Any) -> Answer:
        self.asked.append(request)
        if callable(self.script):
            return self.script(request)
        return self.script[len(self.asked) - 1]

    @property
    def prompts(self) -> list[Any]:
        """What the background model was shown: the JSON of each request's first user message."""
        return [json.loads(request["messages"][1]["content"]) for request in self.asked]


@pytest.fixture(scope="session")
def _served() -> Iterator[tuple[dict[str, ScriptedModel], OpenAIChat]]:
    # Else it is imported at the first call, which makes the first turn late on a busy machine.
    import openai  # noqa: F401

    current: dict[str, ScriptedModel] = {}
    with ScriptedServer(lambda request: current["model"](request)) as server:
        chat = OpenAIChat(server.base_url, "key", "scripted")
        yield current, chat
        chat.close()


@pytest.fixture
def model(_served: tuple[dict[str, ScriptedModel], OpenAIChat]) -> ScriptedModel:
    """The script of the model behind ``chat``."""
    _served[0]["model"] = ScriptedModel()
    return _served[0]["model"]


@pytest.fixture
def chat(_served: tuple[dict[str, ScriptedModel], OpenAIChat], model: ScriptedModel) -> OpenAIChat:
    """The real adapter of a chat model, over HTTP to ``model``."""
    return _served[1]


@pytest.fixture
def clock() -> FixedClock:
    """A clock that stands at 2026-07-23 10:00 in Tokyo."""
    return FixedClock()


@pytest.fixture
def world(database: Any, embedder: UseEmbedder, chat: OpenAIChat, clock: FixedClock) -> World:
    """The use cases over an empty store and the scripted model."""
    return World(embedder, chat, clock=clock)


@pytest.fixture
def offline(database: Any, embedder: UseEmbedder, clock: FixedClock) -> World:
    """The use cases over an empty store and the offline rules."""
    return World(embedder, OfflineChat(), clock=clock)
