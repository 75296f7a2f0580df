"""The README."""
