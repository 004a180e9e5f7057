"""Scripted conversations and live turns, scored: the place for it, empty so far."""
