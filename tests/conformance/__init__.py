"""One suite that every format and every storage must pass. A new format joins in `formats.py`, and nowhere else."""
