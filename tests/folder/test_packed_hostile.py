"""Listings that no honest writer makes: each is refused at open, nothing runs, nothing is written.

A listing is `PROTO 4, FRAME, <class> <()> REDUCE MEMOIZE, MARK, name MEMOIZE number ..., SETITEMS, STOP`; the cases
here are built from pieces of that.
"""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyrecord
import pytest
from anyrecord._listing import Listing

PackWith = Callable[..., Path]

CLASS = b"ccollections\nOrderedDict\n"
NEW = CLASS + b")R"  # OrderedDict()
WITNESS = "executed"


def name(text: str) -> bytes:
    raw = text.encode(errors="surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def folder(*items: bytes) -> bytes:
    return NEW + b"(" + b"".join(items) + b"u"


def tree(*items: bytes) -> bytes:
    return b"\x80\x04" + folder(*items) + b"."


def file(text: str, record: int = 0) -> bytes:
    return name(text) + b"K" + bytes([record])


class Touches:
    """Unpickling this would leave a file behind."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (WITNESS,)


def deep(levels: int, name: str = "d") -> bytes:
    nested: Any = OrderedDict(f=0)
    for _ in range(levels - 1):
        nested = OrderedDict({name: nested})
    return pickle.dumps(nested, protocol=4)


HOSTILE: dict[str, bytes] = {
    "runs a function": pickle.dumps(Touches()),
    "runs a function in a value": pickle.dumps(OrderedDict(a=Touches())),
    "runs a function, protocol 0": pickle.dumps(Touches(), protocol=0),
    "os.system": b"cos\nsystem\n(X\x0e\x00\x00\x00mkdir executedtR.",
    "builtins.eval by the stack": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x021+\x85R.",
    "another class of collections": b"\x80\x04ccollections\ndefaultdict\n)R.",
    "an attribute of the class": b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.fromkeys\x93)R.",
    "the class through another module": b"\x80\x04ccollections.abc\nOrderedDict\n)R.",
    "the class with arguments": b"\x80\x04" + CLASS + name("a") + b"\x85R.",
    "arguments in a tuple": b"\x80\x04" + CLASS + b"(" + name("a") + b"tR.",
    "a call of text": b"\x80\x04" + name("a") + b")R.",
    "a call of a folder": b"\x80\x04" + NEW + b")R.",
    "the bare class": b"\x80\x04" + CLASS + b".",
    "BUILD": b"\x80\x04" + NEW + NEW + b"b.",
    "NEWOBJ": b"\x80\x04" + CLASS + b")\x81.",
    "INST": b"(icollections\nOrderedDict\n.",
    "OBJ": b"(" + CLASS + b"o.",
    "PERSID": b"Pexecuted\n.",
    "BINPERSID": b"\x80\x04" + name("a") + b"Q.",
    "EXT1": b"\x80\x04\x82\x01.",
    "NEXT_BUFFER": b"\x80\x05\x97.",
    "DUP": b"\x80\x04" + NEW + b"2.",
    "POP": b"\x80\x04" + NEW + NEW + b"0.",
    "a plain dict": pickle.dumps({"a": 0}),
    "a list": pickle.dumps(["a"]),
    "a float": pickle.dumps(OrderedDict(a=1.0)),
    "bytes as a name": pickle.dumps(OrderedDict({b"a": 0})),
    "True as a record": pickle.dumps(OrderedDict(a=True)),
    "True as a record, protocol 0": pickle.dumps(OrderedDict(a=True), protocol=0),
    "None as a record": pickle.dumps(OrderedDict(a=None)),
    "text as a record": pickle.dumps(OrderedDict(a="b")),
    "a number as a name": pickle.dumps(OrderedDict({3: 0})),
    "a number alone": pickle.dumps(3),
    "a record too far": tree(file("a", 2)),
    "a negative record": pickle.dumps(OrderedDict(a=-1)),
    "an enormous record": pickle.dumps(OrderedDict(a=1 << 200)),
    "one record for two names": tree(file("a", 0), file("b", 0)),
    "..": tree(file("..")),
    ".. as a folder": tree(name("..") + folder(file("a"))),
    ".": tree(file(".")),
    "no name": tree(file("")),
    "an absolute path": tree(file("/etc/passwd")),
    "a path as a name": tree(file("a/../../b")),
    "NUL": tree(file("a\0b")),
    "a name too long": tree(file("n" * 256)),
    "a name too long by bytes": tree(file("é" * 128)),
    "a path too long": deep(18, "n" * 250),
    "too deep": deep(65),
    "a name twice": tree(file("a", 0), file("a", 1)),
    "a name twice by SETITEM": b"\x80\x04" + NEW + file("a", 0) + b"s" + file("a", 1) + b"s.",
    "a folder in two places": b"\x80\x04" + NEW + b"(" + name("a") + NEW + b"q\x07" + name("b") + b"h\x07u.",
    "a folder in itself": b"\x80\x04" + NEW + b"q\x07" + name("a") + b"h\x07s.",
    "not UTF-8": b"\x80\x04" + NEW + b"\x8c\x02\xff\xfeK\x00s.",
    "an unknown memo": b"\x80\x04h\x63.",
    "an empty stack": b"\x80\x04R.",
    "no mark": b"\x80\x04" + NEW + b"u.",
    "an odd number of values": b"\x80\x04" + NEW + b"(" + name("a") + b"u.",
    "an open mark": b"\x80\x04(" + NEW + b".",
    "two values": b"\x80\x04" + NEW + NEW + b".",
    "no STOP": tree(file("a"))[:-1],
    "bytes behind STOP": tree(file("a")) + b"x",
    "protocol 6": b"\x80\x06" + NEW + b".",
    "a second PROTO": b"\x80\x04" + NEW + b"\x80\x04.",
    "a frame past the end": b"\x80\x04\x95" + b"\xff" * 8 + NEW + b".",
    "a string past the end": b"\x80\x04X\xff\xff\xff\x7fabc.",
    "a line without an end": b"ccollections",
    "digits without end": b"I" + b"9" * 5000 + b"\n.",
    "unknown opcode": b"\x80\x04\xff.",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_listings_are_refused_and_nothing_runs(case: str, pack_with: PackWith, tmp_path: Path) -> None:
    path = pack_with(HOSTILE[case])
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(anyrecord.FormatError) as caught:
        anyrecord.Folder(path)
    assert sorted(os.listdir(tmp_path)) == before
    assert caught.value.path == str(path)
    assert caught.value.record == 2
    assert caught.value.offset is not None
    assert caught.value.expected
    assert caught.value.found
    assert str(path) in str(caught.value)


def test_the_same_pieces_make_a_listing_that_is_read(pack_with: PackWith) -> None:
    listing = tree(file("a", 1), name("d") + folder(file("b", 0)), name("e") + NEW)
    assert pickle.loads(listing) == OrderedDict(a=1, d=OrderedDict(b=0), e=OrderedDict())
    assert dict(anyrecord.Folder(pack_with(listing))) == {"a": b"y", "d/b": b"x"}
    assert len(anyrecord.Folder(pack_with(deep(64)))) == 1
    assert list(anyrecord.Folder(pack_with(tree(file("n" * 255))))) == ["n" * 255]


def test_offset_points_at_the_opcode(pack_with: PackWith) -> None:
    listing = b"\x80\x04" + NEW + b"}."
    path = pack_with(listing)
    with pytest.raises(anyrecord.FormatError) as caught:
        anyrecord.Folder(path)
    offset = caught.value.offset
    assert offset is not None
    assert path.read_bytes()[offset:] == b"}."


@pytest.mark.parametrize("protocol", range(6))
def test_every_cut_and_every_changed_byte_is_refused_or_read(protocol: int) -> None:
    def parse(listing: bytes) -> Listing:
        return Listing.parse(b"piouhjgbr" + listing, path="x.ffr", number=2, offset=0)

    good = pickle.dumps(OrderedDict(a=0, d=OrderedDict(b=1), e=OrderedDict()), protocol=protocol)
    assert parse(good).tree == {"a": 0, "d": {"b": 1}, "e": {}}
    broken = [good[:end] for end in range(len(good))]
    broken += [good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :] for at in range(len(good)) for bit in range(1, 256)]
    opened = 0
    for listing in broken:
        try:
            found = parse(listing)
        except anyrecord.FormatError:
            continue
        opened += 1
        assert found.num_files <= 2
    assert opened < len(broken) / 2


def test_a_listing_cannot_take_much_more_memory_than_it_has_bytes(pack_with: PackWith) -> None:
    empty_folders = b"\x80\x04" + CLASS + b"q\x00)R(" + b"".join(b"\x8c\x04%04xh\x00)R" % i for i in range(20_000))
    path = pack_with(empty_folders + b"u.")
    tracemalloc.start()
    folder = anyrecord.Folder(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(folder.list()) == 20_000
    assert peak < 64 * path.stat().st_size


def test_golden_hostile_files_are_refused(golden: Path) -> None:
    for file in ("packed_hostile", "packed_hostile2", "packed_pydict", "packed_badindex", "packed_badmagic", "basic"):
        with pytest.raises(anyrecord.FormatError):
            anyrecord.Folder(golden / "ffrecord" / f"{file}.ffr")
    for file in ("n0", "one"):
        with pytest.raises(anyrecord.FormatError, match="not a packed folder"):
            anyrecord.Folder(golden / "ffrecord" / f"{file}.ffr")


UNSAFE_TO_UNPACK = {
    "a drive": OrderedDict({"C:": OrderedDict(a=0)}),
    "a path on a drive": OrderedDict({"c:evil.txt": 0}),
    "names that differ in case": OrderedDict({"README": 0, "readme": 1}),
    "folders that differ in case": OrderedDict({"a": OrderedDict({"D": OrderedDict(), "d": OrderedDict()})}),
    "names that differ in case beyond ASCII": OrderedDict({"STRASSE": 0, "straße": 1}),
    "names that differ in composition": OrderedDict({"\u00e9": 0, "e\u0301": 1}),
    "a lone surrogate that is no byte": OrderedDict({"\ud800": 0}),
}


@pytest.mark.parametrize("case", UNSAFE_TO_UNPACK)
def test_unsafe_names_are_refused_before_the_first_write(case: str, pack_with: PackWith, tmp_path: Path) -> None:
    path = pack_with(pickle.dumps(UNSAFE_TO_UNPACK[case]))
    with anyrecord.Folder(path) as folder:
        assert all(folder[name] in (b"x", b"y") for name in folder)  # reading is safe
        before = sorted(os.listdir(tmp_path))
        with pytest.raises(anyrecord.FormatError, match="not safe to unpack") as caught:
            folder.unpack(tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == before
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    "bad", ["a\\b", "..\\..\\evil", "con", "NUL.txt", "com1.log", "ab:stream", "a.", "a ", "a*", "tab\t", "lpt¹"]
)
def test_names_that_windows_reads_differently_are_refused_there(bad: str) -> None:
    from anyrecord._unpacking import check_names

    check = partial(check_names, {"d": {bad: 0}}, "x.ffr")
    check(windows=False)
    with pytest.raises(anyrecord.FormatError, match="Windows"):
        check(windows=True)


@pytest.mark.parametrize("good", ["console", "a.b", ".hidden", "com10", "nulls", "a b", "日本"])
def test_ordinary_names_are_fine_on_windows(good: str) -> None:
    from anyrecord._unpacking import check_names

    check_names({"d": {good: 0}}, "x.ffr", windows=True)
