"""Judges: models that say what a turn needed, and how far they can be trusted."""
