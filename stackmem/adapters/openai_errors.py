"""What an OpenAI-compatible server says when it refuses, turned into our errors."""

import email.utils
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from stackmem.exceptions import (
    ContentRefused,
    PermanentError,
    SettingsError,
    StackmemError,
    ToolsRefused,
    TransientError,
)

_WORDS_LIMIT = 300  # characters of the server's words in a message of ours
_MESSAGE_KEYS = ("message", "msg", "error", "errors", "detail", "error_message")
_CODE_KEYS = ("code", "type", "param", "loc", "error_code")
_CONTENT = re.compile(r"data_?inspection|inappropriate content|content_filter|content management policy", re.I)
_BALANCE = re.compile(r"balance|arrear|billing|insufficient_quota|good standing|recharge|top.?up|余额|欠费|充值", re.I)
_MODEL = re.compile(r"no provider supported|model.{0,200}not (found|exist|support)|model_not_found", re.I)
_TOOLS = re.compile(
    r"(?:not|n't) support.{0,40}(?:tool|function)|support(?:s)? tool use|tool.{0,40}not supported"
    r"|tool choice requires|tools? param requires|--jinja",
    re.I,
)
_KEY = re.compile(r"api.?key|invalid.{0,10}token|unauthori[sz]ed", re.I)
THINKING = re.compile(
    r"thinking|chat_template_kwargs|extra (inputs|fields)|extra_forbidden|additional propert"
    r"|(unrecogni[sz]ed|unknown|unexpected|unsupported) (request )?(argument|parameter|field|key|property)",
    re.I,
)


class Refused(Exception):
    """The server's own refusal: HTTP status (200 for an answer without content), words, seconds to wait."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str] | None = None):
        value = _json(body)
        self.status = status
        self.words = " ".join(next(_strings(value, _MESSAGE_KEYS), "").split())
        self.codes = " ".join(_strings(value, _MESSAGE_KEYS + _CODE_KEYS))  # what the patterns look at
        self.retry_after_s = retry_after(headers or {})
        super().__init__(f"HTTP {status}")


def _json(body: Any) -> Any:
    """Return a body as JSON; a text that is none as it is, a web page as nothing."""
    if not isinstance(body, str):
        return body
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return "" if body.lstrip().startswith("<") else body


def _strings(value: Any, keys: tuple[str, ...], depth: int = 0) -> Iterator[str]:
    """Yield the texts under these keys, however nested (row 3); what the server echoes under others is left out."""
    if isinstance(value, str | int) and value != "":
        yield str(value)
    elif depth < 8 and isinstance(value, dict):
        for key in keys:
            yield from _strings(value.get(key), keys, depth + 1)
    elif depth < 8 and isinstance(value, list):
        for item in value[:8]:
            yield from _strings(item, keys, depth + 1)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a Retry-After header asks for (a number or a date), None where there is none."""
    text = headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(seconds, 0.0) if seconds < float("inf") else None


@dataclass(frozen=True)
class Complaints:
    """Makes our errors; each names the setting to change and none holds the key."""

    prefix: str  # of the settings, e.g. STACKMEM_CHAT
    base_url: str
    api_key: str = field(repr=False)
    who: str = "chat model"
    offers: str = "chat completions"
    body_setting: str = "EXTRA_BODY"  # what to look at where the server objects to the request itself

    def refused(self, refused: Refused) -> StackmemError:
        """Return the error for a server's refusal (rows 2 to 5, 22, 23)."""
        status, codes = refused.status, refused.codes
        if 400 <= status < 500 and _CONTENT.search(codes):
            return ContentRefused(self._text("will not read these words", refused))
        if status >= 400 and _TOOLS.search(codes):
            return ToolsRefused(self._text("takes no tools: set STACKMEM_TOOL_MODE=json, or change", refused, "MODEL"))
        if status == 402 or (status in (400, 403, 429) and _BALANCE.search(codes)):
            return PermanentError(self._text("wants to be paid: charge the account of, or change,", refused, "API_KEY"))
        if status in (408, 425, 429) or status >= 500 or status < 300:
            what = {200: "sent no answer", 429: "is over its rate"}.get(status, "failed")
            return TransientError(self._text(what, refused), refused.retry_after_s)
        return PermanentError(self._text(*self._remedy(status, codes, refused)))

    def _remedy(self, status: int, codes: str, refused: Refused) -> tuple[str, Refused, str]:
        if status in (401, 403) or _KEY.search(codes):
            return "refused the key: check", refused, "API_KEY"
        if _MODEL.search(codes):
            return "does not have this model (any more): change", refused, "MODEL"
        if status < 400 or status in (404, 405):
            return f"has no {self.offers} at this address: check", refused, "BASE_URL"
        if THINKING.search(codes):
            return "refused a key of the request: check", refused, self.body_setting
        return f"refused the request: check {self.prefix}_MODEL and", refused, self.body_setting

    def unreachable(self) -> TransientError:
        """Return the error for a server that is not there, or went away in the middle (row 23)."""
        return TransientError(
            f"{self._server} cannot be reached, or broke off; if it never answers, check {self._url}."
        )

    def too_slow(self) -> TransientError:
        """Return the error for an answer that was not whole in time (row 23)."""
        return TransientError(f"{self._server} did not answer in time.")

    def too_much(self) -> TransientError:
        """Return the error for an answer without end."""
        return TransientError(
            f"{self._server} sent far more than an answer can be; if it always does, check {self._url}."
        )

    def bad_address(self) -> SettingsError:
        """Return the error for an address that no request can be sent to."""
        return SettingsError(f"No request can be sent to {self._url}: it must be http(s)://host[:port]/path.")

    @property
    def _url(self) -> str:
        return f"{self.prefix}_BASE_URL"

    @property
    def _server(self) -> str:
        """Name the server without what an address may hide (user, password, query)."""
        parts = urlsplit(self.base_url)
        return f"The {self.who} at {parts.netloc.rpartition('@')[2]}"

    def _text(self, what: str, refused: Refused, setting: str = "") -> str:
        setting = f" {self.prefix}_{setting}" if setting else ""
        words = refused.words.replace(self.api_key, "***") if self.api_key else refused.words
        words = f": {words[:_WORDS_LIMIT]}" if words else ""
        return f"{self._server} {what}{setting} (HTTP {refused.status}{words})."
