"""What every OpenAI-compatible service is reached with: one client, opened at the first call; its errors as ours."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stackmem.adapters.openai_errors import Complaints, Refused
from stackmem.exceptions import SettingsError

if TYPE_CHECKING:
    import openai


class Connection:
    """A client for one address and key, safe to use from several threads.

    Raises SettingsError, without showing the key, where address or key cannot go into any request.
    """

    def __init__(self, complaints: Complaints):
        self._complaints = complaints
        self._client: openai.OpenAI | None = None
        self._lock = threading.Lock()
        _check(complaints)

    def client(self) -> "openai.OpenAI":
        """Return the client; importing it costs 0.7 s once."""
        import openai

        with self._lock:
            if self._client is None:  # local servers want no key, the client wants one
                key = self._complaints.api_key or "none"
                self._client = openai.OpenAI(base_url=self._complaints.base_url, api_key=key, max_retries=0)
            return self._client

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what the client raises into Refused (the server's own word) or TransientError (none came)."""
        import httpx2  # openai's own HTTP client
        import openai

        try:
            yield
        except openai.APIStatusError as exc:
            raise Refused(exc.status_code, exc.response.text, exc.response.headers) from None  # it may echo the key
        except (openai.APITimeoutError, httpx2.TimeoutException) as exc:
            raise self._complaints.too_slow() from exc
        except (openai.APIConnectionError, httpx2.HTTPError) as exc:
            raise self._complaints.unreachable() from exc


def _check(complaints: Complaints) -> None:
    base_url = complaints.base_url
    try:
        port = urlsplit(base_url).port
    except ValueError:  # no number, above 65535, or half an IPv6 address
        port = 0
    if port == 0 or not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", base_url):
        raise complaints.bad_address()
    if not re.fullmatch(r"[!-~]*", complaints.api_key):
        raise SettingsError(f"{complaints.prefix}_API_KEY holds characters that no key has (spaces, or not ASCII).")
