"""A browser without a screen: pages over HTTP with cookies, their links and their forms."""

import urllib.error
import urllib.parse
import urllib.request
import uuid
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from typing import Any

from tests.running import PATIENCE

ADDRESSES = ("href", "src", "action")


@dataclass
class Form:
    """A form as it stands on a page."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


@dataclass
class Page:
    """What came back."""

    status: int
    headers: Any
    html: str
    url: str

    @property
    def read(self) -> "Reader":
        """Its parts."""
        reader = Reader()
        reader.feed(self.html)
        return reader

    @property
    def text(self) -> str:
        """What a person reads of it."""
        return " ".join("".join(self.read.words).split())

    def form(self, action: str) -> Form:
        """Return the form whose action ends so."""
        return next(form for form in self.read.forms if form.action.endswith(action))


class Reader(HTMLParser):
    """Collects language, addresses, forms, words and what the policy forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.language = ""
        self.links: list[str] = []
        self.addresses: list[str] = []
        self.forms: list[Form] = []
        self.words: list[str] = []
        self.inline: list[str] = []
        self._inside = ""
        self._textarea = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._inside = tag
        if tag == "html":
            self.language = given.get("lang", "")
        if tag == "a":
            self.links.append(given.get("href", ""))
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get")))
        if tag == "input" and self.forms and (given.get("type") != "checkbox" or "checked" in given):
            self.forms[-1].fields[given.get("name", "")] = given.get("value", "")
        if tag == "textarea":
            self._textarea = given.get("name", "")
            self.forms[-1].fields[self._textarea] = ""
        if tag == "select":
            self._select = given.get("name", "")
        if tag == "option" and "selected" in given:
            self.forms[-1].fields[self._select] = given.get("value", "")
        self.addresses += [given[name] for name in ADDRESSES if name in given]
        self.inline += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.inline.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._inside, self._textarea = "", ""

    def handle_data(self, data: str) -> None:
        if self._textarea:
            self.forms[-1].fields[self._textarea] += data
        if self._inside not in ("script", "style"):
            self.words.append(data)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Visitor:
    """Somebody with a browser: it keeps cookies and follows redirects."""

    def __init__(self, url: str, language: str | None = "ja", follow: bool = True, **headers: str):
        self.url, self.jar = url, CookieJar()
        handlers: list[Any] = [urllib.request.HTTPCookieProcessor(self.jar), *([] if follow else [_Stay])]
        self._opener = urllib.request.build_opener(*handlers)
        self._headers = {"Accept": "text/html", **({"Accept-Language": language} if language else {}), **headers}

    def get(self, path: str) -> Page:
        """Open a page."""
        return self._open(urllib.request.Request(self.url + path, headers=self._headers))

    def post(self, path: str, fields: dict[str, str], file: bytes | None = None) -> Page:
        """Send a form; ``file`` goes as the field of that name."""
        data, kind = urllib.parse.urlencode(fields).encode(), "application/x-www-form-urlencoded"
        if file is not None:
            data, kind = _multipart(fields, file)
        headers = {**self._headers, "Content-Type": kind}
        return self._open(urllib.request.Request(self.url + path, data, headers, method="POST"))

    def send(self, page: Page, action: str, file: bytes | None = None, **changes: str) -> Page:
        """Fill in a form of a page and send it."""
        form = page.form(action)
        return self.post(form.action, {**form.fields, **changes}, file)

    def _open(self, request: urllib.request.Request) -> Page:
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                return Page(answer.status, answer.headers, answer.read().decode(), answer.url)
        except urllib.error.HTTPError as error:
            with error:
                return Page(error.code, error.headers, error.read().decode(), error.url)


def _multipart(fields: dict[str, str], file: bytes) -> tuple[bytes, str]:
    boundary = uuid.uuid4().hex
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    parts.append(b'Content-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n' + file)
    body = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    return body + b"--%s--\r\n" % boundary.encode(), f"multipart/form-data; boundary={boundary}"


def crawl(visitor: Visitor, start: str = "/") -> dict[str, Page]:
    """Open every page that links lead to, without their anchors; what is loaded is opened too."""
    seen: dict[str, Page] = {}
    waiting = [start]
    while waiting:
        path = waiting.pop().partition("#")[0]
        if path in seen or not path:
            continue
        seen[path] = visitor.get(path)
        if seen[path].headers.get_content_type() == "text/html":
            reader = seen[path].read
            actions = {form.action for form in reader.forms}
            waiting += [address for address in reader.addresses if address not in actions]
    return seen
