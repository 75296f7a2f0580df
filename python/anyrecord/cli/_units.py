"""Numbers and sizes as text."""

from __future__ import annotations

__all__ = ["bytes_text", "count_text", "plural"]


def count_text(number: int | None) -> str:
    """A whole number with commas; a dash if it is not known.

    >>> count_text(1234567), count_text(None)
    ('1,234,567', '-')
    """
    return "-" if number is None else f"{number:,}"


def bytes_text(size: int | None) -> str:
    """A size with three digits and a unit; a dash if it is not known. Units are powers of 1024.

    >>> bytes_text(0), bytes_text(1023), bytes_text(1536), bytes_text(10 * 2**20), bytes_text(2**60), bytes_text(None)
    ('0 B', '1023 B', '1.5 KiB', '10.0 MiB', '1024 PiB', '-')
    """
    if size is None:
        return "-"
    if size < 1024:
        return f"{size} B"
    number = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        number /= 1024
        # 1023.96 would be shown as 1024.0.
        if number < 1023.95 or unit == "PiB":
            break
    return f"{number:.1f} {unit}" if number < 1000 else f"{number:.0f} {unit}"


def plural(number: int, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "record"), plural(2000, "record")
    ('1 record', '2,000 records')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
