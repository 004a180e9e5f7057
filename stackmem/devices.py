"""Robots and clients on the LAN: a token each, shown once, stored as a hash."""

import hashlib
import hmac
import secrets
from datetime import datetime

from stackmem.exceptions import InvalidInput, NotFound
from stackmem.models import Device

NAME_LIMIT = 100  # characters


def _hash(token: str) -> str:
    # The token has 256 random bits: a plain hash cannot be guessed back.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def add(name: str, owner: str, now: datetime) -> str:
    """Add a device and return its token, which is kept nowhere. Raises InvalidInput when the name is taken."""
    name = name.strip()
    if not 0 < len(name) <= NAME_LIMIT or not name.isprintable():
        raise InvalidInput(f"A device's name has 1 to {NAME_LIMIT} printable characters.")
    if Device.select().where(Device.name == name).exists():
        raise InvalidInput(f"There is a device {name!r} already: revoke it, or choose another name.")
    token = f"sm_{secrets.token_urlsafe(32)}"
    Device.create(name=name, owner=owner, token_hash=_hash(token), created_at=now)
    return token


def find(token: str) -> Device | None:
    """Return the device of a token, None where there is none."""
    # The look-up's time tells something of the hash at most, and nothing leads from it to a token.
    digest = _hash(token)
    device = Device.get_or_none(Device.token_hash == digest)
    return device if device is not None and hmac.compare_digest(device.token_hash, digest) else None


def any_added() -> bool:
    """Tell whether some device can talk to us."""
    return bool(Device.select().exists())


def revoke(name: str) -> None:
    """Remove a device: its token is worth nothing from now on. Raises NotFound."""
    if not Device.delete().where(Device.name == name).execute():
        raise NotFound(f"There is no device {name!r}.")
