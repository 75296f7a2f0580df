"""The formats under test: what the suite has to know about each, and nothing that it could find out itself.

A new format joins `conformance` and `hostile` by one more entry in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Variant:
    """One way to write a format."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `create` that are this format's own."""
    records_per_chunk: int | None = 1
    """How many records share a chunk; None: all of a small file."""
    sizes_known: bool = True
    """Whether `sizes()` can tell without decoding."""
    is_unpacked_at_open: bool = False
    """Whether all of a file is read when it is opened, and never again: damage anywhere is an error then."""
    has_unchecked_bits: bool = False
    """Whether a few bits of a file are covered by no check and change no record, so that nobody can see them change."""


@dataclass(frozen=True)
class Format:
    """What the suite has to know about a format."""

    name: str
    suffix: str
    variants: Mapping[str, Variant]
    """By the name that a test's id shows; the first one is tested on every storage, the others on paths."""
    empty_file_is_valid: bool = False
    """Whether a file of 0 bytes with this suffix is a file of 0 records."""
    sees_cut_between_chunks: bool = True
    """Whether a file that ends exactly behind a chunk is known to be cut."""
    valid_oddities: frozenset[bytes] = frozenset()
    """Whole files that look like garbage to a person and are valid all the same."""


@dataclass(frozen=True)
class Case:
    """A format written in one of its ways."""

    format: Format
    variant_name: str

    @property
    def variant(self) -> Variant:
        return self.format.variants[self.variant_name]

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.variant.options)

    @property
    def suffix(self) -> str:
        return self.format.suffix

    def chunk_and_row(self, index: int) -> tuple[int, int]:
        """Where the record of that number in a small file is."""
        per_chunk = self.variant.records_per_chunk
        return (0, index) if per_chunk is None else divmod(index, per_chunk)

    def __str__(self) -> str:
        return f"{self.format.name}-{self.variant_name}" if self.variant_name else self.format.name


FORMATS = (
    Format(
        name="array_record",
        suffix=".array_record",
        variants={
            "none": Variant({"codec": "none"}),
            "zstd": Variant(),
            "brotli-groups": Variant({"codec": "brotli", "level": 4, "group_size": 3}, 3, sizes_known=False),
            "none-groups": Variant({"codec": "none", "group_size": 1000}, None, sizes_known=False),
            "transposed": Variant({"codec": "snappy", "transpose": True, "group_size": 5}, 5, sizes_known=False),
            "padded": Variant({"codec": "none", "pad_to_block_boundary": True}),
        },
    ),
    Format(
        name="ffrecord",
        suffix=".ffr",
        variants={"": Variant()},
        valid_oddities=frozenset({bytes(12)}),  # what the first writer made of no samples: no checksum, and n = 0
    ),
    Format(
        name="recordio",
        suffix=".recordio",
        variants={
            "snappy": Variant({}, None, sizes_known=False),
            "none": Variant({"codec": "none"}, None, sizes_known=False),
            "gzip": Variant({"codec": "gzip", "level": 1}, None, sizes_known=False),
        },
        empty_file_is_valid=True,
        sees_cut_between_chunks=False,
    ),
    Format(
        name="tfrecord",
        suffix=".tfrecord",
        variants={
            "none": Variant(),
            # One stream from beginning to end. Its header tells a time and a system, and its last bits are padding.
            "gzip": Variant({"codec": "gzip"}, is_unpacked_at_open=True, has_unchecked_bits=True),
            "zlib": Variant({"codec": "zlib"}, is_unpacked_at_open=True, has_unchecked_bits=True),
        },
        empty_file_is_valid=True,
        sees_cut_between_chunks=False,
    ),
)

CASES = tuple(Case(format, name) for format in FORMATS for name in format.variants)
"""Every format in every way."""

FIRST_CASES = tuple(Case(format, next(iter(format.variants))) for format in FORMATS)
"""Every format in its usual way."""
