"""Drop-in modules: names, signatures and return types of the original packages, on top of anyrecord's public API."""
