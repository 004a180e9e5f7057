"""Celery: each task takes an id and makes one call into stackmem. ``celery -A workers worker`` finds ``app`` here."""

from workers.app import app

__all__ = ["app"]
