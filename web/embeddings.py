"""``/v1/embeddings`` over an embedder of this process: every input as it stands, as a document.

https://platform.openai.com/docs/api-reference/embeddings/create
"""

from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flask import Blueprint, Flask, current_app

from stackmem import __version__
from stackmem.adapters.openai_vectors import in_base64
from stackmem.exceptions import BadParameter, TransientError
from stackmem.loading import LOADING
from stackmem.ports import Embedder, Vector
from stackmem.text import clean, estimate_tokens
from web import access, openai_shapes
from web.bodies import json_object

INPUTS = 2048  # of one request, as at OpenAI
SLICE = (
    4  # texts embedded at a time: one query of a live turn waits for so many at most, however long the others' lists
)
BODY_LIMIT = 16 * 1024 * 1024  # bytes

blueprint = Blueprint("embeddings", __name__)


@dataclass
class Serving:
    """What the app works with: the database that knows the devices, the embedder, and one thread that uses it."""

    database: Any
    embedder: Embedder
    # A queue of its own: whoever asks with a long list gets in line again behind the others after every slice.
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "embedder"))
    stopping: bool = False

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors, shape (len(texts), dim). Raises TransientError while the model loads, and at the end."""
        if not self.embedder.ready():
            raise TransientError(LOADING)
        slices = [texts[first : first + SLICE] for first in range(0, len(texts), SLICE)]
        return np.concatenate([self._embed(some) for some in slices], dtype=np.float32)

    def stop(self) -> None:
        """Give up whatever is not embedded yet: who waits for it is told, and may ask again later."""
        self.stopping = True
        self.thread.shutdown(wait=False, cancel_futures=True)

    def _embed(self, texts: Sequence[str]) -> Vector:
        try:
            return self.thread.submit(self.embedder.embed_documents, texts).result()
        except (RuntimeError, CancelledError) as exc:
            if not self.stopping:  # a pool that takes no more says so by a RuntimeError, as many a model does
                raise
            raise TransientError("The embedding server is stopping.") from exc


def create_app(serving: Serving, *, insecure: bool = False) -> Flask:
    """Return the WSGI app."""
    app = Flask("embeddings")
    app.json.ensure_ascii = False  # type: ignore[attr-defined]
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.config.update(MAX_CONTENT_LENGTH=BODY_LIMIT, INSECURE=insecure, KEY="")
    app.extensions["stackmem"] = serving
    openai_shapes.register(app)
    access.register(app, openai_shapes.openai_error)
    app.register_blueprint(blueprint)
    return app


def _serving() -> Serving:
    return current_app.extensions["stackmem"]  # type: ignore[no-any-return]


@blueprint.get("/healthz")
def healthz() -> dict[str, Any]:
    """Answer that the process lives."""
    return {"status": "ok", "version": __version__}


@blueprint.get("/readyz")
def readyz() -> tuple[dict[str, Any], int]:
    """Answer 200 once the model is loaded."""
    ready = _serving().embedder.ready()
    return {"ready": ready, "reasons": [] if ready else [LOADING]}, 200 if ready else 503


@blueprint.get("/v1/models")
def models() -> dict[str, Any]:
    """Name the model."""
    name = _serving().embedder.fingerprint.name
    return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "stackmem"}]}


@blueprint.post("/v1/embeddings")
def embeddings() -> dict[str, Any]:
    """Return the vectors; whatever model is asked for, the answer names the one that made them."""
    body = json_object()
    texts = _texts(body.get("input"))
    encoding = body.get("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise BadParameter("encoding_format", "encoding_format is float or base64.")
    fingerprint = _serving().embedder.fingerprint
    if body.get("dimensions") not in (None, fingerprint.dim):
        raise BadParameter("dimensions", f"dimensions cannot be changed here: this model's are {fingerprint.dim}.")
    vectors = _serving().embed(texts)
    tokens = sum(map(estimate_tokens, texts))
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": place, "embedding": _shown(vector, encoding)}
            for place, vector in enumerate(vectors)
        ],
        "model": fingerprint.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _texts(given: Any) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not 0 < len(texts) <= INPUTS:
        raise BadParameter("input", f"input is a text, or a list of 1 to {INPUTS} texts.")
    if not all(isinstance(text, str) for text in texts):
        raise BadParameter("input", "input is text here: tokens are not taken.")
    return [clean(text) for text in texts]


def _shown(vector: Vector, encoding: str) -> list[float] | str:
    return in_base64(vector) if encoding == "base64" else vector.tolist()
