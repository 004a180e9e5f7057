"""Scripted conversations and live turns, scored. (Grows from here; nothing is scored yet.)"""
