"""Conversion between formats."""
