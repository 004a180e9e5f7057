"""Reading and writing the vectors of OpenAI's embeddings: decimals, or float32 in base64."""

import base64
import binascii
from typing import Any

import numpy as np

from stackmem.adapters.openai_answer import NO_ANSWER, refusal_in
from stackmem.adapters.openai_errors import Refused
from stackmem.ports import Vector


def read_vectors(value: dict[str, Any], count: int) -> Vector:
    """Return the vectors of a response in the order of its inputs, shape (count, width), float32, as they came.

    Raises Refused where there are not as many as inputs, not all of one width, or not all finite numbers.
    """
    data = value.get("data")
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise refusal_in(value, "no vectors came")
    if len(data) != count:
        raise Refused(NO_ANSWER, f"{len(data)} vectors came for {count} texts")
    rows = [_vector(item.get("embedding")) for item in _in_order(data)]
    if len({row.shape for row in rows}) != 1 or not rows[0].size:
        raise Refused(NO_ANSWER, "the vectors are not of one length")
    vectors = np.stack(rows)
    if not np.isfinite(vectors).all():
        raise Refused(NO_ANSWER, "a vector holds NaN or infinity")
    return vectors


def unit_rows(vectors: Vector) -> Vector:
    """Return the rows divided by their lengths; a row of zeros stays one."""
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(norms == 0, 1, norms)).astype(np.float32)


def in_base64(vector: Vector) -> str:
    """Return a vector as OpenAI's ``encoding_format: base64``: little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _in_order(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items sorted by ``index``; as they stand where none has one."""
    places = [item.get("index") for item in data]
    if all(place is None for place in places):
        return data
    if any(type(place) is not int for place in places) or set(places) != set(range(len(data))):
        raise Refused(NO_ANSWER, "the vectors do not say to which texts they belong")
    return sorted(data, key=lambda item: int(item["index"]))


def _vector(embedding: Any) -> Vector:
    try:
        if isinstance(embedding, str):
            return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
        # JSON's null, and text in place of numbers, are refused with the rest; numpy would read them.
        if isinstance(embedding, list) and all(type(number) in (int, float) for number in embedding):
            with np.errstate(over="ignore"):  # too large for float32 is infinite
                return np.asarray(embedding, dtype=np.float64).astype(np.float32)
    except (ValueError, binascii.Error, OverflowError):
        pass
    raise Refused(NO_ANSWER, "a vector is not a list of numbers")
