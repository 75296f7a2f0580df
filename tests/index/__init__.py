"""Side indexes."""
