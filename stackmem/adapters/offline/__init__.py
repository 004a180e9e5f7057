"""The chat model that needs no model: see ``OfflineChat``."""

from stackmem.adapters.offline.chat import OfflineChat

__all__ = ["OfflineChat"]
