"""From what the caller names to the files that are meant."""
