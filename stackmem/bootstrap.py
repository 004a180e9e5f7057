"""Settings in, a runtime out: everything a process needs, put together once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stackmem.adapters.folder_lock import FolderLock
from stackmem.adapters.llama_server import LlamaServer
from stackmem.aloud import Aloud, fixed_lines
from stackmem.circuit import Circuit
from stackmem.clock import SystemClock
from stackmem.compare import Comparing
from stackmem.config import Settings
from stackmem.converse import Conversation
from stackmem.database import drop_leases, open_database
from stackmem.exceptions import SettingsError, TransientError
from stackmem.index_handle import IndexHandle
from stackmem.kept_speech import KeptSpeech
from stackmem.metering import MeteredChat, NoMeter
from stackmem.owning import IndexOwner
from stackmem.persona import Persona, PersonaFile
from stackmem.polling import Polling
from stackmem.ports import ChatModel, Clock, Embedder, Hint, Meter, Queue
from stackmem.providers import (
    chat_model,
    embedder_of,
    formers_of,
    index_store,
    judge_model,
    llama_server,
    memory_model,
    speaker_of,
    transcriber_of,
)
from stackmem.recall import Recall
from stackmem.remember import Remembering
from stackmem.thinking import Thinker
from stackmem.tool_mode import ToolUse
from stackmem.voice import Voice
from stackmem.work import Work


class NoQueue:
    """Drops every hint: the database knows what is waiting."""

    def put(self, hint: Hint) -> None:
        """Do nothing."""


@dataclass
class Runtime:
    """Everything a process needs, built once."""

    settings: Settings
    database: Any
    clock: Clock
    who: PersonaFile
    chat: ChatModel
    index: IndexHandle
    recall: Recall
    conversation: Conversation
    aloud: Aloud
    work: Work
    judge: ChatModel
    polling: Polling
    meter: Meter = field(default_factory=NoMeter)
    circuit: Circuit | None = None  # in front of the chat model
    llama: LlamaServer | None = None  # where the chat model is a GGUF file; started at its first request
    owner: IndexOwner | None = None  # of an embedded index whose database is elsewhere

    def start(self) -> None:
        """At the start of a web process: find all that waits, and go on with the turns that robots poll for."""
        self.work.start()
        self.polling.resume(alone=self.settings.is_alone)

    @property
    def persona(self) -> Persona:
        """Who the robot is now."""
        return self.who.current()

    def reasons(self) -> list[str]:
        """Return what is not as it could be, one sentence each."""
        chat = [self.llama.reason() if self.llama else "", self.circuit.reason() if self.circuit else ""]
        return [*filter(None, [*chat, self.who.reason()]), *self.index.reasons(), *self.aloud.reasons()]

    def warm_up(self) -> None:
        """Begin what makes the first turn quicker, in threads: for a process that talks."""
        if self.llama:
            self.llama.begin()
        if self.aloud.voice:
            self.aloud.voice.prepare()

    def close(self) -> None:
        """Give up the index's lock."""
        if self.owner:
            self.owner.release()
        self.index.close()


def build(
    settings: Settings,
    *,
    owns_index: bool,
    queue: Queue | None = None,
    clock: Clock | None = None,
    lock_wait_s: float = 30,
    database: Any = None,
    meter: Meter | None = None,
) -> Runtime:
    """Build a runtime, over ``database`` where it is open already. Raises SettingsError or Busy with one sentence."""
    make_home(settings)
    clock = SystemClock() if clock is None else clock
    queue = NoQueue() if queue is None else queue
    who = PersonaFile(settings.persona)
    llama = llama_server(settings)
    if llama and not owns_index:
        raise SettingsError(
            "STACKMEM_CHAT_BASE_URL is wrong: a worker of its own runs no GGUF file; start a server for the model, "
            "such as llama.cpp's llama-server, and give its address."
        )
    database = database or open_database(settings.database)
    drops_leases = owns_index and settings.is_alone
    owns_index = owns_index or settings.index_is_shared  # a server's index is every process's
    embedder = embedder_of(settings)
    owner = index_owner(settings, database, clock, lock_wait_s) if owns_index else None
    index = _open_index(settings, embedder, database, lock_wait_s) if owns_index else IndexHandle(None, embedder)
    if owner:
        owner.keep()
    if drops_leases:
        drop_leases(database)  # whoever held one was the owner of the index before, and is dead
    recall = Recall(index, settings.zone)
    chat, memory_chat, judge = chat_model(settings), memory_model(settings), judge_model(settings)
    if meter is not None:
        chat, memory_chat, judge = (MeteredChat(model, meter) for model in (chat, memory_chat, judge))
    meter = NoMeter() if meter is None else meter
    circuit = Circuit(chat)
    tool_use = ToolUse("native" if settings.chat_is_offline else settings.tool_mode)
    thinker = Thinker(circuit, recall, who, settings.zone, settings.chat_timeout_s, settings.prompt_tokens, tool_use)
    conversation = Conversation(thinker, clock, queue, settings.turn_timeout_s, meter)
    remembering = Remembering(memory_chat, who, clock, queue, settings.zone, settings.memory_timeout_s)
    comparing = Comparing(memory_chat, clock, queue, settings.zone, settings.memory_timeout_s)
    speaker = speaker_of(settings)
    kept = KeptSpeech(settings.home / "speech", speaker.voice if speaker else "")
    work = Work(remembering, comparing, index, who, clock, queue, settings.turn_timeout_s, kept)
    voice = Voice(speaker, kept, settings.tts_timeout_s, lambda: fixed_lines(who.current()), meter) if speaker else None
    aloud = Aloud(conversation, transcriber_of(settings), voice, settings.asr_timeout_s)
    return Runtime(
        settings, database, clock, who, chat, index, recall, conversation, aloud, work, judge,
        Polling(aloud, clock), meter, circuit, llama, owner,
    )  # fmt: skip


def make_home(settings: Settings) -> None:
    """Create the home folder, readable by its owner alone. Raises SettingsError where that cannot be."""
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = settings.home / ".write-test"
        probe.touch()
        probe.unlink()
    except OSError as exc:
        raise SettingsError(
            f"STACKMEM_HOME is wrong: {settings.home} cannot be written ({exc.strerror}). Choose another folder."
        ) from exc


def _open_index(settings: Settings, embedder: Embedder, database: Any, lock_wait_s: float) -> IndexHandle:
    opened = database.connect(reuse_if_open=True)
    try:
        return IndexHandle(index_store(settings, lock_wait_s), embedder, lambda: formers_of(embedder))
    except TransientError as exc:
        raise SettingsError(f"STACKMEM_INDEX_URL is wrong, or its folder is: {exc}") from exc
    finally:
        if opened:
            database.close()


def index_owner(settings: Settings, database: Any, clock: Clock, wait_s: float) -> IndexOwner | None:
    """Take the right to be the index of a database outside of the home folder. Raises Busy where another has it."""
    if settings.index_is_shared or not settings.database_url:
        return None
    opened = database.connect(reuse_if_open=True)
    try:
        owner = IndexOwner(settings.index_folder, clock)
        owner.take(wait_s)
    except OSError as exc:
        raise SettingsError(f"The index folder {settings.index_folder} cannot be written ({exc.strerror}).") from exc
    finally:
        if opened:
            database.close()
    return owner


@contextmanager
def owned_index_folder(settings: Settings, wait_s: float) -> Iterator[None]:
    """Keep every server of this store away for the block. Raises Busy where one is there; a shared index keeps none."""
    if settings.index_is_shared:
        yield
        return
    lock = FolderLock(settings.index_folder, wait_s)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()
