"""Salvage: what can still be read from damaged, truncated and unfinished files."""
