"""Numbered migrations, applied in order at start; each is a frozen copy of its time."""
