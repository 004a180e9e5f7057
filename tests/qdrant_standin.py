"""The REST calls of a Qdrant server that stackmem makes, answered over real HTTP by qdrant-client's own local engine.

No package holds the server. This stands in for its wire: paths, bodies, answers, 404 for what is not there, 500 for a
full disk. What it cannot show is how the server itself behaves; the same suite runs against a real one where
STACKMEM_TEST_QDRANT_URL is set.

    with QdrantStandin() as server:
        ServerStore(server.url, api_key=server.key)
"""

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models

Handler = Callable[[QdrantClient, str, Any], Any]


class Refused(Exception):
    """Answered with this status."""

    def __init__(self, status: int, words: str):
        super().__init__(words)
        self.status = status


def _read(model: Any, value: Any) -> Any:
    return TypeAdapter(model).validate_python(value)


def _create(client: QdrantClient, name: str, body: Any) -> bool:
    vectors = {key: models.VectorParams.model_validate(value) for key, value in body["vectors"].items()}
    return client.create_collection(name, vectors)


def _upsert(client: QdrantClient, name: str, body: Any) -> Any:
    return client.upsert(name, [models.PointStruct.model_validate(point) for point in body["points"]])


def _query(client: QdrantClient, name: str, body: Any) -> Any:
    answers = []
    for search in body["searches"]:
        asked = models.QueryRequest.model_validate(search)
        answers.append(
            client.query_points(name, asked.query, using=asked.using, query_filter=asked.filter, limit=asked.limit)
        )
    return answers


def _scroll(client: QdrantClient, name: str, body: Any) -> Any:
    asked = models.ScrollRequest.model_validate(body)
    found, offset = client.scroll(name, scroll_filter=asked.filter, limit=asked.limit or 10, offset=asked.offset)
    return models.ScrollResult(points=found, next_page_offset=offset)


def _alias(client: QdrantClient, _: str, body: Any) -> bool:
    return client.update_collection_aliases(_read(list[models.AliasOperations], body["actions"]))


ROUTES: list[tuple[str, str, Handler]] = [
    ("GET", "/collections", lambda client, _, __: client.get_collections()),
    ("GET", "/aliases", lambda client, _, __: client.get_aliases()),
    ("POST", "/collections/aliases", _alias),
    ("PUT", "/collections/([^/]+)", _create),
    ("DELETE", "/collections/([^/]+)", lambda client, name, _: client.delete_collection(name)),
    ("PUT", "/collections/([^/]+)/index", lambda client, name, _: models.UpdateResult(status="completed")),
    ("PUT", "/collections/([^/]+)/points", _upsert),
    ("POST", "/collections/([^/]+)/points/delete", lambda client, name, body: client.delete(name, body["points"])),
    ("POST", "/collections/([^/]+)/points/query/batch", _query),
    ("POST", "/collections/([^/]+)/points/scroll", _scroll),
]


class QdrantStandin:
    """Listens on 127.0.0.1 at a free port while the ``with`` block lasts. ``refuses`` answers everything so."""

    def __init__(self, key: str = ""):
        self.key = key
        self.refuses: tuple[int, str] | None = None
        self.lock = threading.Lock()  # the local engine is not safe for threads
        self.client = QdrantClient(":memory:")
        self.asked: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        """Start listening."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and forget everything."""
        self.stop()
        self.client.close()

    def start(self, port: int = 0) -> None:
        """Listen; a port given is taken again."""
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._http.standin = self  # type: ignore[attr-defined]
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; what is stored stays."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def answer(self, method: str, path: str, body: Any) -> Any:
        """Return the result of a call. Raises Refused."""
        self.asked.append((method, path))
        if self.refuses:
            raise Refused(*self.refuses)
        for verb, pattern, handle in ROUTES:
            found = re.fullmatch(pattern, path)
            if verb == method and found:
                with self.lock:
                    name = found[1] if found.groups() else ""
                    self._check(method, name, path)
                    return handle(self.client, name, body)
        raise Refused(404, f"no route {method} {path}")

    def _check(self, method: str, name: str, path: str) -> None:
        is_new = method == "PUT" and path.count("/") == 2
        if name and method != "DELETE" and self.client.collection_exists(name) == is_new:
            raise Refused(*((409, "exists") if is_new else (404, f"Not found: Collection `{name}` doesn't exist!")))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""

    def _serve(self) -> None:
        standin: QdrantStandin = self.server.standin  # type: ignore[attr-defined]
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if self.headers.get("api-key", "") != standin.key:
                raise Refused(401, "Must provide an API key or an Authorization bearer token")
            result = standin.answer(self.command, urlsplit(self.path).path, json.loads(data) if data else None)
            self._send(200, {"result": _plain(result), "status": "ok", "time": 0.0})
        except Refused as refused:
            self._send(refused.status, {"status": {"error": str(refused)}, "time": 0.0})
        except Exception as problem:  # as the server does with what it cannot take
            self._send(400, {"status": {"error": f"Wrong input: {problem}"}, "time": 0.0})

    do_GET = do_PUT = do_POST = do_DELETE = _serve

    def _send(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
