"""Fuzzes the parser of packed listings, with atheris (libFuzzer for Python).

    python fuzz/listing.py [-runs=10000000] [other flags of libFuzzer] [FOLDER ...]

An input is the pickle after the magic bytes. The rule: a listing that obeys every limit, or a `FormatError`.
"""

from __future__ import annotations

import sys
from collections import OrderedDict

import atheris

with atheris.instrument_imports(include=["anyrecord._listing"]):
    from anyrecord import _listing
from anyrecord.errors import FormatError

RECORDS = 50


def ordered(tree: _listing.Tree) -> OrderedDict[str, object]:
    """The tree as FFRecord stores it."""
    return OrderedDict((name, ordered(node) if isinstance(node, dict) else node) for name, node in tree.items())


def parse(record: bytes) -> _listing.Listing:
    """Parses the last record of a file of 51 records."""
    return _listing.Listing.parse(record, path="packed.ffr", number=RECORDS, offset=1000)


def check(data: bytes) -> None:
    """Parses one input, and checks what it gives."""
    try:
        listing = parse(_listing.MAGIC + data)
    except FormatError as error:
        assert error.path == "packed.ffr" and error.record == RECORDS
        return
    numbers = set()
    for path, node in _listing.walk(listing.tree):
        name = path.rsplit("/", 1)[-1]
        assert name not in ("", ".", "..") and "\0" not in name and _listing.name_bytes(name) <= 255
        assert path.count("/") < _listing.MAX_DEPTH and _listing.name_bytes(path) <= _listing.MAX_PATH_BYTES
        if isinstance(node, int):
            assert type(node) is int and 0 <= node < RECORDS and node not in numbers
            numbers.add(node)
        else:
            assert type(node) is dict
    assert len(numbers) == listing.num_files
    assert parse(_listing.dump(ordered(listing.tree))) == listing


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
