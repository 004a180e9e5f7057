"""Prompts as files, one folder level, one file a purpose and language."""
