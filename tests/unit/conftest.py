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
from stackmem.models import TABLES
from stackmem.score_models import SCORE_TABLES
from tests.fakes import FixedClock
from tests.scripted import Answer, ScriptedServer
from tests.services import Postgres
from tests.unit.world import World

# What reads and writes rows in ways of its own; the rest of the suite asks them through these.
ON_BOTH = {
    "test_compare", "test_converse", "test_editing", "test_exporting", "test_fields", "test_forgetting",
    "test_importing", "test_indexing", "test_listing", "test_live_scoring", "test_marks", "test_naming",
    "test_owners_apart", "test_polling", "test_prepared", "test_rebuilding", "test_remember", "test_restoring",
    "test_sessions", "test_sources", "test_status", "test_visiting", "test_windows", "test_work",
}  # fmt: skip


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


class Stores:
    """Empty stores in PostgreSQL, used again and again: emptying one takes a tenth of what making one does."""

    def __init__(self, server: Postgres):
        self.server, self._names, self._made = server, list[str](), 0
        open_database(server.create("migrated")).close_all()
        self._tables = [table._meta.table_name for table in (*TABLES, *SCORE_TABLES)]

    def take(self) -> str:
        """Return the name of an empty store."""
        if not self._names:
            self._made += 1
            self.server.create(f"unit{self._made}", "migrated")
            return f"unit{self._made}"
        return self._names.pop()

    def give_back(self, name: str) -> None:
        """Empty a store for the next test."""
        emptied = "; ".join(f'DELETE FROM "{table}"' for table in self._tables)
        begun = "SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S'"
        self.server.execute(f"SET session_replication_role = replica; {emptied}; {begun}", database=name)
        self._names.append(name)


@pytest.fixture(scope="session")
def stores(postgres_server: Postgres) -> Stores:
    """Empty stores in PostgreSQL."""
    return Stores(postgres_server)


@pytest.fixture
def database_kind() -> str:
    """Where a test's store is: ``sqlite`` or ``postgres``; for the files of ON_BOTH, once each."""
    return "sqlite"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what works on the rows on both databases."""
    on_both = metafunc.module.__name__.rpartition(".")[2] in ON_BOTH
    alone = metafunc.definition.get_closest_marker("only_sqlite")
    if on_both and not alone and "database_kind" in metafunc.fixturenames:
        metafunc.parametrize("database_kind", ["sqlite", "postgres"])


@pytest.fixture
def new_database(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Open a new, empty store (not connected); the models are bound to the one opened last."""
    count, opened = iter(range(10**6)), list[Any]()
    stores: Stores | None = request.getfixturevalue("stores") if database_kind == "postgres" else None
    migrated: Path | None = None if stores else request.getfixturevalue("migrated")

    def new() -> Any:
        if stores:
            opened.append(open_database(stores.server.url(stores.take())))
            return opened[-1]
        path = tmp_path / f"stackmem-{next(count)}.db"
        assert migrated
        shutil.copy(migrated, path)
        return open_database(f"sqlite:///{path}")

    yield new
    for database in opened:
        database.close_all()
        assert stores
        stores.give_back(database.database)


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
