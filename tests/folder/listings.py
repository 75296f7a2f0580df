"""Listings that no honest writer makes, and names that are not safe to unpack.

A listing is `PROTO 4, FRAME, <class> <()> REDUCE MEMOIZE, MARK, name MEMOIZE number ..., SETITEMS, STOP`; the cases
here are built from pieces of that.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyrecord

__all__ = [
    "CLASS",
    "HOSTILE",
    "NEW",
    "UNSAFE_TO_UNPACK",
    "WITNESS",
    "deep",
    "file",
    "folder",
    "name",
    "pack_listing",
    "tree",
]

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


# Text, and folders in each other that are deeper than Python's stack. The memo has the class at 0, the text at 1.
TOWER = b"\x80\x04" + CLASS + b"q\x00" + name("d") + b"q\x01h\x00)R" + b"h\x01h\x00)R" * 3000 + b"s" * 3000

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
    "a module with a path": b"\x80\x04c../evil\nOrderedDict\n)R.",
    "the class of another name by the stack": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0emkdir executed\x85R.",
    "the class by its long name": b"\x80\x04\x8c\x0bcollections\x8c\x08__init__\x93)R.",
    "NEWOBJ_EX": b"\x80\x04" + CLASS + b")}\x92.",
    "EXT2": b"\x80\x04\x83\x01\x00.",
    "EXT4": b"\x80\x04\x84\x01\x00\x00\x00.",
    "a byte array": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
    "a string of 8 bytes' length past the end": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f.",
    "a long number past the end": b"\x80\x04" + NEW + name("a") + b"\x8b\xff\xff\xff\x7fs.",
    "a frozen set": b"\x80\x04(\x91.",
    "a set": b"\x80\x04\x8f.",
    "READONLY_BUFFER": b"\x80\x05\x98.",
    "only marks": b"\x80\x04" + b"(" * 100_000 + b".",
    "only folders in each other": b"\x80\x04" + (NEW + b"(" + name("d")) * 5000 + b".",
    "deep folders as a name": TOWER + b"q\x02h\x00)Rh\x02K\x00s.",
    "deep folders as a class": TOWER + b"\x93.",
    "deep folders as arguments": TOWER + b"R.",
    "deep folders as a module": TOWER + b"h\x01\x93.",
    "a name with a newline's escape, protocol 0": b"V..\\u002f..\n.",
    "nothing": b"",
}

UNSAFE_TO_UNPACK = {
    "a drive": OrderedDict({"C:": OrderedDict(a=0)}),
    "a path on a drive": OrderedDict({"c:evil.txt": 0}),
    "names that differ in case": OrderedDict({"README": 0, "readme": 1}),
    "folders that differ in case": OrderedDict({"a": OrderedDict({"D": OrderedDict(), "d": OrderedDict()})}),
    "names that differ in case beyond ASCII": OrderedDict({"STRASSE": 0, "straße": 1}),
    "names that differ in composition": OrderedDict({"\u00e9": 0, "e\u0301": 1}),
    "a lone surrogate that is no byte": OrderedDict({"\ud800": 0}),
}


def pack_listing(path: Path, listing: bytes, files: Sequence[bytes] = (b"x", b"y")) -> Path:
    """Makes a file of the given records whose last one is the magic and the given listing."""
    with anyrecord.create(path, overwrite=True, durable=False) as out:
        out.write_many(files)
        out.write(b"piouhjgbr" + listing)
    return path
