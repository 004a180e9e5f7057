"""Addresses as they may be shown: without what opens them."""

from urllib.parse import urlsplit


def place(url: str) -> str:
    """Return an address without user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a "[" in a password, for one
        return url.partition("://")[0] + "://…"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
