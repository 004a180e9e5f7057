"""Scripted conversations and live turns, scored."""
