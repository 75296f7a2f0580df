"""Damaged, lying and alien input: a named error or the right data, never anything else."""
