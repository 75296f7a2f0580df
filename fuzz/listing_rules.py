"""What must hold for every packed listing: it is a tree that obeys every limit, or a `FormatError`.

`fuzz/listing.py` calls `check` with inputs of a fuzzer, and a test calls it with every stored input.
"""

from __future__ import annotations

from collections import OrderedDict

from anyrecord import _listing
from anyrecord.errors import FormatError

RECORDS = 50
"""The files of the packed folder. The listing is the record after them."""


def ordered(tree: _listing.Tree) -> OrderedDict[str, object]:
    """The tree as FFRecord stores it."""
    return OrderedDict((name, ordered(node) if isinstance(node, dict) else node) for name, node in tree.items())


def parse(record: bytes) -> _listing.Listing:
    """Parses the last record of a file of 51 records."""
    return _listing.Listing.parse(record, path="packed.ffr", number=RECORDS, offset=1000)


def check(data: bytes) -> None:
    """Parses one input, which is the pickle after the magic bytes, and checks what it gives."""
    try:
        listing = parse(_listing.MAGIC + data)
    except FormatError as error:
        refused = error
    else:
        check_tree(listing)
        return
    assert (refused.path, refused.record) == ("packed.ffr", RECORDS)


def check_tree(listing: _listing.Listing) -> None:
    """Checks a listing that was not refused."""
    numbers = set()
    for path, node in _listing.walk(listing.tree):
        name = path.rsplit("/", 1)[-1]
        assert name not in ("", ".", "..")
        assert "\0" not in name
        assert _listing.name_bytes(name) <= _listing.MAX_NAME_BYTES
        assert path.count("/") < _listing.MAX_DEPTH
        assert _listing.name_bytes(path) <= _listing.MAX_PATH_BYTES
        if isinstance(node, dict):
            continue
        assert type(node) is int
        assert 0 <= node < RECORDS
        assert node not in numbers
        numbers.add(node)
    assert len(numbers) == listing.num_files
    assert parse(_listing.dump(ordered(listing.tree))) == listing
