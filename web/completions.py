"""OpenAI's chat completions: any chat client gets a memory."""

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, g, request

from stackmem.chat_body import MODELS, RAW, ChatBody, read_body
from stackmem.config import OFFLINE
from stackmem.speaking import OnSentence
from stackmem.visiting import Answered, Visit, Visiting
from web import openai_shapes
from web.access import database, runtime
from web.bodies import json_object, text_in_header
from web.completion_shapes import Completion
from web.openai_shapes import openai_error
from web.underway import Underway

BODY_LIMIT = 16 * 1024 * 1024  # bytes: a whole conversation, and pictures that nobody looks at
PATHS = ("/v1/chat/completions", "/v1/models")
SESSION_HEADERS = ("X-Session-Id", "X-OpenWebUI-Chat-Id")

blueprint = Blueprint("completions", __name__)
openai_shapes.register(blueprint)


def shaped(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return what answers an error in OpenAI's shape where that is expected, and elsewhere by ``otherwise``."""

    def answer(status: int, sentence: str, **headers: str) -> Any:
        here = request.path in PATHS or request.path.startswith(f"{PATHS[1]}/")
        return (openai_error if here else otherwise)(status, sentence, **headers)

    return answer


@blueprint.get("/v1/models")
def models() -> dict[str, Any]:
    """List the robot, and the model behind it."""
    return {"object": "list", "data": [_model(name) for name in MODELS]}


@blueprint.get("/v1/models/<path:name>")
def model(name: str) -> dict[str, Any] | Response:
    """Return one of them."""
    if name not in MODELS:
        return openai_error(
            404, f"There is no model {name[:40]!r}: take stackmem or {RAW}.", "model", "model_not_found"
        )
    return _model(name)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "stackmem"}


@blueprint.post("/v1/chat/completions")
def completions() -> dict[str, Any] | Response:
    """Answer the newest words of a conversation."""
    request.max_content_length = BODY_LIMIT
    body = read_body(json_object())
    visiting, visit = Visiting(runtime().conversation), _visit(body)
    # The offline rules say so in every answer, whatever was asked for.
    completion = Completion(OFFLINE if runtime().chat.name == OFFLINE else body.model)
    if not body.stream:
        return completion.whole(visiting.answer(visit))

    def work(on_text: OnSentence) -> Answered:
        answered = visiting.answer(visit, on_text)
        if answered.turn is not None:
            answered.turn.session.name  # noqa: B018  # read here, where the connection is
        return answered

    underway = Underway(work, database())
    events = completion.events(underway, include_usage=body.include_usage)
    # The last is nginx's: else it would hold a stream back until it is whole.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Response(events, content_type="text/event-stream; charset=utf-8", headers=headers)


def _visit(body: ChatBody) -> Visit:
    return Visit(
        owner=g.owner,
        body=body,
        session=next((name for header in SESSION_HEADERS if (name := text_in_header(header))), None),
        device=g.device,
        key=text_in_header("Idempotency-Key"),
    )
