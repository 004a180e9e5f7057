"""Which adapter each setting means: models, speech, embedders and index stores, built but not connected yet."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from stackmem.adapters.llama_chat import LlamaChat
from stackmem.adapters.llama_server import LlamaServer, check_model
from stackmem.adapters.offline import OfflineChat
from stackmem.adapters.openai_chat import OpenAIChat
from stackmem.adapters.use_embedder import UseEmbedder
from stackmem.config import Settings
from stackmem.embedder_change import made_by, other_dim
from stackmem.exceptions import PermanentError, SettingsError, StackmemError
from stackmem.extras import install, missing
from stackmem.ports import ChatModel, Embedder, IndexStore, Speaker, Transcriber

CONTEXT = 8192  # tokens of a request and its answer that a GGUF file's model is given, or twice a live prompt's


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
    if packages := missing(settings.embedder):
        raise SettingsError(
            f"STACKMEM_EMBEDDER is wrong: {settings.embedder} needs {', '.join(packages)}; install them with "
            f"{install(settings.embedder)}, or take another embedder."
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
    if not missing("e5"):
        from stackmem.adapters.e5_embedder import E5Embedder

        small.append(E5Embedder())
    for stored in made_by():
        yield from (one for one in small if str(one.fingerprint) == stored)
        sized, dim = getattr(embedder, "sized", None), other_dim(embedder.fingerprint, stored)
        if sized is not None and dim is not None:
            with suppress(PermanentError):  # more than this model has
                yield sized(dim)


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
