"""Writing: what appears on disk, and when; and what does not when something fails."""
